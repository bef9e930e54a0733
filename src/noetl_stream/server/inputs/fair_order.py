"""Fair turns of namespaces at the inputs of a server: a namespace with thousands of inputs does not delay one with a
few.

Waiting inputs are ordered with one of each namespace, then another of each, and so on. The inputs of one execution or
aggregate belong to one namespace and keep their order (PROTOCOL §2 *Turns of namespaces*).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from noetl_stream.engine.state import Execution
from noetl_stream.errors import PayloadRefused
from noetl_stream.model.json import codec
from noetl_stream.ports.clock import Clock

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


class FairOrder(Generic[T]):
    """The fair order of waiting inputs.

    Inputs without a known namespace, because their execution is not in memory, share a turn.

    Args:
        state_of: The execution with an id, if it is in memory.
        namespace_of: The namespace of a playbook's path.
    """

    def __init__(self, state_of: Callable[[str], Execution | None], namespace_of: Callable[[str], str]) -> None:
        self._state_of = state_of
        self._namespace_of = namespace_of
        self._known: dict[str, str] = {}
        """The namespaces of inputs that waited before, by execution."""
        self._began: dict[str, None] = {}
        """The namespaces that were first in an order, least recent first."""

    def is_contested(self, waiting: Sequence[T]) -> bool:
        """Returns whether ``waiting`` has inputs of several known namespaces, judged by a few of them.

        Sorting all of a burst for that would cost a server a tenth of its processor time.
        """
        looked_at = waiting[:: len(waiting) // LOOKED_AT or 1]
        return len({self._known.get(one.execution_id) or self._find(one) for one in looked_at} - {""}) > 1

    def sort(self, waiting: Sequence[T]) -> Sequence[T]:
        """Returns ``waiting`` in a fair order, beginning with the namespace that was first longest ago."""
        queues = self._by_namespace(waiting)
        if len(queues) <= 1:
            return waiting
        turns = {namespace: turn for turn, namespace in enumerate(self._began, start=1)}
        names = sorted(queues, key=lambda namespace: turns.get(namespace, 0))
        self._began.pop(names[0], None)
        self._began[names[0]] = None
        if len(self._began) > MOST_KEPT:
            del self._began[next(iter(self._began))]
        rounds = zip_longest(*(queues[namespace] for namespace in names))
        return [one for round_ in rounds for one in round_ if one is not None]

    def _by_namespace(self, waiting: Sequence[T]) -> Mapping[str, Sequence[T]]:
        ids, known = [one.execution_id for one in waiting], self._known
        if len(known) > FORGOTTEN_BEYOND * len(ids):
            known = self._known = {id: known[id] for id in ids if id in known}
        names = set(map(known.get, ids))
        if len(names) <= 1 and None not in names:  # nearly always, so the inputs need not be distributed
            return {name: waiting for name in names if name is not None}
        queues: dict[str, list[T]] = {}
        for id, one in zip(ids, waiting, strict=True):
            namespace = known.get(id)
            if namespace is None:
                namespace = known[id] = self._find(one)
            queues.setdefault(namespace, []).append(one)
        return queues

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
