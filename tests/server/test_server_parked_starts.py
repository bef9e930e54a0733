"""A start whose playbook the server does not have is parked, and loaded beside the loop (PROTOCOL §2)."""

from __future__ import annotations

import pytest
from server_stage import ONE_STEP, Stage
from waiting_stage import EXECUTION, error_of, result_of, signal, whole

from noetl_stream.errors import Unreachable
from noetl_stream.model.events import CancelRequested
from noetl_stream.model.ids import digest_of
from noetl_stream.operations.executions.follow import Follower
from noetl_stream.operations.executions.submit import Client, RequestRefused
from noetl_testkit.following import Submission, submit
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.work import playbook, work

LATE = playbook("late", [{"step": "only", "tool": work("at last")}]).replace(
    '"path"', '"labels": {"team": "data"}, "path"', 1
)
BROKEN = playbook("broken", [{"step": "only", "tol": {}}])


class SlowObjects(FaultInjector):
    """Objects take their time on this host; after it they may not be reached."""

    def __init__(self, stage: Stage, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.is_reached = True
        self.host = stage.host("server", self)
        self._stage = stage

    async def inject(self, host: SimulatedHost, point: str) -> None:
        if point == "blobs.get":
            await self._stage.clock.sleep(self.takes_s)
            if not self.is_reached:
                raise Unreachable("the object store is away")


async def slow_server(stage: Stage, takes_s: float = 30.0) -> SlowObjects:
    """A server that knows one playbook; others take so long."""
    slow = SlowObjects(stage)
    stage.start_server(slow.host)
    stage.start_worker()
    await stage.request("known", "of-known", ONE_STEP)
    await stage.ended("known")
    slow.takes_s = takes_s
    return slow


async def parks(stage: Stage, source: str, *, known: bool = True) -> None:
    await stage.request(EXECUTION, "start", source, known=known)
    rows = stage.tables.executions
    await stage.until(lambda: EXECUTION in rows and rows[EXECUTION].looks_into == digest_of(source))


async def test_a_start_begins_once_its_playbook_is_loaded_and_others_do_not_notice(stage: Stage) -> None:
    await slow_server(stage)
    await parks(stage, LATE)
    for number in range(3):
        await stage.request(f"other-{number}", f"of-{number}", ONE_STEP)
        assert (await stage.ended(f"other-{number}", 2)).status == "completed"
    assert stage.tables.executions[EXECUTION].status == "pending"
    assert result_of(await stage.ended(EXECUTION)) == "at last"
    names = await whole(stage, EXECUTION)
    assert names[:4] == ["execution.requested", "reference.awaited", "reference.resolved", "execution.evaluated"]
    assert stage.tables.playbooks[digest_of(LATE)].path == "simulation/late"
    assert stage.tables.executions[EXECUTION].labels == b'{"team":"data"}'


async def test_several_parked_starts_delay_each_other_no_longer_than_the_first(stage: Stage) -> None:
    await slow_server(stage)
    for number in range(20):
        source = LATE.replace("at last", f"at last {number}")
        await stage.request(f"late-{number}", f"of-late-{number}", source)
    await stage.request("other", "of-other", ONE_STEP)
    assert (await stage.ended("other", 1)).status == "completed"
    assert result_of(await stage.ended("late-19")) == "at last 19"


async def test_a_start_waits_while_the_objects_are_unreachable(stage: Stage) -> None:
    slow = await slow_server(stage, takes_s=1.0)
    slow.is_reached = False
    await parks(stage, LATE)
    await stage.pass_time(60)
    assert stage.tables.executions[EXECUTION].status == "pending"
    slow.is_reached = True
    assert result_of(await stage.ended(EXECUTION)) == "at last"


@pytest.mark.parametrize(("source", "known"), [(BROKEN, True), (LATE, False)])
async def test_a_parked_start_that_cannot_run_is_refused_as_any_other(stage: Stage, source: str, known: bool) -> None:
    await slow_server(stage)
    await parks(stage, source, known=known)
    row = await stage.ended(EXECUTION)
    assert (row.status, error_of(row)["kind"]) == ("failed", "invalid_playbook")
    (request,) = [one for one in stage.tables.requests.values() if one.execution_id == EXECUTION]
    assert b'"ok":false' in request.answer


async def test_its_client_hears_of_the_refusal_and_not_before(stage: Stage) -> None:
    await slow_server(stage)
    client = Client(stage.requests, stage.blobs, stage.broker.bus)
    submission = Submission.new(BROKEN, "tests/server", {}, stage.clock)
    follower = await Follower(stage.broker.bus, submission.execution_id).open()
    with pytest.raises(RequestRefused, match="line"):
        await submit(client, submission, follower)
    await follower.close()


async def test_a_parked_start_can_only_be_cancelled_meanwhile(stage: Stage) -> None:
    await slow_server(stage)
    await parks(stage, LATE)
    assert "still reading its playbook" in str(await stage.ask(EXECUTION, signal()))
    assert isinstance(await stage.ask(EXECUTION, CancelRequested("stop")), dict)
    assert (await stage.ended(EXECUTION)).status == "cancelled"
    await stage.pass_time(60)
    assert (await whole(stage, EXECUTION))[-1] == "playbook.processed"


async def test_a_successor_of_a_dead_server_loads_a_parked_start_beside_its_loop(stage: Stage) -> None:
    dying = await slow_server(stage, takes_s=1e9)
    await parks(stage, LATE)
    dying.host.kill()
    last = SlowObjects(stage, takes_s=30.0)
    stage.start_server(last.host)
    await stage.request("other", "of-other", ONE_STEP)
    await stage.ended("other", 20)
    assert stage.tables.executions[EXECUTION].status == "pending"
    assert result_of(await stage.ended(EXECUTION)) == "at last"
