"""Wiring: the only modules that connect adapters to roles, and limit each process to what its identity may hold."""
