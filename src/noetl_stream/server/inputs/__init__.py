"""The inputs of executions, kind by kind, and the quarantine of executions whose inputs cannot be folded."""
