"""The tables of Postgres, in memory."""
