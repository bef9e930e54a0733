"""The loop of a step as read, one level or several nested (LANGUAGE §6; v10 §5.3, §6.4, §8)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from noetl_stream.playbook.compile.layering import Layer, read_layered
from noetl_stream.playbook.diagnostics import Location, Position, Problems
from noetl_stream.playbook.model.document import PolicyFailure
from noetl_stream.playbook.model.policy import check_number
from noetl_stream.playbook.model.sections import (
    Part,
    Placeholders,
    RejectedKey,
    Reserved,
    Section,
    is_null,
    read_section,
)
from noetl_stream.playbook.plan import FailureMode
from noetl_stream.playbook.vocabulary import legacy, misplaced
from noetl_stream.playbook.vocabulary.names import check_name
from noetl_stream.playbook.yaml.nodes import Mapping, MappingKey, Node, Scalar, kind_of

Mode = Literal["sequential", "parallel"]
Placement = Literal["local", "distributed"]

MAX_LOOP_LEVELS: Final = 8

READ_ONLY: Final = frozenset(["index", "count", "parent"])
"""Keys of ``iter`` that every loop level sets (LANGUAGE §5)."""


class Loop(Section):
    title = "`loop`"
    example = f"write {legacy.LOOP_PARTS}"
    rejected: ClassVar[MappingOf[str, RejectedKey]] = legacy.LOOP | misplaced.LOOP

    in_: Part = Field(None, alias="in")
    iterator: str | None = None
    spec: Part = None
    loop: Part = None


class LoopSpec(Section):
    title = "`loop.spec`"
    rejected: ClassVar[MappingOf[str, RejectedKey]] = misplaced.LOOP_SPEC

    mode: Mode | None = None
    max_in_flight: Part = None
    exec: Placement | None = None
    timeout: Part = None
    policy: Part = None


class LoopPolicy(Placeholders):
    title = "the loop's policy"
    rejected: ClassVar[MappingOf[str, RejectedKey]] = legacy.CONTROL | {"rules": legacy.STEP_POLICY["rules"]}

    mode: Mode | None = None
    max_in_flight: Part = None
    exec: Placement | None = None
    failure: Part = None
    ordering: Annotated[Any, Reserved()] = None
    reducers: Annotated[Any, Reserved()] = None
    backpressure: Annotated[Any, Reserved()] = None
    partitioning: Annotated[Any, Reserved()] = None


@dataclass(frozen=True, slots=True)
class LoopDraft:
    """One level of a loop as read; ``inner`` is the level inside. Values not given are ``None``."""

    at: MappingKey
    items: Node | None
    iterator: str | None
    mode: Mode
    placement: Placement
    max_in_flight: Node | None
    failure_mode: FailureMode | None
    layer: Layer
    inner: LoopDraft | None

    def levels(self) -> Iterator[LoopDraft]:
        """This level and those inside it, outermost first."""
        level: LoopDraft | None = self
        while level is not None:
            yield level
            level = level.inner


@dataclass(frozen=True, slots=True)
class _OuterLevels:
    """The levels around one: the positions of their iterators, and of the first ``exec: local``."""

    depth: int
    iterators: MappingOf[str, Position]
    local: Position | None

    def with_level(self, iterator: str | None, at: Node | None, local: Position | None) -> _OuterLevels:
        named = {iterator: at.mark} if iterator is not None and at is not None else {}
        return _OuterLevels(self.depth + 1, {**self.iterators, **named}, self.local or local)


def read_loop(node: Node, at: MappingKey, knobs: Collection[str], problems: Problems) -> LoopDraft:
    """The loop of a step. Every level must have ``in`` and ``iterator``."""
    return _read_level(node, at, _OuterLevels(1, {}, None), knobs, problems)


def _read_level(
    node: Node, at: MappingKey, outer: _OuterLevels, knobs: Collection[str], problems: Problems
) -> LoopDraft:
    loop = read_section(node, Loop, problems)
    if isinstance(node, Mapping) or is_null(node):
        for name, is_missing in (("in", is_null(loop.in_)), ("iterator", loop.iterator is None)):
            if is_missing:
                problems.error("missing_key", f"`loop` needs `{name}`", at, legacy.LOOP_PARTS)
    iterator_at = node.get("iterator") if isinstance(node, Mapping) else None
    if loop.iterator is not None and iterator_at is not None:
        _check_iterator(loop.iterator, iterator_at, outer, problems)
    spec, layer = read_layered(loop.spec, LoopSpec, knobs, problems)
    policy = read_section(spec.policy, LoopPolicy, problems)
    _check_agreement(loop.spec, spec.policy, problems)
    _check_items(loop.in_, problems)
    mode = spec.mode or policy.mode or "sequential"
    explicit = spec.exec or policy.exec
    exec_at = _place_of("exec", loop.spec, spec.policy) or at
    inner = None
    if not is_null(loop.loop) and isinstance(node, Mapping):
        around = outer.with_level(loop.iterator, iterator_at, exec_at.mark if explicit == "local" else None)
        inner = _read_inner(loop.loop, node.keys["loop"], around, knobs, problems)
    return LoopDraft(
        at=at,
        items=loop.in_,
        iterator=loop.iterator,
        mode=mode,
        placement=_placement(explicit, mode, inner, outer, exec_at, problems),
        max_in_flight=_read_max_in_flight(spec.max_in_flight or policy.max_in_flight, mode, problems),
        failure_mode=read_section(policy.failure, PolicyFailure, problems).mode,
        layer=layer,
        inner=inner,
    )


def _read_inner(
    node: Node, at: MappingKey, outer: _OuterLevels, knobs: Collection[str], problems: Problems
) -> LoopDraft | None:
    if outer.depth > MAX_LOOP_LEVELS:
        message = f"loops nested more than {MAX_LOOP_LEVELS} levels deep (max_loop_levels)"
        problems.error("limit_exceeded", message, at, "flatten the list in a separate step, or call a playbook")
        return None
    return _read_level(node, at, outer, knobs, problems)


def _placement(
    explicit: Placement | None,
    mode: Mode,
    inner: LoopDraft | None,
    outer: _OuterLevels,
    at: Location,
    problems: Problems,
) -> Placement:
    """Where a level's iterations run (LANGUAGE §6): in the worker that runs the level around it, or anywhere."""
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
        message = f"duplicate iterator `{name}`, first on line {outer.iterators[name].line}"
        problems.error(
            "duplicate_name", message, at, "rename one: iterators must be unique across the levels of a loop"
        )


