"""Partition leases, and the executions of owned partitions in memory."""
