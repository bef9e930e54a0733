"""Fair turns of namespaces at the inputs of a server: a namespace with thousands of inputs does not delay one with a
few.

One input of each namespace is taken, then another of each, and so on. The inputs of one execution or aggregate belong
to one namespace and keep their order (PROTOCOL §2 *Turns of namespaces*).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, takewhile
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from noetl_stream.engine.state import Execution
from noetl_stream.errors import PayloadRefused
from noetl_stream.model.json import codec
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.event_log import ReportedMessage

LOOKED_AT: Final = 16
FORGOTTEN_BEYOND: Final = 4
"""The namespaces of executions are remembered up to this multiple of the waiting inputs."""
MOST_KEPT: Final = 1_000
"""The number of namespaces whose last turn is remembered."""


class Addressed(Protocol):
    """An input for an execution or an aggregate, with its message."""

    @property
    def execution_id(self) -> str: ...

    @property
    def body(self) -> bytes: ...


T = TypeVar("T", bound=Addressed)


class Competition:
    """Whether inputs of several namespaces have waited for this server at the same time lately.

    Attributes:
        SHARED_S: The seconds for which it goes on after that.
    """

    SHARED_S: Final = 2.0

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s = float("-inf")

    @property
    def is_on(self) -> bool:
        return self._clock.monotonic_s() < self._until_s

    def note(self) -> None:
        self._until_s = self._clock.monotonic_s() + self.SHARED_S


class _Place(msgspec.Struct, frozen=True):
    """The part of a fact to an execution, schedule, trigger or limit that names its namespace."""

    path: str = ""
    key: str = ""
    namespace: str = ""


class _Telling(msgspec.Struct, frozen=True):
    fact: _Place = _Place()


class FairQueue(Generic[T]):
    """Waiting inputs, by namespace. Each costs the same however many wait.

    Inputs without a known namespace, because their execution is not in memory, share a turn.

    Args:
        state_of: The execution with an id, if it is in memory.
        namespace_of: The namespace of a playbook's path.

    Attributes:
        size: The bytes of the waiting messages.
    """

    def __init__(self, state_of: Callable[[str], Execution | None], namespace_of: Callable[[str], str]) -> None:
        self._state_of = state_of
        self._namespace_of = namespace_of
        self._known: dict[str, str] = {}
        """The namespaces of inputs that waited before, by execution."""
        self._queues: dict[str, deque[T]] = {}
        self._turns: dict[str, int] = {}
        """The last turn of each namespace, least recent first."""
        self._turn = 0
        self._count = 0
        self.size = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._queues.values())

    @property
    def is_contested(self) -> bool:
        """Whether inputs of several known namespaces wait."""
        return len(self._queues.keys() - {""}) > 1

    def would_be_contested(self, inputs: Sequence[T]) -> bool:
        """Returns whether ``inputs`` are of several known namespaces, judged by a few of them."""
        looked_at = inputs[:: len(inputs) // LOOKED_AT or 1]
        return len({self._known.get(one.execution_id) or self._find(one) for one in looked_at} - {""}) > 1

    def add(self, inputs: Sequence[T]) -> None:
        """Adds inputs behind those that wait."""
        if len(self._known) > FORGOTTEN_BEYOND * (self._count + len(inputs)):
            self._known = {id: self._known[id] for id in {one.execution_id for one in self}}
        for one in inputs:
            self._queue_of(one).append(one)
        self._count += len(inputs)
        self.size += size_of(inputs)

    def restore(self, inputs: Sequence[T]) -> None:
        """Adds inputs, which were taken last, before those that wait."""
        for one in reversed(inputs):
            self._queue_of(one).appendleft(one)
        self._count += len(inputs)
        self.size += size_of(inputs)

    def take(self, most: int) -> list[T]:
        """Removes and returns the next inputs, beginning with the namespace whose turn was longest ago."""
        taken: list[T] = []
        line = deque(sorted(self._queues, key=lambda namespace: self._turns.get(namespace, 0)))
        while line and len(taken) < most:
            namespace = line.popleft()
            queue = self._queues[namespace]
            count = 1 if line else min(most - len(taken), len(queue))
            taken += [queue.popleft() for _ in range(count)]
            if queue:
                line.append(namespace)
            else:
                del self._queues[namespace]
            self._note_turn(namespace)
        self._count -= len(taken)
        self.size -= size_of(taken)
        return taken

    def clear(self) -> None:
        """Drops all inputs. The turns of namespaces stay."""
        self._queues.clear()
        self._count = self.size = 0

    def _note_turn(self, namespace: str) -> None:
        self._turn += 1
        self._turns.pop(namespace, None)
        self._turns[namespace] = self._turn
        if len(self._turns) > MOST_KEPT:
            del self._turns[next(iter(self._turns))]

    def _queue_of(self, one: T) -> deque[T]:
        namespace = self._known.get(one.execution_id)
        if namespace is None:
            namespace = self._known[one.execution_id] = self._find(one)
        queue = self._queues.get(namespace)
        if queue is None:
            queue = self._queues[namespace] = deque()
        return queue

    def _find(self, one: T) -> str:
        state = self._state_of(one.execution_id)
        if state is not None:
            return self._namespace_of(state.path)
        try:
            place = codec.decode_as(_Telling, one.body).fact
        except PayloadRefused:
            return ""
        path = place.path or place.key
        return place.namespace or (self._namespace_of(path) if path else "")


def size_of(inputs: Iterable[Addressed]) -> int:
    """Returns the bytes of the messages of inputs."""
    return sum([len(one.body) for one in inputs])


Position: TypeAlias = tuple[int, int]
"""The sequence of a message in EVENTS, and its time in milliseconds."""


class UnfoldedMessages(FairQueue[ReportedMessage]):
    """The messages of EVENTS that were read and not folded: those that wait, and the positions of all, by partition."""

    def __init__(self, state_of: Callable[[str], Execution | None], namespace_of: Callable[[str], str]) -> None:
        super().__init__(state_of, namespace_of)
        self._positions: dict[int, deque[Position]] = {}
        self._passed: set[int] = set()
        """The sequences of folded messages beyond one that is not folded."""

    @property
    def partitions(self) -> Collection[int]:
        """The partitions of unfolded messages."""
        return self._positions.keys()

    def note_read(self, messages: Iterable[ReportedMessage]) -> None:
        """Notes that these messages are to be folded."""
        for message in messages:
            positions = self._positions.get(message.partition)
            if positions is None:
                positions = self._positions[message.partition] = deque()
            positions.append((message.sequence, message.at_ms))

    def cursors(self, folded: Collection[ReportedMessage]) -> dict[int, Position]:
        """Returns the cursors that these messages move once they are folded: before the first one that is not (PROTOCOL
        §2 *Turns of namespaces*).
        """
        done = self._passed.union([message.sequence for message in folded])
        moved: dict[int, Position] = {}
        for message in folded:
            partition, place = message.partition, (message.sequence, message.at_ms)
            positions = self._positions.get(partition)
            if not positions or place < positions[0]:  # a refused message, which is noted before it is committed
                moved[partition] = max(place, moved.get(partition, place))
        for partition in {message.partition for message in folded}:
            for position in takewhile(lambda position: position[0] in done, self._positions.get(partition, ())):
                moved[partition] = position
        return moved

    def note_folded(self, folded: Collection[ReportedMessage]) -> None:
        """Notes that these messages are folded."""
        for message in folded:
            unfolded = self._positions.get(message.partition)
            if unfolded and message.sequence >= unfolded[0][0]:
                self._passed.add(message.sequence)
        for partition in {message.partition for message in folded}:
            positions = self._positions.get(partition)
            while positions and positions[0][0] in self._passed:
                self._passed.discard(positions.popleft()[0])
            if not positions:
                self._positions.pop(partition, None)

    def drop(self, partitions: Collection[int]) -> None:
        """Drops the messages of these partitions."""
        kept = [message for message in self if message.partition not in partitions]
        if len(kept) < len(self):
            self.clear()
            self.add(kept)
        for partition in partitions:
            self._passed.difference_update([sequence for sequence, _ in self._positions.pop(partition, ())])

    def drop_all(self) -> None:
        """Drops all messages."""
        self.clear()
        self._positions.clear()
        self._passed.clear()
