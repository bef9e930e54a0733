"""What aggregates decide: pure, as the engine (PROTOCOL §1)."""
