"""Commands about what runs the executions."""
