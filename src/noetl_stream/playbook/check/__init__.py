"""Checks of a whole workflow: names, reads, writes, concurrency."""
