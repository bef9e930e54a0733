"""Schedules and triggers for people."""
