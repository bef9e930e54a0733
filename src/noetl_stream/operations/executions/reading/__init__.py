"""The reading of executions from their rows and journals."""
