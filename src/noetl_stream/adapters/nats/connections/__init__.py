"""One connection to NATS, and what is read from it and written to it."""
