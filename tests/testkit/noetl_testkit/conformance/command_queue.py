"""Conformance of :class:`~noetl_stream.ports.streams.command_queue.CommandQueue`, as tests to inherit.

A test class inherits :class:`CommandQueueConformance`; the module or its ``conftest.py`` provides two fixtures:

``queue``
    An empty, verified queue.
``source``
    An open source of its pool ``default``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from msgspec.structs import replace

from noetl_stream.errors import UsageError
from noetl_stream.model.ids import PARTITIONS, partition_of
from noetl_stream.model.priorities import DEFAULT_PRIORITY, PASSED_OVER
from noetl_stream.ports.streams.command_queue import CommandQueue, CommandSource, Delivery, QueuedCommand, QueuedPool
from noetl_stream.protocol.subjects import command_subject
from noetl_testkit.waiting import TIMEOUT_S, expect_error, until_it_is


def command(
    command_id: str,
    *,
    issue: int = 1,
    pool: str = "default",
    body: bytes = b"{}",
    priority: int = DEFAULT_PRIORITY,
) -> QueuedCommand:
    return QueuedCommand(pool, "run-1", command_id, issue, body, priority)


def waiting(priority: int, count: int, first: int = 0) -> list[QueuedCommand]:
    """This many commands with a priority, each naming it and its number."""
    numbers = range(first, first + count)
    return [command(f"p{priority}-{n}", body=b"%d.%d" % (priority, n), priority=priority) for n in numbers]


async def issue(queue: CommandQueue, *commands: QueuedCommand) -> None:
    await asyncio.wait_for(queue.issue(commands, {}), TIMEOUT_S)


async def issue_and_see(queue: CommandQueue, *commands: QueuedCommand) -> None:
    """Issues commands, and returns once consumers count them: JetStream acknowledges a message before its consumers
    hear of it, and one that is asked meanwhile has nothing.
    """

    async def queued() -> int:
        return sum(pool.queued for pool in await queue.pools())

    expected = await queued() + len(commands)
    await issue(queue, *commands)
    await until_it_is(expected, queued)


async def take(source: CommandSource, count: int) -> list[Delivery]:
    """Requests and returns the next ``count`` deliveries."""
    source.request(count)
    async with asyncio.timeout(TIMEOUT_S):
        return [await source.next() for _ in range(count)]


async def expect_present(queue: CommandQueue, expected: Collection[str]) -> None:
    """Returns once the queue holds exactly these commands."""

    async def present() -> set[str]:
        return set(await queue.present())

    await until_it_is(set(expected), present)


async def expect_one(queue: CommandQueue, source: CommandSource) -> None:
    """Takes and acknowledges a command, which must be the only one."""
    (delivery,) = await take(source, 1)
    delivery.ack()
    await expect_present(queue, set())


async def source_of(queue: CommandQueue, pool: str) -> CommandSource:
    """A source of a pool that a server has made."""
    await queue.add_pool(pool)
    return await queue.open_source(pool)


class CommandQueueConformance:
    async def test_a_command_is_delivered_as_it_was_issued(self, queue: CommandQueue, source: CommandSource) -> None:
        await issue(queue, command("c1", body=b'{"step":"fetch"}'))
        (delivery,) = await take(source, 1)
        assert delivery.body == b'{"step":"fetch"}'
        assert delivery.subject == command_subject("default", "run-1", "c1")
        assert delivery.num_delivered == 1
        assert delivery.stored_ms > 0

    async def test_commands_are_delivered_in_the_order_of_issue(self, queue: CommandQueue) -> None:
        await issue(queue, *(command(f"c{n}", body=b"%d" % n) for n in range(20)))
        source = await source_of(queue, "default")
        assert [delivery.body for delivery in await take(source, 20)] == [b"%d" % n for n in range(20)]
        await source.close()

    async def test_the_highest_priority_comes_first_and_each_in_order(self, queue: CommandQueue) -> None:
        await queue.add_pool("default")
        await issue_and_see(queue, *waiting(2, 3), *waiting(8, 3), *waiting(5, 3))
        source = await source_of(queue, "default")
        came = [(await take(source, 1))[0].body.decode() for _ in range(9)]
        assert came == [f"{priority}.{n}" for priority in (8, 5, 2) for n in range(3)]
        await source.close()

    async def test_one_of_a_higher_priority_overtakes_a_hundred(self, queue: CommandQueue) -> None:
        first, second = waiting(8, 2)
        await issue_and_see(queue, *waiting(2, 100), first)
        source = await source_of(queue, "default")
        assert [(await take(source, 1))[0].body for _ in range(2)] == [b"8.0", b"2.0"]
        await issue_and_see(queue, second)
        assert [(await take(source, 1))[0].body for _ in range(2)] == [b"8.1", b"2.1"]
        await source.close()

    async def test_the_lowest_priorities_still_move_under_endless_high_ones(self, queue: CommandQueue) -> None:
        await issue_and_see(queue, *waiting(9, 60), *waiting(1, 5), *waiting(0, 5))
        source = await source_of(queue, "default")
        came = [int((await take(source, 1))[0].body.split(b".")[0]) for _ in range(60)]
        assert came == [9] + ([9] * (PASSED_OVER - 1) + [1, 0]) * 5 + [9] * 9
        await source.close()

    async def test_sources_with_many_slots_take_from_all_priorities(self, queue: CommandQueue) -> None:
        one, other = await source_of(queue, "default"), await source_of(queue, "default")
        one.request(60)
        other.request(60)
        await issue(queue, *(command for priority in (9, 5, 3, 0) for command in waiting(priority, 30)))
        async with asyncio.timeout(TIMEOUT_S):
            deliveries = [await source.next() for source in (one, other) for _ in range(60)]
        expected = [f"{priority}.{n}" for priority in (9, 5, 3, 0) for n in range(30)]
        assert sorted(delivery.body.decode() for delivery in deliveries) == sorted(expected)
        assert {delivery.num_delivered for delivery in deliveries} == {1}
        await one.close()
        await other.close()

    async def test_commands_of_other_priorities_are_present_and_can_be_withdrawn(self, queue: CommandQueue) -> None:
        commands = [*waiting(9, 2), *waiting(1, 2)]
        await issue(queue, *commands)
        await queue.withdraw([("run-1", "p9-0"), ("run-1", "p1-1")])
        assert set(await queue.present()) == {"p9-1", "p1-0"}

    async def test_pools_say_how_many_wait_at_each_priority(self, queue: CommandQueue) -> None:
        await issue_and_see(queue, *waiting(2, 3), *waiting(8, 2))
        assert await queue.pools() == [QueuedPool("default", 5, 0, 0, {8: 2, 2: 3})]
        source = await source_of(queue, "default")
        (first,) = await take(source, 1)
        await until_it_is([QueuedPool("default", 4, 1, 0, {8: 1, 2: 3})], queue.pools)
        oldest = await queue.oldest_queued_ms(["default"])
        first.ack()
        (_eighth, second) = await take(source, 2)
        assert oldest == {"default": second.stored_ms}
        await source.close()

    async def test_no_more_is_delivered_than_was_asked_for(self, queue: CommandQueue, source: CommandSource) -> None:
        await issue(queue, *(command(f"c{n}") for n in range(3)))
        await take(source, 2)
        third = asyncio.create_task(source.next())
        await queue.present()
        assert not third.done()
        source.request(1)
        await asyncio.wait_for(third, TIMEOUT_S)

    async def test_an_acknowledged_command_leaves_the_queue(self, queue: CommandQueue, source: CommandSource) -> None:
        await issue(queue, command("c1"), command("c2"))
        first, _second = await take(source, 2)
        assert set(await queue.present()) == {"c1", "c2"}
        first.ack()
        await expect_present(queue, {"c2"})

    async def test_a_command_returned_is_delivered_again(self, queue: CommandQueue, source: CommandSource) -> None:
        await issue(queue, command("c1"))
        (delivery,) = await take(source, 1)
        delivery.nak()
        (again,) = await take(source, 1)
        assert (again.num_delivered, again.stored_ms, again.body) == (2, delivery.stored_ms, delivery.body)

    async def test_a_lease_can_be_renewed(self, queue: CommandQueue, source: CommandSource) -> None:
        await issue(queue, command("c1"))
        (delivery,) = await take(source, 1)
        delivery.in_progress()
        await asyncio.to_thread(delivery.in_progress)
        delivery.ack()
        await expect_present(queue, set())

    async def test_the_lease_of_a_command_that_was_returned_cannot_be_renewed(
        self, queue: CommandQueue, source: CommandSource
    ) -> None:
        await issue(queue, command("c1"))
        (delivery,) = await take(source, 1)
        delivery.nak()
        delivery.in_progress()
        await asyncio.to_thread(delivery.in_progress)
        (again,) = await take(source, 1)
        assert again.num_delivered == 2
        again.ack()
        await expect_present(queue, set())

    async def test_a_pool_gets_only_its_own(self, queue: CommandQueue) -> None:
        await issue(queue, command("c1", pool="small"), command("c2", pool="big", body=b"big"))
        source = await source_of(queue, "big")
        (delivery,) = await take(source, 1)
        assert delivery.body == b"big"
        assert set(await queue.present()) == {"c1", "c2"}
        await source.close()

    async def test_sources_of_a_pool_share_its_commands(self, queue: CommandQueue) -> None:
        one, other = await source_of(queue, "default"), await source_of(queue, "default")
        one.request(5)
        other.request(5)
        await issue(queue, *(command(f"c{n}", body=b"%d" % n) for n in range(10)))
        async with asyncio.timeout(TIMEOUT_S):
            deliveries = [await source.next() for source in (one, other) for _ in range(5)]
        assert sorted(int(delivery.body) for delivery in deliveries) == list(range(10))
        assert {delivery.num_delivered for delivery in deliveries} == {1}
        await one.close()
        await other.close()

    async def test_a_paused_source_gets_nothing_until_it_asks_again(self, queue: CommandQueue) -> None:
        paused, other = await source_of(queue, "default"), await source_of(queue, "default")
        await issue(queue, command("c0"))
        (held,) = await take(paused, 1)
        paused.request(20)
        await paused.pause()
        await issue(queue, *(command(f"c{n}") for n in range(1, 5)))
        for delivery in await take(other, 4):
            delivery.ack()
        held.in_progress()
        held.ack()
        await expect_present(queue, set())
        await issue(queue, command("c5"))
        await expect_one(queue, paused)
        await paused.close()
        await other.close()

    async def test_a_source_that_closes_returns_what_it_has_not_given_out(self, queue: CommandQueue) -> None:
        """Others get it at once, not when its lease expires, even what was under way."""
        closing, other = await source_of(queue, "default"), await source_of(queue, "default")
        closing.request(20)
        await issue(queue, *(command(f"c{n}") for n in range(20)))
        await closing.close()
        assert {delivery.num_delivered for delivery in await take(other, 20)} <= {1, 2}
        await other.close()

    async def test_a_command_issued_twice_is_queued_once(self, queue: CommandQueue, source: CommandSource) -> None:
        await issue(queue, command("c1"), command("c1"))
        await issue(queue, command("c1"))
        await expect_one(queue, source)

    async def test_a_queued_copy_satisfies_a_later_issue(self, queue: CommandQueue, source: CommandSource) -> None:
        await issue(queue, command("c1", body=b"first"))
        await issue(queue, command("c1", issue=2, body=b"second"))
        (delivery,) = await take(source, 1)
        assert delivery.body == b"first"

    async def test_a_later_issue_of_a_command_that_is_gone_is_delivered(
        self, queue: CommandQueue, source: CommandSource
    ) -> None:
        await issue(queue, command("c1"))
        await expect_one(queue, source)
        await issue(queue, command("c1", issue=2, body=b"second"))
        (again,) = await take(source, 1)
        assert (again.body, again.num_delivered) == (b"second", 1)

    async def test_a_repeated_later_issue_is_queued_although_its_id_was_seen(
        self, queue: CommandQueue, source: CommandSource
    ) -> None:
        for _ in range(3):
            await issue(queue, command("c1", issue=2))
            assert set(await queue.present()) == {"c1"}
            await expect_one(queue, source)

    async def test_a_repeated_first_issue_is_not_queued_again(self, queue: CommandQueue, source: CommandSource) -> None:
        await issue(queue, command("c1"))
        await expect_one(queue, source)
        await issue(queue, command("c1"))
        assert await queue.present() == {}

    async def test_withdrawn_commands_are_gone(self, queue: CommandQueue) -> None:
        commands = [command(f"c{n}") for n in range(5)]
        await issue(queue, *commands)
        await queue.withdraw([(one.execution_id, one.command_id) for one in commands[1:4]])
        assert set(await queue.present()) == {"c0", "c4"}
        await queue.withdraw([(commands[0].execution_id, "never-issued")])
        assert set(await queue.present()) == {"c0", "c4"}

    async def test_present_lists_all_pools_leased_commands_included(self, queue: CommandQueue) -> None:
        await issue(queue, command("c1", pool="small"), command("c2", pool="big"), command("c3", pool="big"))
        source = await source_of(queue, "big")
        await take(source, 1)
        assert set(await queue.present()) == {"c1", "c2", "c3"}
        await source.close()

    async def test_pools_are_listed_with_their_queued_commands(self, queue: CommandQueue) -> None:
        assert await queue.pools() == []
        await issue(queue, *(command(f"c{n}", pool="big") for n in range(5)), command("c9", pool="small"))
        await until_it_is([QueuedPool("big", 5, 0, 0, {5: 5}), QueuedPool("small", 1, 0, 0, {5: 1})], queue.pools)
        source = await source_of(queue, "big")
        first, second, _third = await take(source, 3)
        await until_it_is([QueuedPool("big", 2, 3, 0, {5: 2}), QueuedPool("small", 1, 0, 0, {5: 1})], queue.pools)
        first.ack()
        second.nak()
        await take(source, 3)
        await until_it_is([QueuedPool("big", 0, 4, 1), QueuedPool("small", 1, 0, 0, {5: 1})], queue.pools)
        await source.close()

    async def test_a_pool_without_a_worker_is_listed_beside_one_whose_leased_commands_were_withdrawn(
        self, queue: CommandQueue
    ) -> None:
        source = await source_of(queue, "big")
        await issue(queue, command("c1", pool="big"), command("c2", pool="big"))
        await take(source, 2)
        await source.close()
        await queue.withdraw([("run-1", "c1"), ("run-1", "c2")])
        await issue(queue, command("c9", pool="small"))
        assert set(await queue.present()) == {"c9"}

        async def queued() -> dict[str, int]:
            return {pool.pool: pool.queued for pool in await queue.pools()}

        await until_it_is({"big": 0, "small": 1}, queued, timeout_s=20)  # the lease is 30 s

    async def test_what_waits_longest_in_a_pool_is_the_oldest_that_no_worker_was_given(
        self, queue: CommandQueue
    ) -> None:
        both = ("big", "small")
        assert await queue.oldest_queued_ms(both) == {}
        await issue(queue, *(command(f"c{n}", pool="big") for n in range(3)), command("c9", pool="small"))
        before = await queue.oldest_queued_ms(both)
        assert set(before) == set(both)
        source = await source_of(queue, "big")
        first, second = await take(source, 2)
        assert before["big"] == first.stored_ms
        last = (await queue.oldest_queued_ms(["big"]))["big"]
        assert second.stored_ms <= last
        first.ack()
        (third,) = await take(source, 1)
        assert last == third.stored_ms
        assert await queue.oldest_queued_ms(both) == {"small": before["small"]}
        await source.close()

    async def test_a_pool_without_commands_is_still_listed(self, queue: CommandQueue, source: CommandSource) -> None:
        assert await queue.pools() == [QueuedPool("default", 0, 0, 0)]
        await issue(queue, command("c1"))
        (delivery,) = await take(source, 1)
        delivery.ack()
        await until_it_is([QueuedPool("default", 0, 0, 0)], queue.pools)

    async def test_commands_stored_before_the_source_connected_are_recognizable(self, queue: CommandQueue) -> None:
        await issue(queue, command("before"))
        source = await source_of(queue, "default")
        (before,) = await take(source, 1)
        assert before.stored_ms < source.connected_ms
        for number in range(100_000):
            await issue(queue, command(f"after-{number}"))
            (after,) = await take(source, 1)
            if after.stored_ms >= source.connected_ms:
                break
        else:
            raise AssertionError("no command was younger than the connection")
        await source.close()

    async def test_commands_are_taken_under_the_fence_of_their_partition_alone(self, queue: CommandQueue) -> None:
        partition = partition_of("run-1")
        (first,) = (await queue.fence("one", {partition: 1})).values()
        (second,) = (await queue.fence("other", {partition: 2})).values()
        assert await queue.issue([command("c1")], {partition: first}) == {partition}
        assert await queue.issue([command("c1")], {}) == {partition}
        assert await queue.issue([command("c2", issue=2)], {partition: first}) == {partition}
        assert await queue.present() == {}
        assert await queue.issue([command("c1"), command("c2")], {partition: second}) == set()
        assert set(await queue.present()) == {"c1", "c2"}

    async def test_only_a_later_epoch_replaces_a_fence(self, queue: CommandQueue) -> None:
        fences = await queue.fence("one", dict.fromkeys(range(PARTITIONS), 5))
        assert fences.keys() == set(range(PARTITIONS))
        assert await queue.fence("other", {0: 5, 1: 4, 2: 6}) == {2: max(fences.values()) + 1}
        assert await queue.fence("one", {0: 5, 1: 5, 2: 5}) == {0: fences[0], 1: fences[1]}

    async def test_a_repeated_fence_is_the_same(self, queue: CommandQueue) -> None:
        fences = await queue.fence("one", {0: 1, 1: 1})
        assert await queue.fence("one", {0: 1, 1: 1}) == fences

    async def test_a_fence_is_no_command(self, queue: CommandQueue, source: CommandSource) -> None:
        fences = await queue.fence("one", dict.fromkeys(range(PARTITIONS), 1))
        await queue.issue([command("c1", pool="small")], fences)
        assert set(await queue.present()) == {"c1"}
        await until_it_is([QueuedPool("default", 0, 0, 0), QueuedPool("small", 1, 0, 0, {5: 1})], queue.pools)

    async def test_an_id_that_is_not_valid_in_a_subject_is_refused(self, queue: CommandQueue) -> None:
        for bad in (command("a b"), command("c1", pool="x.y"), replace(command("c1"), execution_id="*")):
            await expect_error(UsageError, issue(queue, bad))
        assert await queue.present() == {}
