"""Secrets on the worker: where they come from, and how they are kept out of everything it reports (LANGUAGE §11)."""
