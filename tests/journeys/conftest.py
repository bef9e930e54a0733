"""Fixtures of the journeys."""

from journey_stack import operations, start_stack

__all__ = ["operations", "start_stack"]
