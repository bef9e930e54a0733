"""What is done about the error codes of the stores. Both tables of them are in docs/reference/store-errors.md."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Treatment(StrEnum):
    """What a process does when a store answers with a code."""

    HANDLED = "handled"
    """The caller expects it, and reaches its end in another way."""
    AGAIN = "tried again"
    """The call is repeated with pauses, as long as it may take; then it is waited for."""
    WAITED = "waited for"
    """The process says what it waits for, and does its work once the store takes it."""
    STOPS = "stops"
    """The process or command ends and says what to do."""


class CodeRule(NamedTuple):
    """What a code means, and what is done about it. ``hint`` says what a person can do."""

    treatment: Treatment
    meaning: str
    hint: str | None = None
