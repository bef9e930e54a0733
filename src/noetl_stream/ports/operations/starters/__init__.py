"""Schedules and triggers, as people use them."""
