"""Workers, pools, partitions, dead letters, directly on NATS and Postgres."""
