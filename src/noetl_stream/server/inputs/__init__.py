"""Takes the inputs of executions, kind by kind, and sets aside those that cannot be folded."""
