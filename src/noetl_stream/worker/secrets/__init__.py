"""Secrets on the worker: resolves them, and redacts them from everything it reports (LANGUAGE §11)."""
