"""Helpers for the tests of a tool kind."""
