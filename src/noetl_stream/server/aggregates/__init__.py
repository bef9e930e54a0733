"""The fold of schedules, triggers and limits."""
