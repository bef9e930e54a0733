"""Files on the worker's disk during a task: its inputs and outputs."""
