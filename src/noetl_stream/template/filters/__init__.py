"""Filters, tests and methods of templates."""
