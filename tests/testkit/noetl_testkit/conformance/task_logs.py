"""Conformance of :class:`~noetl_stream.ports.streams.task_logs.TaskLogs`, as tests to inherit.

A test class inherits :class:`TaskLogsConformance`; the module or its ``conftest.py`` provides one fixture:

``task_logs``
    Empty logs.
"""

from __future__ import annotations

import asyncio

import pytest

from noetl_stream.ports.streams.task_logs import MAX_LOG_MESSAGE_BYTES, BatchSize, TaskLogs
from noetl_stream.protocol.subjects import LogOwner, named_in_logs, task_logs


async def stored(logs: TaskLogs, subject: str, message_id: str, body: bytes) -> str:
    """Publishes a batch; returns why it is not stored, or nothing."""
    done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    logs.publish(subject, message_id, body, done.set_result)
    return await done


async def everything(logs: TaskLogs, execution_id: str) -> list[bytes]:
    found: list[bytes] = []
    first = 0
    while batches := await logs.read(execution_id, first):
        found += [batch.body for batch in batches]
        first = batches[-1].sequence + 1
    return found


class TaskLogsConformance:
    async def test_batches_of_an_execution_are_read_in_order_with_their_pool(self, task_logs: TaskLogs) -> None:
        for number, (pool, execution_id) in enumerate([("a", "e1"), ("b", "e2"), ("b", "e1")]):
            assert await stored(task_logs, subject_of(pool, execution_id), f"w.{number}", b"%d" % number) == ""
        first, second = await task_logs.read("e1", 0)
        assert [(first.pool, first.body), (second.pool, second.body)] == [("a", b"0"), ("b", b"2")]
        assert await task_logs.read("e1", first.sequence + 1) == [second]
        assert await task_logs.read("e1", second.sequence + 1) == []
        assert await task_logs.read("nobody", 0) == []

    async def test_more_than_one_read_takes_are_read_one_after_the_other(self, task_logs: TaskLogs) -> None:
        bodies = [b"%d" % number + b"x" * 40_000 for number in range(80)]
        for number, body in enumerate(bodies):
            assert await stored(task_logs, subject_of("a", "e1"), f"w.{number}", body) == ""
        assert await everything(task_logs, "e1") == bodies

    async def test_the_batches_of_one_execution_are_deleted(self, task_logs: TaskLogs) -> None:
        for execution_id in ("e1", "e2"):
            assert await stored(task_logs, subject_of("a", execution_id), execution_id, b"{}") == ""
        await task_logs.delete("e1")
        assert (await everything(task_logs, "e1"), await everything(task_logs, "e2")) == ([], [b"{}"])

    async def test_a_batch_that_is_too_large_is_refused_with_a_reason(self, task_logs: TaskLogs) -> None:
        why = await stored(task_logs, subject_of("a", "e1"), "w.1", b"x" * (MAX_LOG_MESSAGE_BYTES + 1))
        assert "size" in why
        assert await everything(task_logs, "e1") == []

    async def test_sizes_say_whose_the_batches_are(self, task_logs: TaskLogs) -> None:
        assert await task_logs.sizes(0) == []
        published = [subject_of("a", "e1"), subject_of("a", "e2", ONE), subject_of("b", "e3", ONE)]
        for number, subject in enumerate(published):
            assert await stored(task_logs, subject, f"w.{number}", b"x" * 1_000 * (number + 1)) == ""
        sizes = await task_logs.sizes(0)
        assert [one.owner for one in sizes] == [LogOwner("a", ""), LogOwner("a", ONE), LogOwner("b", ONE)]
        assert [one.bytes // 1_000 for one in sizes] == [1, 2, 3]
        assert await task_logs.sizes(sizes[1].sequence + 1) == sizes[2:]
        extent = await task_logs.extent()
        assert extent.first == sizes[0].sequence
        assert extent.bytes == pytest.approx(sum(one.bytes for one in sizes), rel=0.1)

    async def test_more_sizes_than_one_answer_has_are_read_one_after_the_other(self, task_logs: TaskLogs) -> None:
        for number in range(150):
            assert await stored(task_logs, subject_of("a", "e1"), f"w.{number}", b"x") == ""
        found: list[BatchSize] = []
        while sizes := await task_logs.sizes(found[-1].sequence + 1 if found else 0):
            found += sizes
        assert len(found) == 150

    async def test_the_oldest_batches_of_a_namespace_in_a_pool_are_deleted(self, task_logs: TaskLogs) -> None:
        subjects = [subject_of(pool, "e1", named) for pool in "ab" for named in (ONE, TWO)] * 2
        for number, subject in enumerate(subjects):
            assert await stored(task_logs, subject, f"w.{number}", b"%d" % number) == ""
        sizes = await task_logs.sizes(0)
        await task_logs.trim(LogOwner("a", ONE), sizes[3].sequence)
        assert await everything(task_logs, "e1") == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]
        await task_logs.trim(LogOwner("b", ""), sizes[6].sequence)
        assert await everything(task_logs, "e1") == [b"1", b"4", b"5", b"7"]


ONE, TWO = named_in_logs("team_a"), named_in_logs("team/b")


def subject_of(pool: str, execution_id: str, named: str = "run-1") -> str:
    return task_logs(pool, execution_id, named)
