"""The loop of a step as read, one level or several nested (LANGUAGE §6; v10 §5.3, §6.4, §8)."""

from __future__ import annotations

import re
from collections.abc import Collection
from collections.abc import Mapping as MappingOf
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.playbook.diagnostics import Location, Position, Problems
from noetl_stream.playbook.model.layering import Layer, read_layered
from noetl_stream.playbook.model.policy import check_number
from noetl_stream.playbook.model.sections import (
    NULL,
    Part,
    Placeholders,
    Reserved,
    Schema,
    Section,
    described,
    is_null,
    number_or_template,
    or_null,
    ref,
    report_wrong_type,
    section,
)
from noetl_stream.playbook.plan import FailureMode, Tolerated
from noetl_stream.playbook.vocabulary import advice
from noetl_stream.playbook.vocabulary.hints import shown_value
from noetl_stream.playbook.vocabulary.names import check_name, report_duplicate
from noetl_stream.playbook.yaml.nodes import Mapping, MappingKey, Node, Scalar, Sequence, child, holds_template, kind_of

Mode = Literal["sequential", "parallel"]
Placement = Literal["local", "distributed"]

MAX_LOOP_LEVELS: Final = 8

PERCENT: Final = re.compile(r"(100|[0-9]{1,2}(\.[0-9]{1,6})?)%")

TOLERATED: Final[Schema] = {
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^{PERCENT.pattern}$"}, NULL]
}

READ_ONLY: Final = frozenset(["index", "count", "parent"])
"""Keys of ``iter`` that every loop level sets (LANGUAGE §5)."""


_IN_FLIGHT: Final = number_or_template({"type": "integer", "minimum": 1})

ROWS_EXAMPLE: Final = "rows: { kind: postgres, auth: …, command: SELECT …, batch: 1000 }"
DEFAULT_BATCH: Final = 1_000
MAX_BATCH: Final = DEFAULT_LIMITS.max_template_repeat_items
BATCH: Final[Schema] = {
    "description": f"How many rows an item has; default {DEFAULT_BATCH:,}.",
    **or_null({"type": "integer", "minimum": 1, "maximum": MAX_BATCH}),
}


class Loop(Section):
    title = "`loop`"
    example = f"write {advice.LOOP_HINT}"
    rejected = advice.LOOP
    schema_rules: ClassVar[Schema] = {
        "required": ["iterator"],
        "oneOf": [{"required": ["in"]}, {"required": ["rows"]}],
    }

    in_: Part = described(
        "The items: a list, a mapping, or an expression for one. Evaluated once.",
        {"anyOf": [{"type": ["array", "object"]}, ref("expression")]},
        alias="in",
    )
    rows: Part = described(
        "In place of `in`: the task that makes the rows, once. The items are tables of `batch` rows.", ref("rows")
    )
    iterator: str | None = described(
        "The name of the item: read as `iter.<name>`.", {"allOf": [ref("name"), {"not": {"enum": sorted(READ_ONLY)}}]}
    )
    spec: Part = described("How iterations run.", section("LoopSpec"))
    loop: Part = described("A loop inside each iteration.", section("Loop"))


class LoopSpec(Section):
    title = "`loop.spec`"
    rejected = advice.LOOP_SPEC

    mode: Mode | None = described(
        "`sequential`: one after the other. `parallel`: up to `max_in_flight` at the same time."
    )
    max_in_flight: Part = described("How many iterations run at the same time; default 10.", _IN_FLIGHT)
    exec: Placement | None = described("`local`: on one worker. `distributed`: each iteration on any worker.")
    timeout: Part = described("The timeouts of the tasks of each iteration.", ref("timeout"))
    policy: Part = described("Failures of iterations.", section("LoopPolicy"))


class LoopPolicy(Placeholders):
    title = "the loop's policy"
    rejected = advice.LOOP_POLICY

    mode: Mode | None = described("`sequential` or `parallel`.")
    max_in_flight: Part = described("How many iterations run at the same time.", _IN_FLIGHT)
    exec: Placement | None = described("`local` or `distributed`.")
    failure: Part = described("What failed iterations do to the loop.", section("LoopFailure"))
    ordering: Annotated[Any, Reserved()] = None
    reducers: Annotated[Any, Reserved()] = None
    backpressure: Annotated[Any, Reserved()] = None
    partitioning: Annotated[Any, Reserved()] = None


class LoopFailure(Section):
    title = "`policy.failure`"
    example = "write failure: { mode: fail_fast } or { mode: best_effort, tolerated: 5% }"

    mode: FailureMode | None = described(
        "`fail_fast`: the first failure ends the loop. `best_effort`: all iterations run."
    )
    tolerated: Part = described("How many may fail under `best_effort`: a number, or a share as `5%`.", TOLERATED)


class FailureDraft(msgspec.Struct, frozen=True):
    """A policy of failed iterations as read: of a level, or of the step for all its levels."""

    mode: FailureMode | None = None
    tolerated: Tolerated | None = None
    tolerated_at: Node | None = None


