"""What a decision asks of the outside: commands to workers, messages to other executions."""
