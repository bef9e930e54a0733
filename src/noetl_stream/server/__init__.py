"""The server role: it owns partitions, folds reports, commits and publishes. Only servers start steps."""
