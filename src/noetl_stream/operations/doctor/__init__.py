"""What is wrong with a running system, and what mends it."""
