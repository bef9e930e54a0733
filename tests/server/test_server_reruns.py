"""Reruns through the server: the original is read beside the loop, once, and what is reused has no second effect."""

from __future__ import annotations

from typing import Any

import pytest
from server_stage import Stage, once
from waiting_stage import EXECUTION, Dies, error_of, is_waiting, result_of, whole

from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.errors import Fenced, NoetlError, OutcomeUnknown
from noetl_stream.model.events import (
    CancelRequested,
    CtxPatched,
    ExecutionRequested,
    ExecutionReused,
    ExecutionStarted,
    Rerun,
)
from noetl_stream.model.ids import PARTITIONS, digest_of, partition_of, undoing_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import Request
from noetl_stream.operations.access import DirectCredentials
from noetl_stream.ports.stores.store import ObjectUseRow
from noetl_stream.sealing.keys import KeyRing, new_key, read_key
from noetl_stream.server.answers.credential_values import SecretsResponder
from noetl_stream.server.inputs.waits import AT_ONCE
from noetl_testkit.entries import names_in
from noetl_testkit.keys import SIGNER
from noetl_testkit.memory.access import MemoryAudit
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.work import playbook, work

AGAIN = "execution-again"
LARGE = [{"n": n, "text": "x" * 20} for n in range(40)]
SMALL = {"spec": {"policy": {"limits": {"max_inline_bytes": 300}}}}


def steps(*last: dict[str, Any]) -> list[dict[str, Any]]:
    arcs = {"arcs": [{"step": "second", "args": {"n": "{{ first | length }}"}}]}
    return [
        {"step": "first", "tool": work(LARGE), "next": arcs},
        {"step": "second", "tool": work("{{ [first[39].n, args.n, ctx.k | default(0)] }}", failures="{{ ctx.fails }}")},
        *last,
    ]


SOURCE = playbook("again", steps({"step": "never", "tool": work(0)}), executor=SMALL)


async def ask(stage: Stage, wanted: Rerun, ctx: dict[str, Any] | None = None, **changes: Any) -> None:
    """Publishes the request for a rerun."""
    fields = {"digest": digest_of(SOURCE), "path": "simulation/again", "trace_id": "new", **changes}
    fact = ExecutionRequested("request-again", ctx=ctx or {}, principal="ann", rerun=wanted, **fields)
    stage.broker.event_log.forget_message_ids()
    body = SIGNER.encode(Request(AGAIN, "request-again", fact))
    await stage.broker.event_log.publish_request(AGAIN, "request-again", body)


async def answer(stage: Stage) -> dict[str, Any] | None:
    row = await stage.store.real.request(AGAIN, "request-again")
    found: dict[str, Any] | None = codec.decode_json(row.answer) if row is not None else None
    return found


async def begin(stage: Stage, source: str = SOURCE) -> None:
    """An execution that fails in its second step: ``ctx.fails`` is not there."""
    await stage.request(EXECUTION, "request-1", source)
    assert (await stage.ended(EXECUTION)).status == "failed"


@pytest.fixture
async def failed(stage: Stage) -> Stage:
    """A server and a worker; the second step of an execution has failed."""
    await stage.server()
    stage.start_worker()
    await begin(stage)
    return stage


def times_run(stage: Stage, step: str) -> int:
    return sum(times for effect, times in stage.effects.items() if effect.step == step)


async def test_a_rerun_hides_what_its_original_was_given(stage: Stage) -> None:
    keys = KeyRing(read_key(new_key(), "a test"))
    credentials = MemoryCredentials(stage.clock)
    stage.secrets = SecretsResponder(credentials, MemoryAudit(), stage.clock, keys)
    await DirectCredentials(credentials, keys).put("pg", "a very secret value", "ann")
    read = await credentials.get("pg")
    assert read is not None and await credentials.record_use(EXECUTION, read)
    await stage.server()
    stage.start_worker()
    await begin(stage)
    await ask(stage, Rerun(EXECUTION))
    await stage.ended(AGAIN)
    used = await credentials.used_by([EXECUTION, AGAIN])
    assert used[AGAIN] == used[EXECUTION]


class Slow(FaultInjector):
    """Reading a journal takes its time, as long as ``takes_s`` says."""

    def __init__(self, stage: Stage) -> None:
        self.takes_s = 0.0
        self._stage = stage

    async def inject(self, host: SimulatedHost, point: str) -> None:
        if point == "store.journal":
            await self._stage.clock.sleep(self.takes_s)


