"""What people read of executions: events, logs, graphs, timelines, differences, statistics."""
