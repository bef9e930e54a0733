"""The decisions of aggregates: pure, as the engine (PROTOCOL §1)."""
