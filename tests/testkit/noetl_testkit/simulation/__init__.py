"""The seeded simulation of servers, workers and clients (PROTOCOL §6)."""
