"""Takes the inputs of executions, kind by kind, and quarantines executions whose inputs cannot be folded."""
