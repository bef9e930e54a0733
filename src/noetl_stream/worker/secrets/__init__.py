"""Secrets on the worker: resolving them, and redacting them from everything it reports (LANGUAGE §11)."""
