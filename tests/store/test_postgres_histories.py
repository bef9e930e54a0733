"""What earlier releases stored is read by this one: the same events, the same states, the same decisions.

``tests/histories/record.py`` has recorded it, from real executions.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import msgspec
import pytest
from msgspec.structs import asdict, replace

from noetl_stream.adapters.postgres.schema.migrate import known_migrations, migrate
from noetl_stream.adapters.postgres.statements import statement
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.engine.advance import advance
from noetl_stream.engine.replay import recorded_facts, replay
from noetl_stream.engine.state import Execution
from noetl_stream.model.events import Fact
from noetl_stream.model.events.composite import expand
from noetl_stream.model.ids import report_id
from noetl_stream.model.json import codec
from noetl_stream.model.messages import JournalRecord, RecordEntry, Report
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.stores.store import ExecutionRow, StoredEvent
from noetl_stream.protocol.subjects import FENCES
from noetl_stream.server.ticks.tick import execution_row
from noetl_testkit.scenario.scenario import installed_kinds

FOLDER = Path(__file__).resolve().parents[1] / "histories"
RELEASES = sorted(folder.name for folder in FOLDER.iterdir() if (folder / "execution.jsonl").exists())
BESIDE_TABLES = ("messages", "journal")


def lines_of(release: str, name: str) -> list[str]:
    return (FOLDER / release / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()


@cache
def recorded(release: str, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines_of(release, name)]


class History(NamedTuple):
    """One execution, as this release reads it from the store."""

    plan: Plan
    row: ExecutionRow
    journal: list[StoredEvent]


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def histories(empty_dsn: str, release: str) -> AsyncIterator[list[History]]:
    """The executions of the release, in a database that it made and this release has upgraded."""
    await restore(empty_dsn, release)
    assert len(await migrate(empty_dsn)) == len(known_migrations()) - len(recorded(release, "migration"))
    store = await PostgresStore.open(empty_dsn, name="histories")
    try:
        yield [await read(store, row["execution_id"]) for row in recorded(release, "execution")]
    finally:
        await store.close()


async def restore(dsn: str, release: str) -> None:
    """Makes the tables of the release, with its rows."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement("create_migration_table").text)
        for migration in known_migrations()[: len(recorded(release, "migration"))]:
            await connection.execute(migration.text)
        await connection.execute("set session_replication_role = replica")  # rows come in no order of references
        for file in sorted((FOLDER / release).glob("*.jsonl")):
            if file.stem not in BESIDE_TABLES:
                await connection.execute(
                    f"insert into noetl.{file.stem} select * from json_populate_recordset(null::noetl.{file.stem}, $1)",
                    f"[{','.join(lines_of(release, file.stem))}]",
                )
    finally:
        await connection.close()


async def read(store: PostgresStore, execution_id: str) -> History:
    row = await store.execution(execution_id)
    assert row is not None
    playbook = await store.playbook(row.digest)
    assert playbook is not None
    plan = compile_playbook(playbook.source, installed_kinds())
    assert plan.digest == row.digest
    return History(plan, row, await store.journal(execution_id))


async def test_every_journal_is_read_as_its_release_read_it(histories: list[History], release: str) -> None:
    again = [
        {"execution_id": row.execution_id, **asdict(event), "data": json.loads(event.data)}
        for _, row, journal in histories
        for event in journal
    ]
    assert again == recorded(release, "journal")


async def test_every_journal_gives_the_state_that_was_shown(histories: list[History], release: str) -> None:
    columns = recorded(release, "execution")[0]  # those that came later have defaults
    for plan, row, journal in histories:
        state = replay(row.execution_id, journal)
        assert state is not None
        again = execution_row(state, row.partition, row.started_ms, row.updated_ms, plan.labels)
        assert plain(again, columns) == plain(row, columns)


def plain(row: ExecutionRow, columns: Iterable[str]) -> dict[str, Any]:
    """These columns by name; JSON as what it says, since Postgres keeps how it was spelled."""
    values = {name: getattr(row, name) for name in columns}
    return {name: json.loads(value) if isinstance(value, bytes) else value for name, value in values.items()}


async def test_the_same_inputs_lead_to_the_same_decisions(histories: list[History]) -> None:
    """Apart from what this release adds to them."""
    for plan, row, journal in histories:
        state: Execution | None = None
        decided: deque[Fact] = deque()
        for event, fact in zip(journal, recorded_facts(row.execution_id, journal), strict=True):
            where = f"{row.path}, position {event.position}"
            if event.cause is not None:
                assert includes(codec.encode(decided.popleft()), event.data), where
                continue
            assert not decided, f"{where}: {decided[0]} was not decided before it"
            advanced = advance(plan, state, replace(fact, step_run_id=event.step_run_id), row.execution_id)
            state, decided = advanced.state, deque(_parts(row.execution_id, advanced.journal))
        assert not decided, f"{row.path}: {decided[0]} was not decided"


def _parts(execution_id: str, facts: Sequence[Fact]) -> Iterator[Fact]:
    """The facts that these stand for."""
    return (part for fact in facts for part in expand(execution_id, fact))


def includes(now: bytes, then: bytes) -> bool:
    """Whether a fact says what another says. It may say more, where members of objects were added."""

    def covers(more: Any, less: Any) -> bool:
        if isinstance(less, dict) and isinstance(more, dict):
            return all(name in more and covers(more[name], value) for name, value in less.items())
        if isinstance(less, list) and isinstance(more, list):
            return len(more) == len(less) and all(map(covers, more, less))
        return bool(more == less)

    said = json.loads(then)
    said.pop("format", None)  # the version that wrote it
    return covers(json.loads(now), said)


def test_every_message_is_read(release: str) -> None:
    """Those that a server finds in EVENTS after an upgrade, and the commands that a worker finds."""
    widths: dict[str, list[int]] = {}
    entries: list[RecordEntry] = []
    for message in recorded(release, "messages"):
        if fnmatchcase(message["subject"], FENCES):  # read by NATS alone
            continue
        body, kind = message["body"].encode(), message["subject"].split(".")[4]
        if message["stream"] == "COMMANDS":
            assert codec.decode_command(body).command_id == message["subject"].rpartition(".")[2]
        elif kind == "decided":
            record = msgspec.json.decode(body, type=JournalRecord)
            entries += map(codec.decode_entry, record.entries)
        else:
            reported = codec.decode_reported(body)
            if isinstance(reported, Report):
                facts = map(codec.decode_fact, reported.events)
                widths[report_id(reported.run, reported.number)] = [fact.width for fact in facts]
    positions = 0
    for entry in entries:
        if entry.report_id:
            given = widths.get(entry.report_id, [1])  # a request is one fact
            positions += sum(given[entry.index : entry.index + entry.count])
        both = (*codec.decode_facts(entry.facts), *codec.decode_facts(entry.decisions))
        positions += sum(fact.width for fact, _ in both)
    assert positions == len(recorded(release, "journal"))
