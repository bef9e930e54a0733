"""The engine decides what follows from a fact. Pure: no IO, clock, randomness, environment or logging (DESIGN §3)."""
