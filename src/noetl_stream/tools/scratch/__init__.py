"""Files on the worker's disk while a task runs: those that it reads and writes."""
