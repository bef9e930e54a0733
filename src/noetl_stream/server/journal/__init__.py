"""Reads and writes the journals of executions on EVENTS."""
