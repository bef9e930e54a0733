"""Leases partitions and loads their executions into memory."""
