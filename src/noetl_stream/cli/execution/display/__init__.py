"""The display of executions, on a terminal or elsewhere."""
