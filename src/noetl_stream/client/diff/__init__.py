"""How two executions differ."""
