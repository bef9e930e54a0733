"""Fixtures of the journeys."""

from journey_stack import airports_api, start_stack

__all__ = ["airports_api", "start_stack"]
