"""The times of schedules (LANGUAGE §15 *Schedule*)."""
