"""The course of an execution in a form for comparison: a few bytes for each relevant fact.

A token and the step run that consumes it are one; they are identified by the origin of the token, not by ids.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple, get_args

import msgspec

from noetl_stream.model import events
from noetl_stream.model.events.journal_reader import IterationEnd, JournalReader, Recorded, RunEnd
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import ErrorInfo, Payload
from noetl_stream.model.status import RunStatus
from noetl_stream.operations.executions.reading.step_runs import within_size
from noetl_stream.ports.operations.reading import diffs as documents
from noetl_stream.ports.stores.store import StoredEntry
from noetl_stream.storage.journal import facts_of

Targets = Mapping[str, Sequence[str]]
"""The targets of each step's arcs, by its name."""

OF_HTTP: Final = {"status", "headers", "data"}
"""The keys of the result of an ``http`` task."""


class Parts(NamedTuple):
    """The parts of one fact: a different ``choice`` leads to another course; ``data`` are the values with it."""

    kind: documents.DivergenceKind
    choice: dict[str, Any]
    data: dict[str, Any]


def parts_of(fact: events.Fact, step: str, targets: Targets) -> Parts | None:
    """
    Args:
        step: The step of the fact; empty for the execution.

    Returns:
        ``None`` for a fact that depends on timing, or follows from others.
    """
    rule = _RULES.get(type(fact))
    return None if rule is None else rule(fact, targets.get(step, ()))


def result_of(payload: Payload) -> Any:
    """A result in comparable form: its digest if it is stored elsewhere."""
    reference = payload.reference
    if reference is None:
        return codec.decode_shown(payload.value)
    if reference.store == "journal":
        return {"$reference": "the iterations"}  # they are compared themselves
    return {"$reference": {"checksum": reference.checksum, "size": reference.size}}


def _error(error: ErrorInfo | None) -> dict[str, Any]:
    return {} if error is None else {"code": error.code, "message": error.message}


def _kind_of(error: ErrorInfo | None) -> str | None:
    return None if error is None else error.kind


def _finished(fact: events.ExecutionFinished, _: Sequence[str]) -> Parts:
    error, result = fact.outcome.error, result_of(fact.outcome.result)
    return Parts("finish", {"status": fact.status, "error": _kind_of(error)}, {"result": result, **_error(error)})


def _enqueued(fact: events.TokenEnqueued, _: Sequence[str]) -> Parts:
    args = fact.token.args
    if fact.joined and isinstance(arrivals := args.get("arrivals"), list):
        args = {**args, "arrivals": sorted(arrivals, key=codec.encode_sorted)}  # their order is a matter of timing
    return Parts("token", {}, {"args": args})


def _claimed(fact: events.TokenClaimed, _: Sequence[str]) -> Parts:
    word = "admitted" if fact.refused is None else "refused"
    data = {**_error(fact.refused), **({"metadata": fact.metadata} if fact.metadata else {})}
    return Parts("admission", {"token": word, "error": _kind_of(fact.refused)}, data)


def _dropped(fact: events.TokenDiscarded | events.TokenAbsorbed, _: Sequence[str]) -> Parts:
    word = "discarded" if isinstance(fact, events.TokenDiscarded) else "absorbed"
    return Parts("admission", {"token": word}, {"reason": fact.reason})


def _processed(fact: events.TaskProcessed, _: Sequence[str]) -> Parts:
    outcome = fact.outcome
    choice = {
        "task": fact.task,
        "status": outcome.status,
        "error": _kind_of(outcome.error),
        "do": fact.do,
        "to": fact.to,
    }
    result = result_of(outcome.result)
    if isinstance(result, dict) and result.keys() == OF_HTTP:
        result = {"status": result["status"], "data": result["data"]}  # headers differ each time
    patches = {"ctx": fact.set_ctx, "iter": fact.set_iter, "vars": fact.set_vars, "labels": fact.set_label}
    shared = {key: [one.op, one.value] for key, one in fact.set_shared.items()}
    return Parts("task", choice, {"result": result, **_error(outcome.error), **patches, "shared": shared})


