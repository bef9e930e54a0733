"""The comparison of two executions."""
