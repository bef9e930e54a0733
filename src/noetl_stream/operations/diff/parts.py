"""The comparable parts: the choice in a fact and its data, and values without times and ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from noetl_stream.model import events
from noetl_stream.model.events.journal_reader import RunEnd
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import ErrorInfo, Payload
from noetl_stream.operations.executions.reading.step_runs import within_size
from noetl_stream.ports.operations.reading.diffs import (
    VALUES_SHOWN,
    DivergenceKind,
    ValueDifferenceDocument,
    ValueDifferencesDocument,
)

Targets = Mapping[str, Sequence[str]]
"""The targets of each step's arcs, by its name."""

OF_HTTP: Final = {"status", "headers", "data"}
"""The keys of the result of an ``http`` task."""


class Parts(NamedTuple):
    """The parts of one fact: a different ``choice`` leads to another course; ``data`` are the values with it."""

    kind: DivergenceKind
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
    a: Any, b: Any, like_a: Likeness, like_b: Likeness, most: int = VALUES_SHOWN
) -> ValueDifferencesDocument:
    """The differences of two JSON values, at most ``most`` of them in full."""
    found: list[ValueDifferenceDocument] = []
    volatile: list[ValueDifferenceDocument] = []
    count = 0
    for pointer, one, other in _differing(a, b):
        count += 1
        texts = isinstance(one, str) and isinstance(other, str)
        kept = volatile if texts and like_a.text(one) == like_b.text(other) else found
        if len(kept) < most:
            in_a, in_b = one is not _ABSENT, other is not _ABSENT
            kept.append(
                ValueDifferenceDocument(
                    pointer,
                    in_a,
                    within_size(one) if in_a else None,
                    in_b,
                    within_size(other) if in_b else None,
                    kept is volatile,
                )
            )
    items = [*found, *volatile][:most]
    return ValueDifferencesDocument(items, count - len(items))


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
