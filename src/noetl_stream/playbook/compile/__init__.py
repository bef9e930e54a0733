"""Compiles playbook text to a plan."""
