"""Conformance suites: one per port, inherited by the tests of every adapter."""
