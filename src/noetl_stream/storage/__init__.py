"""What several roles do with the stores: read the journal, seal objects, delete executions, wait for a store."""
