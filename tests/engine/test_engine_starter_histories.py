"""Histories of schedules and triggers that an earlier release has stored come to the same starts (PROTOCOL §1).

``tests/histories/starters.jsonl`` has what release 0.3 folded, drawn at random, and the digest of what followed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl_stream.engine.aggregates.contract import Found, Given
from noetl_stream.model.aggregates import (
    RequestedFact,
    SentFact,
    StreamEventRead,
    StreamSeen,
    TimerDue,
    aggregate_id,
)
from noetl_stream.model.ids import digest_of
from noetl_stream.model.json import codec
from noetl_stream.server.aggregates.aggregate_fold import KINDS

FILE = Path(__file__).resolve().parents[1] / "histories" / "starters.jsonl"
PATH = "team/one"


class Folding(msgspec.Struct):
    """A fact, what is found of the playbooks it looks up, and the digest of what followed. The first has the kind."""

    at_ms: int
    fact: RequestedFact | SentFact | TimerDue | StreamEventRead | StreamSeen
    found: list[Found]
    after: str
    kind: str | None = None


def histories() -> Iterator[tuple[str, list[Folding]]]:
    lines = [msgspec.json.decode(line, type=Folding) for line in FILE.read_bytes().splitlines()]
    begun = [sum(one.kind is not None for one in lines[: place + 1]) for place in range(len(lines))]
    for number, group in groupby(zip(begun, lines, strict=True), key=lambda one: one[0]):
        history = [one for _, one in group]
        yield f"{history[0].kind} {number}", history


@pytest.mark.parametrize("history", [pytest.param(history, id=id) for id, history in histories()])
def test_a_stored_history_comes_to_the_same_starts(history: list[Folding]) -> None:
    kind, state = KINDS[history[0].kind or ""], None
    for number, one in enumerate(history):
        lookups = sorted(kind.lookups(state, one.fact), key=str)
        found = dict(zip(lookups, one.found, strict=True))
        given = Given(aggregate_id("starter", PATH), PATH, one.fact, one.at_ms, found, streams=("ORDERS",))
        folded = kind.fold(state, given)
        state = folded.state
        sent = [[message.execution_id, type(message.fact).__name__] for message in folded.messages]
        entries = [[entry.number, entry.status, entry.execution_id] for entry in folded.history]
        after: list[Any] = [sent, entries, kind.timers(state) if state is not None else None]
        assert digest_of(codec.encode(after).decode())[:12] == one.after, f"fact {number}: {one.fact}"
