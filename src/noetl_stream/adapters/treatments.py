"""The treatment of error codes of the stores; both tables are in docs/reference/store-errors.md."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Treatment(StrEnum):
    """The reaction of a process to an error code of a store."""

    HANDLED = "handled"
    """The caller expects it, and has another way to its goal."""
    AGAIN = "tried again"
    """The call is repeated with pauses for as long as it may take; then the store is waited for."""
    WAITED = "waited for"
    """The process reports what it waits for, and works once the store accepts it."""
    STOPS = "stops"
    """The process or command ends with advice."""


class CodeRule(NamedTuple):
    """The meaning of a code, and its treatment. ``hint`` tells a person what to do."""

    treatment: Treatment
    meaning: str
    hint: str | None = None
