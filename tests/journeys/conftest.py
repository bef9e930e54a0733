"""Fixtures of the journeys."""

from journey_stack import start_stack

__all__ = ["start_stack"]