def end_of(fact: RunEnd, _: Sequence[str] = ()) -> Parts:
    """The comparable parts of the end of a step run."""
    return Parts("end", {"failed": fact.error is not None, "error": _kind_of(fact.error)}, _error(fact.error))


def _routed(fact: events.NextEvaluated, targets: Sequence[str]) -> Parts:
    fired = [targets[arc] if arc < len(targets) else f"arc {arc}" for arc in fact.fired]
    return Parts("arc", {"event": fact.event, "arcs": fired}, {})


_RULES: Final[dict[type[events.Fact], Callable[[Any, Sequence[str]], Parts]]] = {
    events.ExecutionStarted: lambda fact, _: Parts("workload", {}, {"workload": fact.workload}),
    events.CtxPatched: lambda fact, _: Parts("patch", {}, {"patch": fact.patch}),
    events.SignalReceived: lambda fact, _: Parts("signal", {}, {"signal": fact.signal, "payload": fact.payload}),
    events.CancelRequested: lambda fact, _: Parts("cancel", {}, {}),
    events.ExecutionFinished: _finished,
    events.TokenEnqueued: _enqueued,
    events.TokenClaimed: _claimed,
    events.TokenDiscarded: _dropped,
    events.TokenAbsorbed: _dropped,
    events.TaskProcessed: _processed,
    events.LoopIterationFailed: lambda fact, _: Parts("iteration", {"error": fact.error.kind}, _error(fact.error)),
    events.LoopStarted: lambda fact, _: Parts(
        "loop", {"count": fact.count}, {"items": fact.items} if fact.items else {}
    ),
    events.LoopPagedOut: lambda fact, _: Parts("loop", {"count": fact.count}, {}),
    events.LoopDone: lambda fact, _: Parts(
        "loop_end", {"ok": fact.ok, "failed": fact.failed, "skipped": fact.skipped}, {}
    ),
    events.StepReused: end_of,
    events.StepFailed: end_of,
    events.StepDone: end_of,
    events.NextEvaluated: _routed,
}


_UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_TIME: Final = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_HTTP_TIME: Final = r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT"
_VOLATILE: Final = rf"(?:{_UUID}|{_TIME}|{_HTTP_TIME})"
_is_volatile: Final = re.compile(rf"{_VOLATILE}\Z").match
_hide_volatile: Final = re.compile(rf'"{_VOLATILE}"'.encode()).sub

SHORTEST_ID: Final = 16
"""The length below which an execution's id is not looked for in its values: it may be a word."""

HIDDEN: Final = "~"
_ABSENT: Final = object()


class Likeness:
    """Values of one execution in a form in which they are equal if only times and ids differ."""

    def __init__(self, execution_id: str) -> None:
        self._own = execution_id if len(execution_id) >= SHORTEST_ID else "\0"  # no JSON holds it
        self._own_bytes = self._own.encode()

    def digest(self, value: Any) -> int:
        """A 64-bit digest of a JSON value: equal digests count as equal values."""
        text = codec.encode_sorted(value).replace(self._own_bytes, HIDDEN.encode())
        return int.from_bytes(blake2b(_hide_volatile(b'"~"', text), digest_size=8).digest())

    def text(self, value: str) -> str:
        value = value.replace(self._own, HIDDEN)
        return HIDDEN if _is_volatile(value) else value


def differences(
    a: Any, b: Any, like_a: Likeness, like_b: Likeness, most: int = documents.VALUES_SHOWN
) -> documents.ValueDifferencesDocument:
    """The differences of two JSON values, at most ``most`` of them in full."""
    found: list[documents.ValueDifferenceDocument] = []
    volatile: list[documents.ValueDifferenceDocument] = []
    count = 0
    for pointer, one, other in _differing(a, b):
        count += 1
        texts = isinstance(one, str) and isinstance(other, str)
        kept = volatile if texts and like_a.text(one) == like_b.text(other) else found
        if len(kept) < most:
            in_a, in_b = one is not _ABSENT, other is not _ABSENT
            shown = within_size(one) if in_a else None, within_size(other) if in_b else None
            kept.append(documents.ValueDifferenceDocument(pointer, in_a, shown[0], in_b, shown[1], kept is volatile))
    items = [*found, *volatile][:most]
    return documents.ValueDifferencesDocument(items, count - len(items))


