"""The engine: what follows from what happened. Pure: no IO, clock, chance, environment or logging (DESIGN §3)."""
