"""Checks across a whole workflow: names, reads, writes, concurrency."""
