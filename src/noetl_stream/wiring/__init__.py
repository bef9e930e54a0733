"""Wiring: the only modules that connect adapters to roles."""
