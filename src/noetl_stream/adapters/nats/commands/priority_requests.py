"""Requests to the consumers of a pool with several priorities, so that its commands come in turn.

JetStream delivers by consumer, and a request cannot be withdrawn. A worker therefore requests from a priority only as
many commands as it knows are waiting: each delivery says how many are left. If none were, it looks again after a while
and takes the commands that are there. Only while none waits anywhere does it leave requests with all priorities.
Together these never exceed the worker's free slots, but for spare places: while the commands of one priority fill the
slots, an eighth as many of the others are taken too. So long tasks of some hold up neither more urgent commands nor
those of another namespace, which servers place at another priority (PROTOCOL §3 *Priorities*).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import Final

from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.protocol import Status, parse_pending
from noetl_stream.adapters.nats.pull import Pull
from noetl_stream.model.priorities import DEFAULT_PRIORITY, PriorityTurns
from noetl_stream.protocol.subjects import COMMANDS

LOOK_AGAIN_S: Final = 0.1
"""The time after which a priority without waiting commands is checked again, before a lower one is taken."""

LEFT_S: Final = 0.5
"""The time for which a request is left with a priority without waiting commands. It keeps slots from the others."""

LEFT_SHORT_S: Final = 0.1
"""The same for a worker with fewer free slots than priorities, which checks them in turn."""

SPARE_PART: Final = 8
"""The slots of a worker for each of its spare places."""

LOST_S: Final = 5.0
"""The silence after which a request counts as lost: a deleted consumer drops unread requests."""


class _Line:
    """One priority with one request at a time, since answers name none. A status arrives at ``<inbox>.<priority>``.

    Attributes:
        pull: The request.
        is_left: Whether the request was left there although no command waited.
        waiting: The commands there in addition to the requested ones; ``None`` if unknown.
        heard_s: The time at which the request was sent, or the priority was last heard of.
    """

    __slots__ = ("heard_s", "is_left", "pull", "waiting")

    def __init__(self, connection: NatsConnection, consumer: str, inbox: str, priority: int) -> None:
        self.pull = Pull(connection, COMMANDS, consumer, inbox, 0.0, word=str(priority))
        self.is_left = False
        self.waiting: float | None = None
        self.heard_s = -inf

    @property
    def credit(self) -> int:
        return self.pull.credit

    @property
    def most(self) -> float:
        """The most commands that may wait."""
        return inf if self.waiting is None else self.waiting

    @property
    def may_wait(self) -> bool:
        return self.waiting != 0 or (self.credit > 0 and not self.is_left)

    def take(self, count: int, now_s: float) -> None:
        """Requests some of the waiting commands."""
        self.is_left, self.heard_s = False, now_s
        if self.waiting is not None:
            self.waiting -= count
        self.pull.take(count)

    def leave(self, count: int, expires_s: float, now_s: float) -> None:
        """Leaves a request for commands that may arrive."""
        self.is_left, self.heard_s = True, now_s
        self.pull.expires_s = expires_s
        self.pull.request(count, self.pull.largest_bytes)

    def learn(self, waiting: float, now_s: float) -> None:
        self.waiting = waiting
        self.heard_s = now_s

    def forget(self) -> None:
        """Drops the credit: no answer is expected any more."""
        self.pull.credit = self.pull.credit_bytes = 0
        self.waiting = None


class PriorityRequests:
    """The requests of one worker for commands, over all priorities of its pool.

    Args:
        consumers: The consumers by priority.
        look_again_s: See :data:`LOOK_AGAIN_S`.
    """

    def __init__(
        self,
        connection: NatsConnection,
        consumers: Mapping[int, str],
        inbox: str,
        now_s: Callable[[], float],
        *,
        look_again_s: float = LOOK_AGAIN_S,
    ) -> None:
        self._connection = connection
        self._inbox = inbox
        self._now_s = now_s
        self._look_again_s = look_again_s
        self._turns = PriorityTurns()
        self._lines: dict[int, _Line] = {}
        self._by_consumer: dict[str, int] = {}
        self.add(consumers)

    def add(self, consumers: Mapping[int, str]) -> None:
        """Adds consumers to take commands from."""
        for priority in sorted(consumers.keys() - self._lines.keys(), reverse=True):
            consumer = consumers[priority]
            self._lines[priority] = _Line(self._connection, consumer, self._inbox, priority)
            self._by_consumer[consumer] = priority
        self._lines = dict(sorted(self._lines.items(), reverse=True))

    @property
    def priorities(self) -> Iterable[int]:
        return self._lines.keys()

    @property
    def credit(self) -> int:
        return sum(line.credit for line in self._lines.values())

    def look_again(self) -> None:
        """Makes the next requests check priorities where no command waited a while ago, or a request was lost."""
        now_s = self._now_s()
        for line in self._lines.values():
            if line.credit and line.heard_s <= now_s - LOST_S:
                line.forget()
            elif line.waiting == 0 and not line.credit and line.heard_s <= now_s - self._look_again_s:
                line.waiting = None

    def ask(self, count: int, held_bytes: int, most_bytes: int) -> bool:
        """Requests up to ``count`` commands, earlier requests included; returns whether the byte limit allows it."""
        free, room, now_s = count - self.credit, self._room(held_bytes, most_bytes), self._now_s()
        if free <= 0:
            return True
        waiting = {
            priority: line.most
            for priority, line in self._lines.items()
            if line.waiting != 0 and (line.is_left or not line.credit)
        }
        for priority, wanted in self._turns.plan_turns(free, waiting).items():
            line = self._lines[priority]
            free -= wanted
            if line.credit:
                continue  # the slots are kept until the request left there is used
            if not next(room):
                return False
            line.take(wanted, now_s)
        silent = [line for line in self._lines.values() if not line.credit]
        share = max(1, count // (2 * len(self._lines)))
        left_s = LEFT_S if count >= len(self._lines) else LEFT_SHORT_S
        for line in silent:
            if free <= 0:
                break
            if not next(room):
                return False
            line.leave(min(share, free), left_s, now_s)
            free -= share
        return True

    def ask_spare(self, places: int, fullest: int, held_bytes: int, most_bytes: int) -> None:
        """Requests up to ``places`` commands of all priorities but the one that fills the slots."""
        room, now_s = self._room(held_bytes, most_bytes), self._now_s()
        for priority, line in self._lines.items():
            if places <= 0 or priority == fullest or line.credit:
                continue
            if not next(room):
                return
            if line.waiting == 0:
                line.leave(1, LEFT_S, now_s)
                places -= 1
            else:
                wanted = int(min(places, line.most))
                line.take(wanted, now_s)
                places -= wanted

    def count_delivery(self, reply: bytes, size: int) -> int:
        """Counts a delivery; returns its priority."""
        consumer, pending = parse_pending(reply)
        priority = self._by_consumer.get(consumer)
        if priority is None:
            return DEFAULT_PRIORITY
        line = self._lines[priority]
        line.pull.count_message(size)
        self._turns.count_turn(priority, [one for one, other in self._lines.items() if other.may_wait])
        line.learn(max(0, pending - line.credit), self._now_s())
        return priority

    def ends_request(self, subject: bytes, status: Status) -> bool:
        """Returns whether this status only ends a request: it expired, or no message was left."""
        priority = subject.rpartition(b".")[2].decode()
        line = self._lines.get(int(priority)) if priority.isdecimal() else None
        if line is None:  # from a request left before the pool had several priorities
            return True
        if not line.pull.ends_request(status):
            return False
        if not line.credit:
            line.learn(0, self._now_s())
        if line.is_left:
            self.look_again()
        return True

    def _room(self, held_bytes: int, most_bytes: int) -> Iterator[bool]:
        """Yields, before each request, whether its bytes fit under the limit."""
        pulls = [line.pull for line in self._lines.values()]
        for pull in pulls:
            if not pull.credit:
                pull.credit_bytes = 0  # left over from requests whose end was missed
        largest = pulls[0].largest_bytes
        while True:
            requested = sum(pull.credit_bytes for pull in pulls)
            yield max(most_bytes, largest) - held_bytes - requested >= largest
