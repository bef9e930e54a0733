"""The server role: owns partitions, folds reports, commits, publishes. Only the server starts steps."""
