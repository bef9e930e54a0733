"""LOGS is shared: who writes very much loses their own oldest lines, and nobody else's (PROTOCOL §7)."""

from __future__ import annotations

import math

import pytest
from server_stage import ONE_STEP, Stage

from noetl_stream.adapters.memory.broker import MemoryTaskLogs
from noetl_stream.errors import Unreachable
from noetl_stream.protocol.subjects import LogOwner, named_in_logs, task_logs
from noetl_stream.server.ticks.namespace_shares import LEAST_LOG_BYTES, LOGS_PART
from noetl_stream.server.upkeep.log_shares import MAX_OWNERS, LogTrimmer, excesses
from noetl_stream.server.upkeep.upkeep import TRIM_LOGS_S, Upkeep
from noetl_stream.settings.grants import Grants
from noetl_testkit.conformance.task_logs import everything

MAX_BYTES = 1_000_000
LINE = b"x" * 1_000


def write(logs: MemoryTaskLogs, count: int, namespace: str, pool: str = "default", *, old: bool = False) -> None:
    named = "steprun-1" if old else named_in_logs(namespace)
    for _ in range(count):
        logs.publish(task_logs(pool, f"execution-of-{namespace}", named), "", LINE, lambda why: None)


async def kept(logs: MemoryTaskLogs, namespace: str) -> int:
    return len(await everything(logs, f"execution-of-{namespace}"))


@pytest.fixture
def logs(stage: Stage) -> MemoryTaskLogs:
    stage.broker.task_logs.max_bytes = MAX_BYTES
    return stage.broker.task_logs


async def test_a_namespace_that_floods_logs_loses_its_own_oldest_lines(logs: MemoryTaskLogs) -> None:
    trimmer = LogTrimmer(logs)
    write(logs, 10, "quiet")
    for _ in range(20):
        write(logs, 300, "loud")
        write(logs, 1, "quiet")
        await trimmer.trim()
    assert await kept(logs, "quiet") == 30
    assert 400 < await kept(logs, "loud") < 800
    assert await logs.read("execution-of-loud", 6_029)


