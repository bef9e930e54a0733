"""Wiring: the only modules that connect adapters to roles, and decide what a process holds, by its identity."""
