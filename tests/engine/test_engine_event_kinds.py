"""Every kind of fact has one place for what is true of it, and none is handled nowhere."""

from __future__ import annotations

import typing
from types import ModuleType

import msgspec
import pytest

from noetl_stream.engine import advance
from noetl_stream.engine.evolve import dispatch, executions, worker_facts
from noetl_stream.model import events
from noetl_stream.model.events import KINDS, Fact, client, server, worker
from noetl_stream.model.events.composite import Composite, StepRan
from noetl_stream.model.events.fact_parts import Entity, EventStatus, Kind
from noetl_stream.model.events.server import StepPatched, StepReused

WHOLE_EXECUTION = {events.ExecutionRequested, events.ReferenceResolved}
"""What ``evolve`` handles itself: before there is a state, and with a value beside the fact."""

COMPOSITE = set(typing.get_args(Composite))

ENTRIES = {StepPatched, StepReused}
"""Facts inside ``execution.reused``, never on their own."""


def concrete(base: type[Fact]) -> set[type[Fact]]:
    found = {one for child in base.__subclasses__() for one in {child, *concrete(child)}}
    return {one for one in found if one.__struct_config__.tag is not None}


def of(module: ModuleType) -> list[type[Fact]]:
    return [fact for fact in KINDS.values() if fact.__module__ == module.__name__]


def test_the_union_is_closed_over_every_kind_there_is() -> None:
    assert set(KINDS.values()) == concrete(Fact) - ENTRIES - COMPOSITE - {events.ClientRequest}


@pytest.mark.parametrize("fact", of(server), ids=lambda fact: fact.event_name())
def test_server_facts_change_the_state(fact: type[Fact]) -> None:
    assert fact in dispatch.SERVER_RULES or fact in WHOLE_EXECUTION


@pytest.mark.parametrize("fact", of(client), ids=lambda fact: fact.event_name())
def test_client_requests_change_the_state(fact: type[Fact]) -> None:
    assert fact in executions.CLIENT_RULES or fact in WHOLE_EXECUTION


def test_a_worker_may_report_its_own_kinds_of_events_alone() -> None:
    assert set(worker_facts.RULES) == {*of(worker), StepRan}


def test_rules_are_about_facts_that_a_journal_can_hold() -> None:
    ruled = {*dispatch.SERVER_RULES, *executions.CLIENT_RULES, *worker_facts.RULES, *advance.RULES}
    assert ruled <= {*KINDS.values(), *COMPOSITE}


@pytest.mark.parametrize("fact", KINDS.values(), ids=lambda fact: fact.event_name())
def test_every_kind_has_its_properties(fact: type[Fact]) -> None:
    kind = fact.kind
    assert isinstance(kind, Kind) and kind.entity in typing.get_args(Entity)
    assert callable(kind.status) or kind.status in typing.get_args(EventStatus)
    assert "kind" not in {field.name for field in msgspec.structs.fields(fact)}
