"""The tables of Postgres, as Protocols."""
