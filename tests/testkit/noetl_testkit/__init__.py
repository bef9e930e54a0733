"""Conformance suites of adapters, scripted scenarios and the seeded simulation, for the tests and benchmarks."""
