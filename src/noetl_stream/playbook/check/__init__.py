"""Checks across the workflow: names, reads, writes, concurrency."""
