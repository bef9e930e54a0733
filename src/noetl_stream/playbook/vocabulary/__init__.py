"""Names, and keys to reject with advice."""
