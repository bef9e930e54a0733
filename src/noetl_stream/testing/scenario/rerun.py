"""Reruns of scenarios (LANGUAGE §9 *Rerun*)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from noetl_stream.engine.rerun import JournalSummary, reuse
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model import codec
from noetl_stream.model.events import ExecutionRequested, Fact, Rerun, RerunRefused
from noetl_stream.model.ids import report_id
from noetl_stream.testing.scenario.scenario import AskRefused, Scenario


class KeptRow(NamedTuple):
    """A journal entry as a store keeps it, with the fields replay reads."""

    at_ms: int
    report_id: str | None
    number: int | None
    data: bytes


def rerun(scenario: Scenario, step: str | None = None, **wanted: Any) -> Scenario:
    """A rerun of ``scenario`` from a step; without one, a retry of what failed it.

    Args:
        wanted: See :func:`parked`.

    Raises:
        AskRefused: it is impossible.
    """
    again = parked(scenario, step, **wanted)
    for fact in inputs_of(again, scenario):
        again.feed(RecordedFact(fact))
        if isinstance(fact, RerunRefused):
            raise AskRefused(fact.reason, fact.code)
    return again


def parked(
    scenario: Scenario,
    step: str | None = None,
    *,
    step_run_id: str | None = None,
    ctx: dict[str, Any] | None = None,
    args: dict[str, Any] | None = None,
) -> Scenario:
    """A rerun that does not know yet what is reused."""
    again = Scenario(scenario.plan, scenario.kinds, execution_id=f"{scenario.execution_id}-again")
    again.now_ms = scenario.now_ms
    again.objects = scenario.objects.shared_with(lambda: (entry.recorded for entry in again.journal))
    plan, of = scenario.plan, Rerun(scenario.execution_id, step, step_run_id, args)
    again.feed(RecordedFact(ExecutionRequested("request-1", plan.digest, plan.path, ctx=ctx or {}, rerun=of)))
    return again


def inputs_of(again: Scenario, scenario: Scenario) -> list[Fact]:
    """The server's inputs, read back from bytes."""
    request = again.execution.request
    assert request is not None, "it is not a rerun, or has begun"
    summary = JournalSummary(scenario.execution_id, rows(scenario))
    facts = reuse(again.plan, again.execution_id, request, summary)
    return [codec.decode_fact(codec.encode(fact)) for fact in facts]


def rows(scenario: Scenario) -> Iterator[KeptRow]:
    """The journal as a store keeps it."""
    for entry in scenario.journal:
        recorded = entry.recorded
        identity = None if recorded.run is None else report_id(recorded.run, recorded.number)
        number = None if recorded.run is None else recorded.number
        yield KeptRow(recorded.at_ms, identity, number, codec.encode(recorded.fact))
