"""Folds schedules, triggers and limits."""