class Counting(FaultInjector):
    """Counts how many journals are read at once."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._now = self.most = 0

    async def inject(self, host: SimulatedHost, point: str) -> None:
        if point == "store.journal":
            self._now += 1
            self.most = max(self.most, self._now)
            await self._stage.clock.sleep(0.1)
            self._now -= 1


async def looks(stage: Stage) -> None:
    """It has been asked for, and looks into its original."""
    rows = stage.tables.executions
    await stage.until(lambda: AGAIN in rows and rows[AGAIN].looks_into == EXECUTION)


async def test_a_retry_runs_only_the_failed_steps(failed: Stage) -> None:
    await ask(failed, Rerun(EXECUTION), {"fails": 0, "k": 7})
    row = await failed.ended(AGAIN)
    assert (row.status, result_of(row), row.rerun_of) == ("completed", [39, 40, 7], EXECUTION)
    assert (times_run(failed, "first"), times_run(failed, "second")) == (1, 1)
    assert await answer(failed) == {"ok": True, "execution_id": AGAIN}
    names = await whole(failed, AGAIN)
    assert names[:2] == ["execution.requested", "execution.reused"]
    (started,) = [fact for fact in await failed.facts(AGAIN) if isinstance(fact, ExecutionStarted)]
    assert started.trace_id == row.trace_id == "new"


async def test_many_retries_hold_few_journals_in_memory_at_once(stage: Stage) -> None:
    injector = Counting(stage)
    server, _, _ = stage.start_server(stage.host("server", injector))
    stage.start_worker()
    await stage.until(lambda: len(server.ownership) > 0)
    await begin(stage)
    names = [f"again-{number}" for number in range(40)]
    for name in names:
        fact = ExecutionRequested("r", digest_of(SOURCE), ctx={"fails": 0}, rerun=Rerun(EXECUTION))
        await stage.broker.event_log.publish_request(name, name, SIGNER.encode(Request(name, "r", fact)))
    for name in names:
        assert (await stage.ended(name)).status == "completed"
    assert 1 < injector.most <= AT_ONCE


class Reading(FaultInjector):
    """Notes the executions whose rows are read."""

    def __init__(self) -> None:
        self.read: list[Any] = []

    def does(self, host: SimulatedHost, point: str, arguments: tuple[Any, ...]) -> None:
        if point == "store.execution":
            self.read += arguments


async def test_a_rerun_of_a_playbook_that_undoes_nothing_looks_for_nothing_that_undid(stage: Stage) -> None:
    injector = Reading()
    server, _, _ = stage.start_server(stage.host("server", injector))
    stage.start_worker()
    await stage.until(lambda: len(server.ownership) > 0)
    await begin(stage)
    await ask(stage, Rerun(EXECUTION), {"fails": 0})
    assert (await stage.ended(AGAIN)).status == "completed"
    assert EXECUTION in injector.read and undoing_of(EXECUTION) not in injector.read


async def test_a_rerun_from_a_step_takes_other_args(failed: Stage) -> None:
    await ask(failed, Rerun(EXECUTION, "second", args={"n": 3}), {"fails": 0})
    assert result_of(await failed.ended(AGAIN)) == [39, 3, 0]


async def test_a_rerun_of_a_rerun_reads_only_that(failed: Stage) -> None:
    await ask(failed, Rerun(EXECUTION), {"fails": 9})
    assert (await failed.ended(AGAIN)).status == "failed"
    fact = ExecutionRequested("r", digest_of(SOURCE), ctx={"fails": 0}, rerun=Rerun(AGAIN))
    del failed.tables.journals[EXECUTION]
    await failed.broker.event_log.publish_request("third", "r", SIGNER.encode(Request("third", "r", fact)))
    row = await failed.ended("third")
    assert (row.status, result_of(row), row.rerun_of) == ("completed", [39, 40, 0], AGAIN)
    assert times_run(failed, "first") == 1


async def test_large_results_that_are_reused_are_kept_as_long_as_their_users(failed: Stage) -> None:
    await ask(failed, Rerun(EXECUTION), {"fails": 0})
    await failed.ended(AGAIN)
    (key,) = [key for key in failed.broker.blobs.keys if key.startswith(f"{EXECUTION}/")]
    used = await failed.store.real.objects_used_elsewhere(EXECUTION)
    assert used == [ObjectUseRow(execution_id=AGAIN, key=key, store="nats", owner=EXECUTION)]


async def test_a_rerun_that_waits_is_known_to_the_next_server(stage: Stage) -> None:
    admit = {"rules": [{"when": "{{ ctx.go is defined }}", "then": {"allow": True}}], "wait": {"timeout_s": 3000}}
    gate = {"step": "gate", "spec": {"policy": {"admit": admit}}, "tool": work("{{ first }}")}
    source = playbook("gate", [{"step": "first", "tool": work(1), "next": {"arcs": [{"step": "gate"}]}}, gate])
    _, host, _ = stage.start_server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", source)
    await is_waiting(stage, EXECUTION)
    await stage.ask(EXECUTION, CancelRequested("c"))
    await ask(stage, Rerun(EXECUTION, "gate"), digest=digest_of(source))
    await is_waiting(stage, AGAIN)
    host.kill()
    await stage.server()
    await stage.ask(AGAIN, CtxPatched("p", patch={"go": 1}))
    assert (result_of(await stage.ended(AGAIN)), times_run(stage, "first")) == (1, 1)


# --- the answer -------------------------------------------------------------------------------------------------------


REFUSED = {
    "an unknown original": (Rerun("nobody", "second"), {}, "unknown_execution", "execution nobody does not exist"),
    "another playbook": (Rerun(EXECUTION, "second"), {"digest": "OTHER"}, "version_mismatch", "ran the playbook"),
    "an unknown playbook": (
        Rerun(EXECUTION, "second"),
        {"digest": "none"},
        "invalid_playbook",
        "unknown playbook digest none",
    ),
    "an unknown step": (
        Rerun(EXECUTION, "third"),
        {},
        "unknown_step",
        "has no step third; it has first, second, never",
    ),
    "a step it never reached": (Rerun(EXECUTION, "never"), {}, "never_ran", "never reached step never"),
    "too large ctx": (Rerun(EXECUTION), {"ctx": {"k": "x" * 2_000_000}}, "too_large", "limits.max_ctx_bytes"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_rerun_that_cannot_be_is_refused_with_a_code_and_ends_as_failed(failed: Stage, name: str) -> None:
    wanted, changes, code, text = REFUSED[name]
    other = playbook("other", [{"step": "second", "tool": work(1)}])
    if changes.get("digest") == "OTHER":
        changes = {"digest": digest_of(other)}
        await failed.request("other", "request-2", other)
        await failed.ended("other")
    await ask(failed, wanted, **changes)
    row = await failed.ended(AGAIN)
    found = await answer(failed)
    assert row.status == "failed" and found is not None
    assert (found["ok"], found["code"], text in found["error"]) == (False, code, True), found
    assert error_of(row)["message"] == found["error"]


async def test_one_that_is_being_deleted_cannot_be_run_again(failed: Stage) -> None:
    del failed.tables.journals[EXECUTION][7]
    await ask(failed, Rerun(EXECUTION))
    await failed.ended(AGAIN)
    found = await answer(failed)
    assert found is not None and (found["code"], "is being deleted" in found["error"]) == ("unknown_execution", True)


async def test_one_whose_partition_has_yet_to_catch_up_with_events_is_not_refused(stage: Stage) -> None:
    """Postgres was restored, and another server takes over the original's partition later than the rerun's."""
    older = stage.store.real.dump()
    _, host, _ = stage.start_server()
    stage.start_worker()
    await begin(stage)
    await stage.pass_time(2)
    host.kill()
    stage.store.real.restore(older)
    late = partition_of(EXECUTION)
    await stage.store.real.take_over("stranger", 60.0, PARTITIONS)
    stage.expire(*(partition for partition in range(PARTITIONS) if partition != late))
    await stage.server()
    await ask(stage, Rerun(EXECUTION), {"fails": 0})
    await looks(stage)
    await stage.pass_time(30)
    assert await answer(stage) is None
    stage.expire(late)
    assert (await stage.ended(AGAIN)).status == "completed"
    assert (times_run(stage, "first"), times_run(stage, "second")) == (1, 1)


async def test_one_that_has_not_ended_cannot_be_run_again(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    long = playbook("long", [{"step": "long", "tool": work(1, 1000.0)}])
    await stage.request(EXECUTION, "request-1", long)
    await stage.until(lambda: stage.effects)
    await ask(stage, Rerun(EXECUTION, "long"), digest=digest_of(long))
    await stage.ended(AGAIN)
    found = await answer(stage)
    assert found is not None and (found["code"], "has not ended: its status is running" in found["error"]) == (
        "not_ended",
        True,
    )


# --- while it looks ---------------------------------------------------------------------------------------------------


@pytest.fixture
async def slow(stage: Stage) -> tuple[Stage, Slow, SimulatedHost]:
    """The same, with a server that takes its time to read journals from then on."""
    injector = Slow(stage)
    _, host, _ = stage.start_server(stage.host("server", injector))
    stage.start_worker()
    await begin(stage)
    injector.takes_s = 5.0
    return stage, injector, host


async def test_a_rerun_is_answered_once_its_original_is_read(slow: tuple[Stage, Slow, SimulatedHost]) -> None:
    stage, _, _ = slow
    for _ in range(2):
        await ask(stage, Rerun(EXECUTION), {"fails": 0})
    await looks(stage)
    assert await answer(stage) is None
    assert (await stage.ended(AGAIN)).status == "completed"
    assert await answer(stage) == {"ok": True, "execution_id": AGAIN}
    assert (await whole(stage, AGAIN)).count("execution.requested") == 1


async def test_other_executions_continue_while_a_rerun_reads_and_it_can_only_be_cancelled(
    slow: tuple[Stage, Slow, SimulatedHost],
) -> None:
    stage, injector, _ = slow
    injector.takes_s = 1e6
    await ask(stage, Rerun(EXECUTION), {"fails": 0})
    await looks(stage)
    quick = playbook("quick", [{"step": "only", "tool": work("quick")}])
    await stage.request("other", "request-2", quick)
    assert result_of(await stage.ended("other", 2)) == "quick"
    refused = await stage.ask(AGAIN, CtxPatched("p", patch={"k": 1}))
    assert isinstance(refused, str) and "has not started: it is still reading its original" in refused
    assert isinstance(await stage.ask(AGAIN, CancelRequested("c")), dict)
    assert (await stage.ended(AGAIN, 5)).status == "cancelled"
    assert await answer(stage) == {"ok": True, "execution_id": AGAIN}


async def test_the_successor_of_a_dead_server_reads_its_pending_original(
    slow: tuple[Stage, Slow, SimulatedHost],
) -> None:
    stage, injector, host = slow
    injector.takes_s = 1e9
    await ask(stage, Rerun(EXECUTION), {"fails": 0})
    await looks(stage)
    host.kill()
    await stage.server()
    assert (await stage.ended(AGAIN)).status == "completed"
    assert await answer(stage) == {"ok": True, "execution_id": AGAIN}
    assert (times_run(stage, "first"), times_run(stage, "second")) == (1, 1)


async def test_a_database_that_is_away_is_waited_for(slow: tuple[Stage, Slow, SimulatedHost]) -> None:
    stage, _, _ = slow
    await ask(stage, Rerun(EXECUTION), {"fails": 0})
    await looks(stage)
    stage.store.away = True
    await stage.pass_time(10)
    stage.store.away = False
    assert (await stage.ended(AGAIN)).status == "completed"


@pytest.mark.parametrize("error", [Fenced("another has it"), OutcomeUnknown("no answer")], ids=["fenced", "unknown"])
@pytest.mark.parametrize("committed", [False, True], ids=["not committed", "committed"])
async def test_a_reuse_is_folded_once_even_if_its_tick_fails(failed: Stage, error: NoetlError, committed: bool) -> None:
    wrong = once(error, lambda tick: "execution.reused" in names_in(tick))
    if committed:
        failed.store.after_commit = wrong
    else:
        failed.store.before_commit = wrong
    await ask(failed, Rerun(EXECUTION), {"fails": 0})
    assert (await failed.ended(AGAIN)).status == "completed"
    assert [type(fact) for fact in await failed.facts(AGAIN)].count(ExecutionReused) == 1
    assert (times_run(failed, "first"), times_run(failed, "second")) == (1, 1)


@pytest.mark.parametrize("point", ["store.commit", "store.commit.done"])
async def test_a_server_that_dies_as_it_takes_over_what_is_reused_is_replaced(stage: Stage, point: str) -> None:
    injector = Dies(point, 10**9)
    stage.start_server(stage.host("server", injector))
    stage.start_worker()
    await begin(stage)
    await ask(stage, Rerun(EXECUTION), {"fails": 0})
    injector.left = 2  # the tick of the request, then that of what is reused
    await stage.until(lambda: injector.left <= 0)
    await stage.server()
    assert (await stage.ended(AGAIN)).status == "completed"
    assert set(stage.effects.values()) == {1}
