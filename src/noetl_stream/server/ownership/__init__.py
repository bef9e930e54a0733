"""Leases partitions and brings what a new owner needs into memory."""
