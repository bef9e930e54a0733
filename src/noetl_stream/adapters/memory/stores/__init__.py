"""What Postgres stores, in memory."""
