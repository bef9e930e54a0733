"""The server: owns partitions, folds what is reported, commits, publishes, and is the only one that starts steps."""