class LoopDraft(msgspec.Struct, frozen=True):
    """One level of a loop as read; ``inner`` is the level inside. Values not given are ``None``. ``rows`` is the task
    that makes them, without its ``batch``.
    """

    at: MappingKey
    items: Node | None
    rows: Mapping | None
    batch: int | None
    iterator: str | None
    mode: Mode
    placement: Placement
    max_in_flight: Node | None
    failure: FailureDraft
    layer: Layer
    inner: LoopDraft | None

    def levels(self) -> list[LoopDraft]:
        """This level of the loop and those inside it, outermost first."""
        return [self, *(self.inner.levels() if self.inner else [])]


class _OuterLevels(msgspec.Struct, frozen=True):
    """The levels around a level: the positions of their iterators, and of the first ``exec: local``."""

    depth: int = 0
    iterators: MappingOf[str, Position] = msgspec.field(default_factory=dict)
    local: Position | None = None

    def with_level(self, iterator: str | None, at: Node | None, local: Position | None) -> _OuterLevels:
        named = {iterator: at.mark} if iterator is not None and at is not None else {}
        return _OuterLevels(self.depth + 1, {**self.iterators, **named}, self.local or local)


_NO_LEVELS: Final = _OuterLevels()


def _with_items(node: Node, at: MappingKey, problems: Problems) -> Node:
    """Makes a loop of a list that was written in place of one, after reporting it."""
    is_list = isinstance(node, Sequence) or (isinstance(node, Scalar) and holds_template(node))
    if not is_list:
        return node
    shown = shown_value(node.plain())
    hint = f"write loop: {{ in: {shown}, iterator: item }}"
    problems.error("wrong_type", f"`loop` must be a mapping, not {kind_of(node)}", node, hint)
    key = MappingKey("in", node.mark, node.pointer)
    iterator = Scalar("item", node.mark, node.pointer)
    keys = {"in": key, "iterator": MappingKey("iterator", node.mark, node.pointer)}
    return Mapping(node.mark, node.pointer, keys, {"in": node, "iterator": iterator})


def read_loop(
    node: Node, at: MappingKey, knobs: Collection[str], problems: Problems, outer: _OuterLevels = _NO_LEVELS
) -> LoopDraft | None:
    """Reads a level of a step's loop and the levels inside it; ``None`` if it is nested too deeply.

    Every level must have ``in`` and ``iterator``; the outermost may have ``rows`` in place of ``in``.
    """
    if outer.depth >= MAX_LOOP_LEVELS:
        message = f"loops nested more than {MAX_LOOP_LEVELS} levels deep (max_loop_levels)"
        problems.error("limit_exceeded", message, at, "flatten the list in a separate step, or call a playbook")
        return None
    node, loop = Loop.read_whole(_with_items(node, at, problems), problems)
    if isinstance(node, Mapping) or is_null(node):
        for name, is_missing in (
            ("in", is_null(loop.in_) and is_null(loop.rows)),
            ("iterator", loop.iterator is None),
        ):
            if is_missing:
                problems.error("missing_key", f"`loop` needs `{name}`", at, advice.LOOP_HINT)
    iterator_at = child(node, "iterator")
    if loop.iterator is not None and iterator_at is not None:
        _check_iterator(loop.iterator, iterator_at, outer, problems)
    loop_spec, spec, layer = read_layered(loop.spec, LoopSpec, knobs, problems)
    policy = LoopPolicy.from_node(spec.policy, problems)
    _check_agreement(loop_spec, spec.policy, problems)
    _check_items(loop.in_, problems)
    rows, batch = _read_rows(loop, outer, problems)
    mode = spec.mode or policy.mode or "sequential"
    explicit = spec.exec or policy.exec
    parts = [part for part in (loop_spec, spec.policy) if isinstance(part, Mapping)]
    exec_at = next((part.keys["exec"] for part in parts if "exec" in part.keys), at)
    inner = None
    if not is_null(loop.loop) and isinstance(node, Mapping):
        around = outer.with_level(loop.iterator, iterator_at, exec_at.mark if explicit == "local" else None)
        inner = read_loop(loop.loop, node.keys["loop"], knobs, problems, around)
    return LoopDraft(
        at=at,
        items=loop.in_,
        rows=rows,
        batch=batch,
        iterator=loop.iterator,
        mode=mode,
        placement=_placement(explicit, mode, inner, outer, exec_at, problems),
        max_in_flight=_read_max_in_flight(spec.max_in_flight or policy.max_in_flight, mode, problems),
        failure=read_failure(policy.failure, problems),
        layer=layer,
        inner=inner,
    )


