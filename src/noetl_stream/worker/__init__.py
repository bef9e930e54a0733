"""The worker role: fetches commands, runs their pipelines, reports results (DESIGN §4, PROTOCOL §3)."""
