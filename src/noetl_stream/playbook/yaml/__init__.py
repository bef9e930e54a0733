"""Reads YAML text to a tree of plain values with the position of every key (LANGUAGE §1)."""
