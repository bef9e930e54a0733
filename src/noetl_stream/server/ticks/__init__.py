"""Folds inputs into ticks, commits them and publishes what follows."""
