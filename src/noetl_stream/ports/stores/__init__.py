"""What is stored in Postgres, as Protocols."""
