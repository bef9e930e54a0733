"""Compiles text to a template: parses it, binds its names, reports its problems."""
