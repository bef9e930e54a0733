"""What follows from a fact, by the state after it (DESIGN §3)."""
