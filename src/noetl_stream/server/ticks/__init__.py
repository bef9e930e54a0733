"""Ticks: inputs are folded and committed, then their records and commands are published."""