async def test_logs_with_room_is_not_even_counted(logs: MemoryTaskLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(MemoryTaskLogs, "sizes")
    write(logs, 700, "loud")
    write(logs, 10, "quiet")
    await LogTrimmer(logs).trim()
    assert (await kept(logs, "loud"), await kept(logs, "quiet")) == (700, 10)


async def test_logs_without_a_bound_is_not_trimmed(logs: MemoryTaskLogs) -> None:
    logs.max_bytes = None
    write(logs, 2_000, "loud")
    write(logs, 1, "quiet")
    await LogTrimmer(logs).trim()
    assert await kept(logs, "loud") == 2_000


async def test_a_namespace_alone_has_all_of_logs(logs: MemoryTaskLogs) -> None:
    write(logs, 900, "loud")
    await LogTrimmer(logs).trim()
    assert await kept(logs, "loud") == 900


async def test_a_worker_that_makes_up_namespaces_takes_from_its_pool_alone(logs: MemoryTaskLogs) -> None:
    write(logs, 200, "quiet", "other")
    for number in range(700):
        write(logs, 1, f"made-up-{number}")
    write(logs, 100, "loud")
    await LogTrimmer(logs).trim()
    assert await kept(logs, "quiet") == 200
    assert await kept(logs, "loud") < 10


async def test_lines_of_an_older_worker_count_as_its_pools(logs: MemoryTaskLogs) -> None:
    write(logs, 100, "quiet", "other")
    write(logs, 700, "loud", old=True)
    await LogTrimmer(logs).trim()
    assert (await kept(logs, "quiet"), await kept(logs, "loud") < 450) == (100, True)


async def test_lines_of_very_many_namespaces_count_as_their_pools(logs: MemoryTaskLogs) -> None:
    logs.max_bytes = (MAX_OWNERS + 100) * len(LINE)
    write(logs, 10, "quiet", "other")
    for number in range(MAX_OWNERS + 10):
        write(logs, 1, f"made-up-{number}")
    await LogTrimmer(logs).trim()
    assert await kept(logs, "quiet") == 10
    assert sum([await kept(logs, f"made-up-{number}") for number in range(MAX_OWNERS)]) < MAX_OWNERS * 0.6


async def test_a_trim_that_fails_is_done_the_next_time(logs: MemoryTaskLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreachable(owner: LogOwner, through: int) -> None:
        raise Unreachable("no NATS")

    trimmer = LogTrimmer(logs)
    write(logs, 10, "quiet")
    write(logs, 800, "loud")
    with monkeypatch.context() as away:
        away.setattr(logs, "trim", unreachable)
        with pytest.raises(Unreachable):
            await trimmer.trim()
    await trimmer.trim()
    assert (await kept(logs, "quiet"), await kept(logs, "loud") < 500) == (10, True)


async def test_logs_deleted_by_other_means_no_longer_count(logs: MemoryTaskLogs) -> None:
    trimmer = LogTrimmer(logs)
    write(logs, 300, "first")
    write(logs, 460, "second")
    await trimmer.trim()
    await logs.delete("execution-of-second")
    write(logs, 260, "first")
    write(logs, 210, "second")
    await trimmer.trim()
    assert await kept(logs, "second") == 210


@pytest.mark.parametrize(
    ("sizes", "room", "expected"),
    [
        ({("a", "x"): 80}, 100, {}),
        ({("a", "x"): 10, ("a", "y"): 90}, 100, {}),
        ({("a", "x"): 10, ("a", "y"): 190}, 100, {("a", "y"): 100}),
        ({("a", "x"): 150, ("a", "y"): 90}, 100, {("a", "x"): 100, ("a", "y"): 40}),
        ({("a", "x"): 30, ("a", "y"): 90, ("b", "x"): 40}, 100, {("a", "y"): 60}),
        ({("a", "x"): 30, ("b", "x"): 90, ("b", "y"): 90}, 100, {("b", "x"): 55, ("b", "y"): 55}),
    ],
)
def test_each_pool_and_in_it_each_namespace_has_the_same_share(
    sizes: dict[tuple[str, str], int], room: int, expected: dict[tuple[str, str], int]
) -> None:
    found = excesses({LogOwner(*owner): size for owner, size in sizes.items()}, room)
    assert found == {LogOwner(*owner): size for owner, size in expected.items()}
    assert math.fsum(sizes.values()) - math.fsum(found.values()) <= room


async def test_a_server_trims_logs_every_few_seconds(stage: Stage, logs: MemoryTaskLogs) -> None:
    stage.upkeep = Upkeep(stage.clock, log_trimmer=LogTrimmer(logs))
    await stage.server()
    write(logs, 10, "quiet")
    write(logs, 900, "loud")
    await stage.pass_time(2 * TRIM_LOGS_S)
    assert (await kept(logs, "quiet"), await kept(logs, "loud") < 500) == (10, True)


class Chosen:
    """Grants that name a namespace."""

    is_chosen = True

    def current(self) -> Grants:
        return Grants((), ("simulation/one",), "everything")

    async def refresh(self) -> None:
        """They never change."""


@pytest.mark.parametrize(
    ("max_bytes", "expected"), [(None, 0), (MAX_BYTES, LEAST_LOG_BYTES), (1 << 30, (1 << 30) // LOGS_PART)]
)
async def test_a_command_says_its_namespace_and_what_that_may_write_in_a_minute(
    stage: Stage, max_bytes: int | None, expected: int
) -> None:
    stage.grants, stage.broker.task_logs.max_bytes = Chosen(), max_bytes
    await stage.server()
    await stage.pass_time(1)
    await stage.submit(ONE_STEP)
    command, _ = await (await stage.manual_worker()).take()
    assert (command.share.namespace, command.share.log_bytes) == ("simulation/one", expected)
