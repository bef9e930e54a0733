"""The runner of a command: decides everything about it, for whoever drives it (DESIGN §5)."""
