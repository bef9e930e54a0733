"""Metrics of a role: plain numbers that its tasks count, read on a scrape.

Names follow Prometheus: ``noetl_<role>_<what>_<unit>``, base units, no ids as labels.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from noetl_stream.model.messages import MemoryUse

MEDIA: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The media types for a scraper that accepts any format."""

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The upper bounds of the buckets of a histogram, in seconds."""

LONG_BOUNDS_S: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)
"""The buckets for durations of up to hours: executions, steps, waits."""

MAX_PATHS: Final = 1000
"""The most paths that a process uses as labels."""

OTHER: Final = "other"
"""The label of every other path."""


class Exemplar(NamedTuple):
    """The span behind one value of a histogram. ``at_s``: since the epoch."""

    trace_id: str
    span_id: str
    value_s: float
    at_s: float


class Durations:
    """A histogram of seconds. ``counts`` has one bucket for each of ``bounds_s``, and one above them.

    ``exemplars`` has the last exemplar of a bucket, by its index, if there is any.
    """

    __slots__ = ("bounds_s", "counts", "exemplars", "sum_s")

    def __init__(self, bounds_s: Sequence[float] = BOUNDS_S) -> None:
        self.bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        self.exemplars: dict[int, Exemplar] = {}
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds_s, seconds)] += 1
        self.sum_s += seconds

    def show(self, exemplar: Exemplar) -> None:
        """Shows the span of an added value as an exemplar."""
        self.exemplars[bisect_left(self.bounds_s, exemplar.value_s)] = exemplar


def long_durations() -> Durations:
    """Returns a histogram for durations of up to hours."""
    return Durations(LONG_BOUNDS_S)


Measure = TypeVar("Measure")


class ByPath(dict[str, Measure]):
    """Measures by the path of a playbook or schedule, made on first lookup.

    The first :data:`MAX_PATHS` paths have their own; all others share that of :data:`OTHER`, so labels stay bounded.
    """

    def __init__(self, make: Callable[[], Measure]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, path: str) -> Measure:
        label = path if len(self) < MAX_PATHS else OTHER
        if label not in self:
            self[label] = self._make()
        return self[label]


Labels: TypeAlias = tuple[str, ...]
Value: TypeAlias = float | Durations


class Metric(NamedTuple):
    """A metric: its kind, name and labels.

    Attributes:
        name: The name; for a counter without the suffix ``_total``.
        help: The help text: what the metric counts or shows, in a sentence.
        labels: The names of the labels.
    """

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    help: str
    labels: Labels = ()

    def read(self, value: Value, *labels: str) -> Reading:
        """Returns the reading of a metric with one value, with these label values."""
        return Reading(self, {labels: value})

    def read_each(self, values: Mapping[str, Value] | Mapping[Labels, Value]) -> Reading:
        """Returns the reading of a metric's values by label values; for a single label by text."""
        return Reading(self, {(key,) if isinstance(key, str) else key: value for key, value in values.items()})


class Reading(NamedTuple):
    """The present values of a metric, by the values of its labels."""

    metric: Metric
    values: Mapping[Labels, Value]


@runtime_checkable
class Measured(Protocol):
    """A part of a role that has metrics of its own."""

    def readings(self) -> Sequence[Reading]: ...


class Role(Protocol):
    """The status of a role for probes and scrapes."""

    def reasons_to_replace(self) -> Sequence[str]:
        """Returns the reasons why this process should be replaced, a sentence each. A store that is away is not one."""
        ...

    async def reasons_not_ready(self) -> Sequence[str]:
        """Returns the reasons why the role takes no work now, a sentence each; empty if it is ready. Does not raise."""
        ...

    async def readings(self) -> Sequence[Reading]:
        """Returns the readings of all metrics of the role. Does not raise."""
        ...


class NotYetRunning:
    """A role that is not running yet, with the reason."""

    def __init__(self, role: str, why: str = "it is not connected yet") -> None:
        self._role, self._why = role, why

    def reasons_to_replace(self) -> Sequence[str]:
        return ()

    async def reasons_not_ready(self) -> Sequence[str]:
        return (f"the {self._role} is starting: {self._why}",)

    async def readings(self) -> Sequence[Reading]:
        return ()


MEMORY: Final = Metric(
    "gauge", "noetl_memory_bytes", "What a process holds in memory of what is bounded.", ("role", "what")
)
MEMORY_LIMIT: Final = Metric(
    "gauge", "noetl_memory_limit_bytes", "How much of it a process holds at most.", ("role", "what")
)


def memory_readings(uses: Sequence[MemoryUse]) -> Sequence[Reading]:
    """Returns readings of the memory of processes: for each role the largest, since bounds are per process."""
    held: dict[Labels, float] = {}
    limits: dict[Labels, float] = {}
    for use in uses:
        for found, given in ((held, use.held), (limits, use.limits)):
            for what, size in given.items():
                key = use.role, what
                found[key] = max(size, found.get(key, 0))
    return MEMORY.read_each(held), MEMORY_LIMIT.read_each(limits)
