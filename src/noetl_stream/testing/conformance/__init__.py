"""One suite a port, inherited by the tests of every adapter."""
