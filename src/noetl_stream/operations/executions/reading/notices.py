"""The notices of an execution: its discarded tokens and its warnings (LANGUAGE §4, §14)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl_stream.model.events import (
    ExecutionFinished,
    ExecutionReused,
    Fact,
    QuotaExceeded,
    SlotGranted,
    TaskWarning,
    TokenDiscarded,
    TokenEnqueued,
    ToleratedFailures,
)
from noetl_stream.model.json import codec
from noetl_stream.model.json.values import deep_merge
from noetl_stream.ports.operations.executions import CompensationDocument, DiscardedTokenDocument, WarningDocument
from noetl_stream.ports.operations.verbs import document_from
from noetl_stream.ports.stores.store import ExecutionRow, Store, StoredEvent
from noetl_stream.storage.journal import EVENTS_AT_ONCE

if TYPE_CHECKING:
    from noetl_stream.operations.executions.prepare import CheckedText
    from noetl_stream.playbook.plan import Plan

NOTICES_SHOWN: Final = 100
"""The most discarded tokens, and the most warnings, that are shown."""

SUGGESTIONS: Final = 5
KEYS_COMPARED: Final = 100
"""The most undeclared keys with a suggestion, and the most keys searched for it: a comparison takes up to 0.2 ms."""

_END: Final = frozenset({"execution.finished", "slot.granted", "execution.quota_exceeded"})
_READ: Final = _END | {"token.enqueued", "token.discarded", "execution.reused"}


class Notices(msgspec.Struct):
    """The notices of a journal, by position."""

    discarded: list[DiscardedTokenDocument] = msgspec.field(default_factory=list)
    warnings: list[WarningDocument] = msgspec.field(default_factory=list)
    compensations: list[CompensationDocument] = msgspec.field(default_factory=list)
    _steps: dict[str, str] = msgspec.field(default_factory=dict)

    def take(self, row: StoredEvent) -> None:
        """Reads the next entry."""
        if row.name in _READ:
            fact = codec.decode_fact(row.data)
            for one in fact.entries if isinstance(fact, ExecutionReused) else (fact,):
                self._take(one)

    def warn(self, warnings: Iterable[WarningDocument]) -> None:
        """Adds warnings, up to the bound."""
        self.warnings += islice(warnings, NOTICES_SHOWN - len(self.warnings))

    def _take(self, fact: Fact) -> None:
        if isinstance(fact, TokenEnqueued):
            self._steps[fact.token.token_id] = fact.token.step
        elif isinstance(fact, TokenDiscarded) and len(self.discarded) < NOTICES_SHOWN:
            self.discarded.append(DiscardedTokenDocument(fact.token_id, self._steps[fact.token_id], fact.reason))
        elif isinstance(fact, SlotGranted) and fact.warning:
            self.warn([WarningDocument("limit_replaced", fact.warning, None)])
        elif isinstance(fact, QuotaExceeded):
            self.warn([WarningDocument("quota_exceeded", fact.text, None)])
        elif isinstance(fact, ExecutionFinished):
            self.warn(WarningDocument("tolerated", tolerated_text(one), one.step) for one in fact.tolerated)
            self.compensations = [document_from(CompensationDocument, one) for one in fact.compensations]
            left = (one for one in fact.compensations if not one.undone)
            self.warn(
                WarningDocument("not_undone", f"{one.step} is not undone: {one.reason}", one.step) for one in left
            )
            self.warn(WarningDocument(one.warning.kind, _warning_text(one), one.step or None) for one in fact.warnings)


def notices_of(journal: Iterable[StoredEvent]) -> Notices:
    """The notices of a whole journal."""
    notices = Notices()
    for row in journal:
        notices.take(row)
    return notices


async def read_notices(store: Store, row: ExecutionRow) -> Notices:
    """:func:`notices_of` the journal of an ended execution, of any length."""
    notices, after, names = Notices(), 0, _READ if row.discarded else _END
    while piece := await store.events_named(row.execution_id, names, after, EVENTS_AT_ONCE):
        for event in piece:
            notices.take(event)
        after = piece[-1].position
        await asyncio.sleep(0)  # a turn for other tasks
    return notices


def _warning_text(found: TaskWarning) -> str:
    sent, where = ("runs", f"task {found.task} of {found.step}") if found.step else ("requests", found.task)
    more = f" (and in {found.runs - 1:,} more {sent} of it)" if found.runs > 1 else ""
    return f"{where}: {found.warning.message}{more}"


def declared_inputs(playbook: Plan | CheckedText) -> Mapping[str, Any]:
    """The workload of a playbook, with further keys from its schema."""
    schema = playbook.workload_schema
    declared: Mapping[str, Any] = deep_merge({} if schema is None else _keys_of(schema.content), playbook.workload)
    return declared


def _keys_of(schema: Any) -> dict[str, Any]:
    """The keys that a schema declares, nested ones included."""
    properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
    return {key: _keys_of(inner) for key, inner in properties.items()}


def undeclared_workload(given: Mapping[str, Any], declared: Mapping[str, Any]) -> Iterator[WarningDocument]:
    """A warning for each key of a request's workload that the playbook's does not have."""
    from noetl_stream.template.failures import closest, shorten  # most playbooks declare all their inputs

    for number, (path, known) in enumerate(_undeclared(given, declared, ("workload",))):
        close = closest(path[-1], islice(known, KEYS_COMPARED)) if number < SUGGESTIONS else None
        meant = f"; did you mean `{'.'.join((*path[:-1], close))}`?" if close else ""
        message = f"`{shorten('.'.join(path))}` is not declared by the playbook{meant}"
        yield WarningDocument("undeclared_workload", message, None)


def _undeclared(
    given: Mapping[str, Any], declared: Mapping[str, Any], within: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """The undeclared paths, each with the keys declared beside it. An empty mapping accepts any key."""
    for key, value in given.items():
        path = (*within, key)
        if key not in declared:
            yield path, declared
        elif isinstance(value, dict) and isinstance(inner := declared[key], dict) and inner:
            yield from _undeclared(value, inner, path)


def tolerated_text(failures: ToleratedFailures) -> str:
    """Such as ``4 of 200 iterations of fetch failed`` or ``store failed``; of nested loops, the innermost too."""
    failed, leaves, runs, step = failures.failed, failures.failed_leaves, failures.runs, failures.step
    said = []
    if runs:
        said.append(f"{step} failed" if runs == 1 else f"{runs} runs of {step} failed")
    if failed:
        innermost = f", {_counted(leaves, 'innermost iteration')}" if leaves != failed else ""
        said.append(f"{failed} of {_counted(failures.count, 'iteration')} of {step} failed{innermost}")
    elif leaves:
        said.append(f"{_counted(leaves, 'innermost iteration')} of {step} failed")
    return ", ".join(said)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