def _place_of(name: str, spec: Node | None, policy: Node | None) -> Location | None:
    """The location of a key that ``loop.spec`` or its policy may hold."""
    written = [node.keys[name] for node in (spec, policy) if isinstance(node, Mapping) and name in node.keys]
    return written[0] if written else None


def _check_agreement(spec: Node | None, policy: Node | None, problems: Problems) -> None:
    if not isinstance(spec, Mapping) or not isinstance(policy, Mapping):
        return
    for name in ("mode", "max_in_flight", "exec"):
        outer, inner = spec.get(name), policy.get(name)
        if outer is not None and inner is not None and outer.plain() != inner.plain():
            line = outer.mark.line
            message = f"`{name}` differs from `{name}` in `loop.spec` on line {line}"
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
    """Requires a list, a mapping or one expression: nothing else can be iterated."""
    if not isinstance(node, Scalar) or node.value is None:
        return
    text = node.value.strip() if isinstance(node.value, str) else ""
    if not (text.startswith("{{") and text.endswith("}}")):
        hint = f'write in: "{{{{ {text} }}}}"' if text.replace(".", "").isidentifier() else legacy.LOOP_PARTS
        message = f"`in` must be a list, a mapping or one {{{{ expression }}}}, not {kind_of(node)}"
        problems.error("wrong_type", message, node, hint)
