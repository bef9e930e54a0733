"""Logs of tasks: what they write while they run, and what the worker says about them."""
