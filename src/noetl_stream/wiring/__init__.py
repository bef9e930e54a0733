"""Wiring: the only modules that connect adapters to roles, and what a process holds for them, by its identity."""
