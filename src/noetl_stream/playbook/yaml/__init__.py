"""YAML text to a tree of plain values that knows the place of every key (LANGUAGE §1)."""