def _read_rows(loop: Loop, outer: _OuterLevels, problems: Problems) -> tuple[Mapping | None, int | None]:
    """Reads ``rows`` of a level: the task without its ``batch``, and that."""
    node = loop.rows
    if node is None or is_null(node):
        return None, None
    if not is_null(loop.in_):
        problems.error("conflicting_keys", "`loop` has both `in` and `rows`", node, "remove one")
    if outer.depth:
        hint = 'let a step before make the table, and write in: "{{ <step>.table | batch(1000) }}"'
        problems.error("misplaced_key", "`rows` belongs in the outermost level of a loop", node, hint)
    if not isinstance(node, Mapping):
        report_wrong_type(node, "`rows`", "a task", problems, f"write {ROWS_EXAMPLE}")
        return None, DEFAULT_BATCH
    given = node.get("batch")
    batch = DEFAULT_BATCH if given is None or is_null(given) else given.plain()
    if type(batch) is not int or not 1 <= batch <= MAX_BATCH:
        message = f"`batch` must be a whole number of rows from 1 to {MAX_BATCH:,}, not {shown_value(batch)}"
        problems.error("invalid_value", message, given or node, f"write batch: {DEFAULT_BATCH}")
        batch = DEFAULT_BATCH
    return node.drop_keys({"batch"}), batch


def read_failure(node: Node | None, problems: Problems) -> FailureDraft:
    """Reads ``failure`` of a loop's policy or of its step's."""
    failure = LoopFailure.from_node(node, problems)
    at = None if is_null(failure.tolerated) else failure.tolerated
    return FailureDraft(failure.mode, None if at is None else read_tolerated(at, "iterations", problems), at)


def read_tolerated(node: Node, what: str, problems: Problems) -> Tolerated | None:
    """Reads the tolerated failures of ``what``: a number, or a percentage."""
    value = node.plain()
    if type(value) is int and value >= 0:
        return Tolerated(Decimal(value))
    if isinstance(value, str) and PERCENT.fullmatch(value):
        return Tolerated(Decimal(value[:-1]), percent=True)
    message = f"`tolerated` must be a whole number of {what} or a share of them such as '5%', not {value!r}"
    problems.error("invalid_value", message, node, "write tolerated: 10, or tolerated: 5%")
    return None


def _placement(
    explicit: Placement | None,
    mode: Mode,
    inner: LoopDraft | None,
    outer: _OuterLevels,
    at: Location,
    problems: Problems,
) -> Placement:
    """The placement of a level's iterations (LANGUAGE §6): in the worker that runs the level around it, or anywhere."""
    if outer.local is not None:
        if explicit == "distributed":
            message = f"`exec: distributed` inside the local level of line {outer.local.line}"
            hint = "remove one: levels inside a local one run in its worker"
            problems.error("conflicting_keys", message, at, hint)
        return "local"
    if explicit is not None:
        return explicit
    spreads = mode == "parallel" or (inner is not None and inner.placement == "distributed")
    return "distributed" if spreads else "local"


def _check_iterator(name: str, at: Node, outer: _OuterLevels, problems: Problems) -> None:
    if not check_name(name, "an iterator's name", at, problems):
        return
    if name in READ_ONLY:
        problems.error("reserved_name", f"an iterator's name cannot be `{name}`: the loop sets `iter.{name}`", at)
    elif name in outer.iterators:
        rule = "iterators must be unique across the levels of a loop"
        report_duplicate(f"iterator `{name}`", outer.iterators[name].line, at, rule, problems)


def _check_agreement(spec: Node | None, policy: Node | None, problems: Problems) -> None:
    if not isinstance(spec, Mapping) or not isinstance(policy, Mapping):
        return
    for name in ("mode", "max_in_flight", "exec"):
        outer, inner = spec.get(name), policy.get(name)
        if outer is not None and inner is not None and outer.plain() != inner.plain():
            message = f"`{name}` differs from `{name}` in `loop.spec` on line {outer.mark.line}"
            problems.error("conflicting_keys", message, policy.keys[name], "remove one")


def _read_max_in_flight(node: Node | None, mode: Mode, problems: Problems) -> Node | None:
    check_number(node, "`max_in_flight`", 1, problems)
    if isinstance(node, Scalar) and isinstance(node.value, float):
        problems.error("wrong_type", "`max_in_flight` must be a whole number", node)
    if node is not None and mode == "sequential":
        message = "`max_in_flight` has no effect in a sequential loop"
        problems.warn("no_effect", message, node, "write mode: parallel, or remove it")
    return node


def _check_items(node: Node | None, problems: Problems) -> None:
    """Requires a list, a mapping or one expression as the items of a loop: no other value can be iterated."""
    if not isinstance(node, Scalar) or node.value is None:
        return
    text = node.value.strip() if isinstance(node.value, str) else ""
    if not (text.startswith("{{") and text.endswith("}}")):
        over = re.search(r"\{%-?\s*for\s+\w+\s+in\s+([\w.]+)\s*-?%\}", text)
        text = over[1] if over else text
        hint = f'write in: "{{{{ {text} }}}}"' if text.replace(".", "").isidentifier() else advice.LOOP_HINT
        report_wrong_type(node, "`in`", "a list, a mapping or one {{ expression }}", problems, hint)
