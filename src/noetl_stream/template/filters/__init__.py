"""Filters, tests and methods that templates may use."""
