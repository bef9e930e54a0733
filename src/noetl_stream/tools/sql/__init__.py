"""Shared by the SQL kinds."""
