"""Backups of the engine's database and objects: made while it runs, checked without it, restored into empty stores."""
