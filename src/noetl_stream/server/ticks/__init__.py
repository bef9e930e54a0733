"""Folds inputs into ticks, commits them and publishes their records and commands."""
