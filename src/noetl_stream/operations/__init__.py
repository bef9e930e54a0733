"""The operations, directly on NATS and Postgres: for the gateway, and for the command line without one."""
