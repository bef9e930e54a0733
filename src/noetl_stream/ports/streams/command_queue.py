"""COMMANDS: the work queue between server and workers (DESIGN §1, PROTOCOL §2, §3)."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from noetl_stream.model.priorities import DEFAULT_PRIORITY


class QueuedCommand(msgspec.Struct, frozen=True, gc=False):
    """A command to store. Its Msg-Id is ``command_id.issue``; its subject is unique by ``command_id``."""

    pool: str
    execution_id: str
    command_id: str
    issue: int
    body: bytes
    priority: int = DEFAULT_PRIORITY


UNREADABLE_MENDED: Final = (
    "stop NATS, move streams/COMMANDS/obs/<consumer> of its store away, and start it: the consumer is made again, and "
    "nothing is lost with it"
)
"""Advice for a pool whose consumer the store cannot read."""


class QueuedPool(msgspec.Struct, frozen=True):
    """The commands of a pool: ``queued`` wait for a worker, ``given`` are leased to one, dead or alive. ``again``
    counts the given ones that were delivered before. ``by_priority`` are the queued ones, highest priority first,
    without priorities at which none waits. ``unreadable`` is the store's reason why its commands cannot be given out.
    """

    pool: str
    queued: int
    given: int
    again: int
    by_priority: Mapping[int, int] = {}
    unreadable: str = ""


class Delivery(Protocol):
    """A leased copy of a command. ``num_delivered`` starts at 1; ``stored_ms`` is the queue's stored time."""

    body: bytes
    num_delivered: int
    stored_ms: int

    @property
    def subject(self) -> str:
        """The subject of the stored command; it names the execution and the command."""

    def ack(self) -> None:
        """Completes the command. Sent at once, unconfirmed: a lost ack costs a claim."""

    def nak(self, delay_s: float = 0.0) -> None:
        """Returns the command; it is delivered again."""

    def in_progress(self) -> None:
        """Renews the lease; does nothing once the command was completed or returned. Safe in another thread."""


class CommandSource(Protocol):
    """Deliveries of one pool. Each source takes from its priorities by its own
    :class:`~noetl_stream.model.priorities.PriorityTurns`; within one, first come, first served.

    Attributes:
        connected_ms: The time at which this source's connection began, by the server's clock.
        max_held_bytes: The upper bound of :attr:`held_bytes`.
    """

    connected_ms: int
    max_held_bytes: int

    def request(self, count: int) -> None:
        """Adds credit for ``count`` more deliveries."""

    async def next(self) -> Delivery:
        """The next delivery; waits without limit, across reconnects."""

    @property
    def held_bytes(self) -> int:
        """The size of the deliveries that are neither acknowledged nor returned."""

    async def pause(self) -> None:
        """Withdraws its requests, and ends when no further deliveries can arrive on them. Deliveries up to then are
        taken by :meth:`next`; the next request resumes.
        """

    async def finish(self) -> None:
        """Requests nothing more, and ends when no further deliveries can arrive on earlier requests. Deliveries up to
        then are taken by :meth:`next`, and can be renewed and answered afterwards.
        """

    async def close(self) -> None:
        """Ends at once, and returns the deliveries that :meth:`next` has not taken."""


class CommandQueue(Protocol):
    def issue(self, commands: Sequence[QueuedCommand], fences: Mapping[int, int]) -> Awaitable[Collection[int]]:
        """Sends now, in order; the awaitable ends when each is acknowledged or refused, resending until then.

        Args:
            fences: The fence of each partition, as returned by :meth:`fence`; without one the partition must have none.

        Returns:
            The partitions with another fence, whose commands the queue has refused.
        """

    async def fence(self, owner: str, epochs: Mapping[int, int]) -> dict[int, int]:
        """Makes the queue accept commands of these partitions only under new fences. Repeating it changes nothing.

        Args:
            epochs: The epoch of each partition.

        Returns:
            The fence of each partition, without those that another owner has fenced in the same or a later epoch.
        """

    async def add_pool(self, pool: str) -> None:
        """Creates the queue of a pool, if it does not exist. Servers do this for workers that ask.

        Raises:
            UsageError: the pool's name is not valid.
        """

    async def open_source(self, pool: str) -> CommandSource:
        """
        Raises:
            Unreachable: not connected, or the pool has no queue yet and no server has created it.
        """

    async def reach(self, pool: str) -> None:
        """Returns when the queue answers a worker of this pool.

        Raises:
            Unreachable: it does not.
        """

    async def present(self, *, mends: bool = False) -> dict[str, str]:
        """The commands in the queue, from its leader (PROTOCOL §2 *Reconcile* step 1): their ids, each with its
        execution's. With ``mends``, for servers only, commands are removed first that no worker would ever get, because
        the queue has lost its end.
        """

    async def pools(self) -> list[QueuedPool]:
        """All pools that ever had a worker or now have a command, by name."""

    async def oldest_queued_ms(self, pools: Collection[str]) -> dict[str, int]:
        """The time at which the longest-waiting command of each pool was stored, by pool, without pools in which none
        waits. For servers.

        Raises:
            UsageError: the name of one is not valid.
        """

    async def withdraw(self, commands: Collection[tuple[str, str]]) -> None:
        """Purges commands, as pairs ``(execution_id, command_id)``, that are still in the queue."""

    async def verify(self) -> None:
        """Raises :class:`~noetl_stream.errors.NotReady` unless the stream exists as expected."""
