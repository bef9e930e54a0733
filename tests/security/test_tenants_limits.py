"""Keys of limits belong to somebody: what one team writes as a key changes nothing for another (LANGUAGE §15)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from server_stage import Stage

from noetl_stream.adapters.evaluation.pool import MemoryEvaluator
from noetl_stream.adapters.simulated_time import cancel_all_tasks
from noetl_stream.model.aggregates import MAX_KEY_CHARS, LimitState, limit_id
from noetl_stream.model.aggregates.key_limits import row_key
from noetl_stream.model.ids import partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.rights import MAX_PATH_CHARS
from noetl_stream.settings.grants import GrantsFile
from noetl_testkit.simulation.work import work

GRANTS = """
namespaces: [team/a, team/b]
grants:
- paths: ["*"]
  calls: [lib]
  pools: [default]
  kinds: [work]
- paths: [team/a, team/b, lib/guarded]
  limits: ["payment-*"]
"""

CANCELS = {"on_limit": "cancel_running"}


def playbook(path: str, steps: list[dict[str, Any]], **executor: Any) -> str:
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "it", "path": path}}
    return json.dumps({**head, "executor": {"spec": executor}, "workflow": steps})


def limited(path: str, key: str = "deploy", limit: int = 1, takes_s: float = 50.0, **policy: Any) -> str:
    """A playbook of which ``limit`` executions run at once."""
    concurrency = {"key": key, "limit": limit, **policy}
    return playbook(path, [{"step": "only", "tool": work("done", takes_s)}], policy={"concurrency": concurrency})


def calling(path: str, called: str, **policy: Any) -> str:
    """A playbook of which one execution runs at once, and which calls another."""
    tool = [{"name": "call", "kind": "playbook", "path": called}]
    concurrency = {"key": "deploy", "limit": 1, **policy}
    return playbook(path, [{"step": "only", "tool": tool}], policy={"concurrency": concurrency})


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """A server with grants, and a worker."""
    made = Stage()
    (tmp_path / "grants.yaml").write_text(GRANTS)
    made.grants = GrantsFile(tmp_path / "grants.yaml")
    await made.server()
    made.start_worker()
    yield made
    await cancel_all_tasks()


def limits(stage: Stage) -> dict[tuple[str, str], LimitState]:
    """All limits, by namespace and key."""
    states = [codec.decode_as(LimitState, row.state) for row in stage.tables.aggregates.rows.values()]
    return {(state.namespace, state.key): state for state in states}


def holds(stage: Stage, execution_id: str) -> bool:
    return any(row.execution_id == execution_id and row.granted_ms for row in stage.tables.limits.rows.values())


def waits(stage: Stage, execution_id: str) -> bool:
    return any(row.execution_id == execution_id and not row.granted_ms for row in stage.tables.limits.rows.values())


async def holding(stage: Stage, source: str) -> str:
    """Starts an execution, which gets its slot."""
    execution_id = await stage.submit(source)
    await stage.until(lambda: holds(stage, execution_id))
    return execution_id


async def queued(stage: Stage, source: str) -> str:
    """Starts an execution, which waits for its slot."""
    execution_id = await stage.submit(source)
    await stage.until(lambda: waits(stage, execution_id))
    return execution_id


async def test_nobody_cancels_the_execution_of_another_team_by_writing_its_key(stage: Stage) -> None:
    first = await holding(stage, limited("team/a/deploy", **CANCELS))
    await holding(stage, limited("team/b/deploy", **CANCELS))
    await stage.pass_time(10)
    assert stage.tables.executions[first].status == "running"
    await holding(stage, limited("team/a/other", **CANCELS))
    assert (await stage.ended(first)).status == "cancelled"


async def test_nobody_holds_the_key_of_another_team(stage: Stage) -> None:
    await holding(stage, limited("team/b/greedy"))
    await holding(stage, limited("team/a/deploy"))
    await queued(stage, limited("team/a/deploy"))
    found = limits(stage)
    assert {namespace: (state.held, state.queued) for (namespace, _), state in found.items()} == {
        "team/b": (1, 0),
        "team/a": (1, 1),
    }


async def test_nobody_changes_the_limit_of_another_team(stage: Stage) -> None:
    await holding(stage, limited("team/a/deploy"))
    await holding(stage, limited("team/b/deploy", limit=1000))
    await queued(stage, limited("team/a/deploy"))
    assert limits(stage)["team/a", "deploy"].concurrency == 1
    assert limits(stage)["team/b", "deploy"].concurrency == 1000


async def test_without_grants_the_first_part_of_a_path_is_its_namespace() -> None:
    stage = Stage()
    await stage.server()
    stage.start_worker()
    await holding(stage, limited("one/a"))
    await queued(stage, limited("one/b"))
    await holding(stage, limited("two/a"))
    await holding(stage, limited("onetwo"))
    assert sorted(limits(stage)) == [("one", "deploy"), ("onetwo", "deploy"), ("two", "deploy")]


async def test_namespaces_share_a_key_that_a_grant_gives_them_and_nobody_else_does(stage: Stage) -> None:
    await holding(stage, limited("team/a/pay", "payment-api"))
    await queued(stage, limited("team/b/pay", "payment-api"))
    await holding(stage, limited("team/c", "payment-api"))
    assert sorted(limits(stage)) == [("", "payment-api"), ("team", "payment-api")]


async def test_an_execution_cancelled_for_a_shared_key_is_not_told_which_one_took_its_place(
    stage: Stage,
) -> None:
    first = await holding(stage, limited("team/a/pay", "payment-api", **CANCELS))
    second = await stage.submit(limited("team/b/pay", "payment-api", **CANCELS))
    error = (await stage.ended(first)).error or b""
    assert b"an execution of another playbook takes its place" in error
    assert second.encode() not in error and b"team/b" not in error


@pytest.mark.parametrize(
    "key",
    [
        "team/b\x1fdeploy",
        "6\x1fteam/b\x1fdeploy",
        "limit in\x1f6\x1fteam/b\x1fdeploy",
        "deploy//team/b",
        "payment-\x1fdeploy",
        "team/b",
    ],
)
@pytest.mark.parametrize("path", ["team/a/x", "team", "team/a\x1fteam", "team\x1fb/deploy"])
async def test_no_key_however_it_is_written_is_that_of_another_team(stage: Stage, path: str, key: str) -> None:
    victim = await holding(stage, limited("team/b/deploy", **CANCELS))
    await holding(stage, limited(path, key, **CANCELS))
    await stage.pass_time(10)
    assert stage.tables.executions[victim].status == "running"
    assert len(limits(stage)) == 2


def test_no_two_keys_of_namespaces_have_one_id() -> None:
    parts = ("", "a", "1", "a/b", "\x1f", "a\x1fa", "1\x1fa", "limit in", "limit in\x1f1\x1fa", "//", "a//a")
    keys = [(key, namespace) for key in filter(None, parts) for namespace in parts]
    assert len({limit_id(*one) for one in keys}) == len(keys)


def test_the_longest_key_in_the_longest_namespace_fits_the_index_by_which_limits_are_listed() -> None:
    """An index of Postgres takes 2,704 bytes."""
    longest = "\U0001f600" * MAX_PATH_CHARS
    rows = {row_key(longest[:MAX_KEY_CHARS], namespace) for namespace in (longest, longest[1:], longest[1:] + "a")}
    assert len(rows) == 3 and max(len(row.encode()) for row in rows) < 2_600


async def test_a_called_playbook_shares_the_key_that_its_caller_holds_although_it_is_of_another_namespace(
    stage: Stage,
) -> None:
    await stage.register(limited("lib/mail", takes_s=5.0))
    other = await holding(stage, limited("lib/other", takes_s=500.0))
    caller = await stage.submit(calling("team/a/deploy", "lib/mail"))
    assert (await stage.ended(caller)).status == "completed"
    assert holds(stage, other), "the called playbook did not wait for the key of its own namespace"


async def test_a_called_playbook_asks_in_its_own_namespace_for_what_its_caller_does_not_hold(stage: Stage) -> None:
    await stage.register(limited("lib/mail", "mails", takes_s=5.0))
    first = await holding(stage, limited("lib/other", "mails", takes_s=20.0))
    caller = await holding(stage, calling("team/a/deploy", "lib/mail"))
    await stage.until(lambda: limits(stage)["lib", "mails"].queued == 1)
    assert stage.tables.executions[first].status == "running"
    assert (await stage.ended(caller)).status == "completed"


async def test_a_caller_cannot_avoid_a_shared_key_by_holding_its_own_of_that_name(stage: Stage) -> None:
    """A grant shares it with the called playbook, and not with the caller."""
    await stage.register(limited("lib/guarded/pay", "payment-api", takes_s=5.0))
    await holding(stage, limited("team/a/pay", "payment-api"))
    await holding(stage, calling("team/c", "lib/guarded/pay", key="payment-api"))
    await stage.until(lambda: limits(stage)["", "payment-api"].queued == 1)
    assert {of: state.held for of, state in limits(stage).items()} == {
        ("", "payment-api"): 1,
        ("team", "payment-api"): 1,
    }


async def test_steps_and_tasks_ask_in_their_namespace_too(stage: Stage) -> None:
    policy = {"policy": {"limit": {"key": "deploy", "concurrency": 1}}}
    tool = [{"name": "send", **work("sent", 50.0), "spec": policy}]
    for team in ("team/a", "team/b"):
        step = await holding(stage, playbook(f"{team}/step", [{"step": "s", "spec": policy, "tool": work("x", 50.0)}]))
        await queued(stage, playbook(f"{team}/task", [{"step": "s", "tool": tool}]))
        assert stage.tables.executions[step].status == "running"
    assert sorted(limits(stage)) == [("team/a", "deploy"), ("team/b", "deploy")]
    assert await stage.rebuilt_differences() == []


async def test_a_changed_grants_file_counts_for_executions_that_begin_then(stage: Stage, tmp_path: Path) -> None:
    first = await holding(stage, limited("team/a/pay", "payment-api", takes_s=20.0))
    (tmp_path / "grants.yaml").write_text(GRANTS.replace("payment-*", "other-*"))
    await holding(stage, limited("team/b/pay", "payment-api", takes_s=20.0))
    assert (await stage.ended(first)).status == "completed"
    assert sorted(limits(stage)) == [("", "payment-api"), ("team/b", "payment-api")]
    assert limits(stage)["", "payment-api"].held == 0


# What began before


async def interrupted(stage: Stage, *sources: str) -> list[str]:
    """Starts executions, each when the one before holds its slot or waits, then stops the server."""
    server, host, task = stage.start_server()
    await stage.until(lambda: len(server.ownership) > 0)
    stage.start_worker()
    ids = []
    for source in sources:
        ids.append(await stage.submit(source))
        await stage.until(lambda: len(stage.tables.limits.rows) == len(ids))
    host.kill()
    task.cancel()
    return ids


def as_before(data: bytes) -> bytes:
    """What a server stored that knew no namespaces."""
    return re.sub(rb',"keys":\{[^}]*\}|,"namespace":"[^"]*"|,"used_by":\[[^]]*\]', b"", data)


def store_as_before(stage: Stage) -> None:
    """Makes journals, limits and slots what a server stored that knew no namespaces."""
    tables = stage.tables
    for journal in tables.journals.values():
        for position, entry in journal.items():
            decisions = None if entry.decisions is None else as_before(entry.decisions)
            journal[position] = replace(entry, data=as_before(entry.data), decisions=decisions)
    keys = {id: codec.decode_as(LimitState, row.state).key for id, row in tables.aggregates.rows.items()}
    ids = {id: limit_id(key) for id, key in keys.items()}
    aggregates = tables.aggregates.rows.items()
    tables.aggregates.rows = {
        ids[id]: replace(row, id=ids[id], partition=partition_of(ids[id]), key=keys[id], state=as_before(row.state))
        for id, row in aggregates
    }
    slots = [replace(row, limit_id=ids[row.limit_id]) for row in tables.limits.rows.values()]
    tables.limits.rows = {(row.limit_id, row.holder): row for row in slots}


async def test_slots_at_an_upgrade_keep_their_old_key_until_they_are_given_back() -> None:
    stage = Stage()
    first, second = await interrupted(stage, *[limited("one/a", takes_s=20.0)] * 2)
    store_as_before(stage)
    await stage.server()
    third = await holding(stage, limited("one/a", takes_s=100.0))
    assert holds(stage, first) and waits(stage, second), "by the old key, which the third does not ask for"
    assert sorted(limits(stage)) == [("", "deploy"), ("one", "deploy")]
    ends = [await stage.ended(one, 200) for one in (first, second)]
    assert [row.status for row in ends] == ["completed"] * 2
    assert (ends[1].finished_ms or 0) - (ends[0].finished_ms or 0) >= 20_000, "one after the other"
    await stage.until(lambda: not limits(stage)["", "deploy"].held)
    assert holds(stage, third)
    assert (await stage.ended(third, 200)).status == "completed"


async def test_executions_called_after_an_upgrade_share_the_old_key_of_their_caller() -> None:
    stage = Stage()
    await stage.register(limited("lib/mail", takes_s=5.0))
    tool = [{"name": "before", **work("x", 20.0)}, {"name": "call", "kind": "playbook", "path": "lib/mail"}]
    concurrency = {"key": "deploy", "limit": 1}
    steps = [{"step": "only", "tool": tool}]
    [caller] = await interrupted(stage, playbook("one/a", steps, policy={"concurrency": concurrency}))
    store_as_before(stage)
    await stage.server()
    assert (await stage.ended(caller, 200)).status == "completed"
    assert sorted(limits(stage)) == [("", "deploy")]


class SilentEvaluator:
    """Never answers."""

    def __init__(self) -> None:
        self.asked = 0

    async def evaluate(self, questions: bytes, namespace: str = "") -> bytes:
        self.asked += 1
        await asyncio.Event().wait()
        return b""

    async def close(self) -> None:
        """There is nothing to close."""


async def test_a_start_that_another_server_takes_over_is_in_the_declared_namespace(tmp_path: Path) -> None:
    stage = Stage()
    (tmp_path / "grants.yaml").write_text(GRANTS)
    stage.grants = GrantsFile(tmp_path / "grants.yaml")
    evaluator = stage.evaluator = SilentEvaluator()
    _, host, task = stage.start_server()
    stage.start_worker()
    schema = {"properties": {"text": {"pattern": "^[a-z]+$"}}}
    source = playbook(
        "team/a/deploy",
        [{"step": "only", "tool": work("done", 50.0)}],
        workload=schema,
        policy={"concurrency": {"key": "deploy", "limit": 1}},
    )
    execution_id = await stage.submit(source, {"text": "x" * 400_000})
    await stage.until(lambda: evaluator.asked)
    host.kill()
    task.cancel()
    stage.evaluator = MemoryEvaluator()
    await stage.server()
    await stage.until(lambda: holds(stage, execution_id))
    assert sorted(limits(stage)) == [("team/a", "deploy")]
