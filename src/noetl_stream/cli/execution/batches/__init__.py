"""``noetl-stream execution start --each``: an execution for each row of a file."""
