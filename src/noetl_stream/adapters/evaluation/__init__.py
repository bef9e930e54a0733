"""Evaluates templates in processes of their own."""
