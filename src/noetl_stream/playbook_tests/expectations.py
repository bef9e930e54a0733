"""Compares the expectations of a test with an execution; each deviation points to the place of its expectation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.diagnostics import Location
from noetl_stream.playbook.model.sections import is_null
from noetl_stream.playbook.plan import Plan
from noetl_stream.playbook.yaml.nodes import Mapping as MappingNode
from noetl_stream.playbook.yaml.nodes import Node, Scalar, child
from noetl_stream.playbook.yaml.nodes import Sequence as SequenceNode
from noetl_stream.playbook_tests.journal import SeenJournal
from noetl_stream.playbook_tests.loading import TaskKey, tasks_named
from noetl_stream.playbook_tests.reading import Expected
from noetl_stream.playbook_tests.schema import ThenSection
from noetl_stream.playbook_tests.stubs import RecordedCall

SHOWN_CHARACTERS: Final = 300
MAX_DEVIATIONS: Final = 20


class Deviation(NamedTuple):
    """A deviation of an execution from an expectation."""

    at: Location
    message: str


class Observed(msgspec.Struct, frozen=True):
    """A moment of an execution, for comparison. ``waits`` are the steps at which it waits."""

    status: str
    result: Any
    error: ErrorInfo | None
    ctx: Mapping[str, Any]
    waits: Sequence[str]
    journal: SeenJournal
    calls: Sequence[RecordedCall]


def deviations(expected: Expected, observed: Observed, plan: Plan, *, at_end: bool) -> list[Deviation]:
    """The deviations from the expectations, at most :data:`MAX_DEVIATIONS`.

    Args:
        at_end: Whether a status is expected even if none is written.
    """
    found = [*_status(expected, observed, at_end=at_end), *_other_deviations(expected.then, observed, plan)]
    return found[:MAX_DEVIATIONS]


def shown_value(value: Any) -> str:
    """Shows a value in a message: JSON, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _status(expected: Expected, observed: Observed, *, at_end: bool) -> Iterator[Deviation]:
    wanted, at = expected.then.status, expected.at
    if wanted is None and not at_end:
        return
    if wanted is not None:
        at = child(at, "status") or at
    else:
        wanted = "completed" if expected.then.error is None else "failed"
    if observed.status != wanted:
        error = observed.error
        because = f" ({error.kind}: {error.message})" if error is not None else ""
        waits = f" at {', '.join(observed.waits)}" if observed.waits else ""
        yield Deviation(at, f"status: expected {wanted}, was {observed.status}{because}{waits}")


def _other_deviations(expected: ThenSection, observed: Observed, plan: Plan) -> Iterator[Deviation]:
    if expected.result is not None:
        yield from compare_value(expected.result, observed.result, "result")
    if expected.error is not None:
        yield from _error(expected.error, observed)
    if isinstance(expected.ctx, MappingNode):
        for name, node in expected.ctx.values.items():
            yield from compare_value(node, observed.ctx.get(name), f"ctx.{name}")
    steps = [run.step for run in observed.journal.runs.values()]
    if expected.path is not None and (wanted := expected.path.plain()) != steps:
        shown_path = " → ".join(steps) or "no step"
        yield Deviation(expected.path, f"path: expected {' → '.join(wanted) or 'no step'}, was {shown_path}")
    for node in _items(expected.never):
        if node.plain() in steps:
            yield Deviation(node, f"never: step {node.plain()} ran")
    if expected.waits_for is not None and sorted(expected.waits_for.plain()) != sorted(observed.waits):
        waits = ", ".join(observed.waits) or "nothing"
        yield Deviation(expected.waits_for, f"waits_for: expected {', '.join(expected.waits_for.plain())}, was {waits}")
    if isinstance(expected.calls, MappingNode):
        for name, node in expected.calls.values.items():
            yield from _calls(name, node, observed, plan)


def _error(node: Node, observed: Observed) -> Iterator[Deviation]:
    error = observed.error
    if error is None:
        if not is_null(node):
            yield Deviation(node, f"error: expected {shown_value(node.plain())}, was none")
        return
    kind = node if isinstance(node, Scalar) else child(node, "kind")
    if kind is not None and kind.plain() != error.kind:
        yield Deviation(kind, f"error.kind: expected {kind.plain()}, was {error.kind}: {error.message}")
    message, step = child(node, "message"), child(node, "step")
    if message is not None and str(message.plain()) not in error.message:
        said = f"error.message: expected to contain {shown_value(message.plain())}, was {error.message}"
        yield Deviation(message, said)
    if step is not None and step.plain() != observed.journal.failed_step:
        yield Deviation(step, f"error.step: expected {step.plain()}, was {observed.journal.failed_step or 'none'}")


def _calls(name: str, node: Node, observed: Observed, plan: Plan) -> Iterator[Deviation]:
    key = TaskKey(plan.digest, name.partition(".")[0], tasks_named(plan, name)[0].name)
    calls = [call for call in observed.calls if call.key == key]
    times = f"{len(calls)} time{'' if len(calls) == 1 else 's'}"
    if isinstance(node, Scalar):
        if node.value != len(calls):
            yield Deviation(node, f"calls.{name}: expected {node.value}, was called {times}")
        return
    wanted = _items(node)
    if len(wanted) != len(calls):
        inputs = "".join(f"\n  {number}. {shown_value(call.inputs)}" for number, call in enumerate(calls[:10], start=1))
        said = f"calls.{name}: expected {len(wanted)}, was called {times}"
        yield Deviation(node, f"{said}{':' if inputs else ''}{inputs}")
    for number, (one, call) in enumerate(zip(wanted, calls, strict=False), start=1):
        if isinstance(one, MappingNode):
            for input_name, value in one.values.items():
                where = f"calls.{name}[{number - 1}].{input_name}"
                if input_name not in call.inputs:
                    given, expected = ", ".join(call.inputs) or "none", shown_value(value.plain())
                    yield Deviation(value, f"{where}: expected {expected}, was not given (inputs: {given})")
                else:
                    yield from compare_value(value, call.inputs[input_name], where)


def compare_value(node: Node, actual: Any, where: str) -> Iterator[Deviation]:
    """The deviations of a value from the expected one, as deep as they can be located."""
    if isinstance(node, MappingNode) and isinstance(actual, Mapping):
        for name, value in node.values.items():
            inner = f"{where}.{name}"
            if name in actual:
                yield from compare_value(value, actual[name], inner)
            else:
                yield Deviation(value, f"{inner}: expected {shown_value(value.plain())}, was not there")
        if unexpected := [name for name in actual if name not in node.values]:
            names = ", ".join(f"{where}.{name} = {shown_value(actual[name])}" for name in unexpected)
            yield Deviation(node, f"{where}: expected no other keys, was also {names}")
    elif isinstance(node, SequenceNode) and isinstance(actual, Sequence) and not isinstance(actual, str):
        for index, (value, one) in enumerate(zip(node.items, actual, strict=False)):
            yield from compare_value(value, one, f"{where}[{index}]")
        if len(node.items) != len(actual):
            said = f"{where}: expected {len(node.items)} items, was {len(actual)}: {shown_value(list(actual))}"
            yield Deviation(node, said)
    elif not _equal(node.plain(), actual):
        yield Deviation(node, f"{where}: expected {shown_value(node.plain())}, was {shown_value(actual)}")


def _equal(expected: Any, actual: Any) -> bool:
    """Whether two JSON values are equal: 1 is 1.0 and not true."""
    return isinstance(expected, bool) == isinstance(actual, bool) and bool(expected == actual)


def _items(node: Node | None) -> list[Node]:
    return node.items if isinstance(node, SequenceNode) else []
