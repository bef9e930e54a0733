"""The runner of a command: it makes every decision, and a driver carries them out (DESIGN §5)."""
