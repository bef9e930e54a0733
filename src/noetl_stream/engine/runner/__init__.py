"""The runner of a command: everything that decides about it, for whoever drives it (DESIGN §5)."""
