"""Reasons, their words, and the environment from which they are derived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl_stream.errors import StoreMissing
from noetl_stream.model.envelope import iso, iso_or_none
from noetl_stream.ports.operations.cluster import AwaitedSlotDocument
from noetl_stream.ports.operations.executions import ReasonDocument
from noetl_stream.ports.operations.waits import GuardDocument, WaitingOnDocument
from noetl_stream.sealing.data_references import without_seals

if TYPE_CHECKING:  # the end of an execution is explained by its journal alone
    from noetl_stream.ports.operations import cluster

SHOWN_CHARS: Final = 160


class Environment(msgspec.Struct, frozen=True):
    """The sources of ``why`` in addition to the journal.

    Attributes:
        now_ms: By the clock of the store.
        workers: The running ones (:meth:`~noetl_stream.ports.operations.cluster.Cluster.workers`).
        pools: By name (``Cluster.pools``).
        partition: The partition of the execution (``Cluster.partitions``).
        children: The statuses of the executions it waits for, except those that have not begun.
        missing: A stream that does not exist. Workers, pools and partition are unknown then.
        slots: The slots of limits by key that it waits for, by step run; ``""`` for the execution as a whole.
        unstored: The reasons why the server of its partition cannot store its decisions, a line for each store.
    """

    now_ms: int
    workers: Sequence[cluster.WorkerDocument] = ()
    pools: Mapping[str, cluster.PoolDocument] = {}
    partition: cluster.PartitionDocument | None = None
    children: Mapping[str, str] = {}
    missing: StoreMissing | None = None
    slots: Mapping[str, AwaitedSlotDocument] = {}
    unstored: Sequence[str] = ()

    def workers_of(self, pool: str) -> list[cluster.WorkerDocument]:
        return [worker for worker in self.workers if worker.pool == pool]

    def running(self, name: str, command_id: str) -> cluster.RunningCommandDocument | None:
        """The command as shown by the worker of this name; ``None`` if it does not have it."""
        held = [running for worker in self.workers if worker.name == name for running in worker.running]
        return next((running for running in held if running.command_id == command_id), None)


def reason(
    kind: str,
    sentence: str,
    moves: str,
    since_ms: int = 0,
    step: str | None = None,
    *,
    task: str | None = None,
    iteration: Sequence[int] = (),
    until_ms: int | None = None,
    details: dict[str, Any] | None = None,
    waiting_on: WaitingOnDocument | None = None,
) -> ReasonDocument:
    """A reason: ``kind`` is stable, ``sentence`` explains it, ``moves`` would end it; ``since_ms`` is 0 if unknown."""
    return ReasonDocument(
        kind=kind,
        sentence=sentence,
        moves=moves,
        since=iso(since_ms) if since_ms else None,
        until=iso_or_none(until_ms),
        step=step,
        task=task,
        iteration=list(iteration),
        details=details or {},
        waiting_on=waiting_on,
    )


def shown(value: Any) -> str:
    """A value in a sentence: JSON, truncated if long."""
    import json

    text = json.dumps(without_seals(value), ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def counted(count: int, noun: str) -> str:
    """``1 worker``, ``2 workers``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def values_text(guards: Sequence[GuardDocument]) -> str:
    """The values that guards read: ``ctx.approved is missing, workload.limit is 3``."""
    texts: dict[str, str] = {}
    for guard in guards:
        texts |= {name: f"{name} is {shown(value)}" for name, value in guard.values.items()}
        texts |= {name: f"{name} is missing" for name in guard.missing}
    return ", ".join(texts.values())
