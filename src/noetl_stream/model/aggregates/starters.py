"""What requests to schedules and triggers have in common: both start executions by themselves."""

from __future__ import annotations

import msgspec

from noetl_stream.model.aggregates.fact_parts import AggregateRequested


class StarterTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a starter starts: a registered document, read. ``version`` is the version of the playbook, ``None`` for the
    one registered last.
    """

    playbook: str
    version: str | None = None


class StarterRegistered(AggregateRequested, frozen=True):
    """The starter at the path ``key`` is from now on as ``terms`` say.

    ``revision`` and ``digest`` are those of the document in the catalog; the same revision again changes nothing.
    """

    terms: StarterTerms = StarterTerms(playbook="")
    revision: int = 0
    digest: str = ""


class StarterPaused(AggregateRequested, frozen=True):
    """The starter starts nothing until it is resumed."""


class StarterResumed(AggregateRequested, frozen=True):
    """The starter starts executions again from now on. What it did not start while it was paused is not made up for."""


class StarterDeleted(AggregateRequested, frozen=True):
    """The starter is forgotten, with its history; what it has started goes on."""
