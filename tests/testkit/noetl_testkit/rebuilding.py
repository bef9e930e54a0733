"""A store that is rebuilt from EVENTS, compared with the one that servers have written (PROTOCOL §6)."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from noetl_stream.adapters.memory.event_log import MemoryEventLog
from noetl_stream.model.aggregates import is_aggregate
from noetl_stream.model.json import codec
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.ports.stores.catalog import Catalog
from noetl_stream.ports.stores.store import EntryRow, ExecutionRow, RequestRow, TimerRow
from noetl_stream.ports.streams.event_log import EventLog
from noetl_stream.protocol.log_fences import FencePlace
from noetl_stream.protocol.subjects import log_fence
from noetl_stream.server.assembly import ServerTimes
from noetl_stream.server.rebuild import rebuild
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.memory.store import StagedStore
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.roles import server_on


class _UnfencedLog:
    """An event log that takes no fences, and knows all that were, also those that were trimmed."""

    def __init__(self, real: MemoryEventLog) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def fence(self, owner: str, epochs: Mapping[int, int]) -> Collection[int]:
        return epochs.keys()

    async def fences(self, partition: int) -> Sequence[FencePlace]:
        own = [one.message for one in self._real.stored if one.message.subject == log_fence(partition)]
        return [FencePlace(codec.decode_record(one.body).epoch, one.sequence) for one in own]


async def rebuilt(broker: StagedBroker, catalog: Catalog, kinds: Kinds) -> StagedStore:
    """A store with what EVENTS holds."""
    store = StagedStore(broker.clock)
    host = SimulatedHost("rebuild", StagedBroker(broker.clock), store, FaultInjector())
    # It is not a server, and takes no queue and no partition from one.
    host.log, host.blobs = cast(EventLog, _UnfencedLog(broker.event_log)), broker.blobs
    await rebuild(server_on(host, catalog, kinds, ServerTimes()))
    return store


async def rebuilt_differences(broker: StagedBroker, store: StagedStore, catalog: Catalog, kinds: Kinds) -> list[str]:
    """How a store rebuilt from EVENTS differs from ``store``; empty if it does not.

    Sequences of messages are not compared: inputs that are published again in full have none. Nor are answers to
    requests that changed nothing, nor playbooks.
    """
    mine, other = store.tables, (await rebuilt(broker, catalog, kinds)).tables
    found: list[str] = []
    for execution_id in {**mine.journals, **other.journals}:
        expected, got = mine.journals.get(execution_id, {}), other.journals.get(execution_id, {})
        found += _different(f"{execution_id}: entry", _comparable(expected), _comparable(got))
    shown = [{id: _shown(row) for id, row in tables.executions.items()} for tables in (mine, other)]
    found += _different("execution", *shown)
    found += _different("timer", _of_executions(mine.timers), _of_executions(other.timers))
    found += _different("term", dict.fromkeys(mine.terms, 1), dict.fromkeys(other.terms, 1))
    found += _different("object use", mine.object_uses, other.object_uses)
    found += _different("request", _changing(mine.requests), _changing(other.requests))
    return found


def _changing(requests: Mapping[tuple[str, str], RequestRow]) -> dict[tuple[str, str], int]:
    """The requests to executions that have changed something."""
    return {key: row.position for key, row in requests.items() if row.position and not is_aggregate(key[0])}


def _of_executions(timers: Mapping[tuple[str, str], TimerRow]) -> dict[tuple[str, str], TimerRow]:
    """Aggregates are in Postgres alone."""
    return {key: row for key, row in timers.items() if not is_aggregate(row.execution_id)}


def _comparable(journal: Mapping[int, EntryRow]) -> dict[int, Any]:
    def facts(data: bytes | None) -> list[Any]:
        return [fact for fact, _ in codec.decode_facts(data)] if data is not None else []

    return {
        position: (replace(row, source_seq=None, data=b"", decisions=None), facts(row.data), facts(row.decisions))
        for position, row in journal.items()
    }


def _shown(row: ExecutionRow) -> Any:
    return replace(row, ctx=b"", labels=b""), codec.decode_json(row.ctx), codec.decode_json(row.labels)


def _different(what: str, expected: Mapping[Any, Any], got: Mapping[Any, Any]) -> Iterator[str]:
    keys: dict[Hashable, None] = dict.fromkeys([*expected, *got])
    for key in keys:
        if expected.get(key) != got.get(key):
            yield f"{what} {key}: EVENTS gives {got.get(key)}, Postgres holds {expected.get(key)}"
