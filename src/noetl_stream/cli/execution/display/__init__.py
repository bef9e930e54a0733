"""What commands show of executions, on a terminal or elsewhere."""
