"""The reading of executions: events, logs, graphs, timelines, differences, statistics."""
