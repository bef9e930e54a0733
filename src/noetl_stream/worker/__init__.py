"""The worker role: fetches commands, runs their pipelines, reports what happened (DESIGN §4, PROTOCOL §3)."""
