"""Logs of tasks: their output while they run, and the worker's lines about them."""
