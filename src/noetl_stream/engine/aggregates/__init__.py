"""The decisions of aggregates: pure, like the engine (PROTOCOL §1)."""
