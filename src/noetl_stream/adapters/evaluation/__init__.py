"""Evaluates templates in separate processes."""