def _differing(a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    """The smallest differing parts, in order. No recursion: the values may be nested deeply."""
    waiting = [("", a, b)]
    while waiting:
        pointer, one, other = waiting.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            keys = list(dict.fromkeys((*one, *other)))
            inner = [(_escaped(key), one.get(key, _ABSENT), other.get(key, _ABSENT)) for key in keys]
        elif isinstance(one, list) and isinstance(other, list):
            inner = [(str(n), _at(one, n), _at(other, n)) for n in range(max(len(one), len(other)))]
        elif type(one) is not type(other) or one != other:
            yield pointer, one, other
            continue
        else:
            continue
        waiting += [(f"{pointer}/{name}", *both) for name, *both in reversed(inner)]


def _at(values: list[Any], index: int) -> Any:
    return values[index] if index < len(values) else _ABSENT


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


KINDS: Final[tuple[documents.DivergenceKind, ...]] = get_args(documents.DivergenceKind)
MASK: Final = 2**64 - 1

MOST_FACTS: Final = 300_000
"""The part of one journal that is compared, about 12 MB; later entries are not."""

EXECUTION: Final = 0
"""The number of the run that stands for the execution as a whole."""

_LAST: Final = frozenset({"end", "arc"})
"""Kinds of which a run has one fact each. Facts of other kinds may repeat."""

_OF_ITERATION: Final[tuple[documents.DivergenceKind, ...]] = ("task", "loop", "loop_end", "iteration")


def lane_of(kind: documents.DivergenceKind, path: events.Path) -> int:
    return hash((kind, path)) & MASK


class CourseRun(msgspec.Struct):
    """A token, and the step run that has consumed it. ``key`` is equal for those with the same origin.

    ``position`` is that of the token. Times are ms since the epoch, 0 until then. ``is_merged``: a join has taken it.
    """

    key: int
    step: str
    token_id: str
    position: int
    step_run_id: str = ""
    claimed_ms: int = 0
    ended_ms: int = 0
    status: RunStatus = "waiting"
    is_merged: bool = False

    @property
    def duration_s(self) -> float | None:
        if not self.claimed_ms or not self.ended_ms or self.status == "reused":
            return None
        return round((self.ended_ms - self.claimed_ms) / 1000, 3)


class Course(JournalReader[int]):
    """The course of one execution, up to ``position``.

    Attributes:
        lane: The subject of each fact within its run: the same numbers for the same iteration and kind.
        number: The number of earlier facts of the lane.
        choice, data: Digests of :class:`~noetl_stream.operations.diff.course.Parts`.
        inner: Whether the fact is of an iteration.
        is_cut: Whether entries beyond the bound were dropped.
    """

    def __init__(self, execution_id: str, targets: Targets) -> None:
        super().__init__(execution_id)
        self.is_cut = False
        self.like = Likeness(execution_id)
        self.runs = [CourseRun(0, "", "", 1)]
        self.run, self.position_of = array("i"), array("i")
        self.kind, self.inner = array("b"), array("b")
        self.lane, self.number = array("Q"), array("i")
        self.choice, self.data = array("Q"), array("Q")
        self.targets = targets
        self._by_token: dict[str, int] = {}
        self._alike: dict[int, int] = {}
        self._numbers: dict[tuple[int, int], int] = {}

    def take(self, entries: Iterable[StoredEntry]) -> None:
        """Adds the next entries."""
        for entry in entries:
            for recorded in facts_of(entry):
                if self.is_cut:
                    return
                self.read(recorded)
                self.is_cut = len(self.run) >= MOST_FACTS

    # --- what is compared ---------------------------------------------------------------------------------------------

    def _note(self, at: Recorded, run: int, path: events.Path = (), parts: Parts | None = None) -> None:
        """Records the comparable parts of a fact, by default those of :func:`parts_of`."""
        parts = parts or parts_of(at.fact, self.runs[run].step, self.targets)
        if parts is None:
            return
        lane = lane_of(parts.kind, path)
        number = 0
        if parts.kind not in _LAST:
            number = self._numbers.get((run, lane), 0)
            self._numbers[run, lane] = number + 1
        self.run.append(run)
        self.position_of.append(at.position)
        self.kind.append(KINDS.index(parts.kind))
        self.inner.append(bool(path))
        self.lane.append(lane)
        self.number.append(number)
        self.choice.append(self.like.digest(parts.choice))
        self.data.append(self.like.digest(parts.data))

    def _forget(self, run: int, path: events.Path = ()) -> None:
        for kind in _OF_ITERATION:
            self._numbers.pop((run, lane_of(kind, path)), None)

    def _noted(self, at: Recorded, fact: events.Fact) -> None:
        self._note(at, EXECUTION)

    execution_started = ctx_patched = signal_received = halt_requested = _noted

    def execution_stopped(self, at: Recorded, fact: events.ExecutionClosing | events.ExecutionFinished) -> None:
        for run in self.runs:
            if not run.ended_ms and run.status in ("waiting", "running"):
                run.status, run.ended_ms = "cancelled", at.at_ms
        self._note(at, EXECUTION)

    # --- tokens and step runs -----------------------------------------------------------------------------------------

    def token_enqueued(self, at: Recorded, fact: events.TokenEnqueued) -> None:
        token = fact.token
        if token.token_id in self._by_token:
            return
        for merged in fact.joined:
            if (place := self._by_token.pop(merged, None)) is not None:
                self.runs[place].is_merged = True
        came_from = self.by_id.get(token.from_step_run_id or "", EXECUTION)
        origin = ("join",) if fact.joined else (self.runs[came_from].key, token.cause == "injected")
        alike = hash((*origin, token.step))
        nth = self._alike[alike] = self._alike.get(alike, 0) + 1
        self._by_token[token.token_id] = len(self.runs)
        self.runs.append(CourseRun(hash((alike, nth)), token.step, token.token_id, at.position))
        self._note(at, len(self.runs) - 1)

    def _token_gone(self, at: Recorded, fact: events.TokenDiscarded | events.TokenAbsorbed) -> None:
        place = self._by_token.get(fact.token_id)
        if place is not None:
            self.runs[place].status = "cancelled"
            self._note(at, place)

    token_absorbed = token_discarded = _token_gone

    def run_began(self, at: Recorded, step: str, fact: events.TokenClaimed) -> int:
        place = self._by_token[fact.token_id]
        run = self.runs[place]
        run.step_run_id, run.claimed_ms = fact.step_run_id, at.at_ms
        self._note(at, place)
        return place

    def _started(self, at: Recorded, run: int, fact: events.Fact) -> None:
        if self.runs[run].status == "waiting":
            self.runs[run].status = "running"

    run_started = iteration_began = _started

    def _noted_of_run(self, at: Recorded, run: int, fact: Any) -> None:
        self._note(at, run, getattr(fact, "path", ()))

    attempt_ended = loop_began = loop_counted = loop_ended = run_routed = _noted_of_run

    def iteration_ended(self, at: Recorded, run: int, fact: IterationEnd) -> None:
        if fact.error is not None:
            self._note(at, run, fact.path)
        self._forget(run, fact.path)

    def run_ended(self, at: Recorded, run: int, fact: RunEnd) -> None:
        ended = self.runs[run]
        if not ended.ended_ms:
            self._note(at, run, parts=end_of(fact))
            ended.status, ended.ended_ms = fact.status, at.at_ms
            self._forget(run)
