"""The loop block of a step, as read (LANGUAGE §6; v10 §5.3, §8)."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from noetl_stream.playbook import legacy
from noetl_stream.playbook.diagnostics import Place, Problems
from noetl_stream.playbook.document import PolicyFailure
from noetl_stream.playbook.names import check_name
from noetl_stream.playbook.nodes import Key, Mapping, Node, Scalar, kind_of
from noetl_stream.playbook.plan import FailureMode, Timeouts
from noetl_stream.playbook.policy import check_number
from noetl_stream.playbook.sections import (
    Advice,
    Later,
    Part,
    Placeholders,
    Reserved,
    Section,
    is_null,
    read_section,
)
from noetl_stream.playbook.timeouts import read_timeouts

Mode = Literal["sequential", "parallel"]
Placement = Literal["local", "distributed"]


class Loop(Section):
    title = "`loop`"
    rejected: ClassVar[MappingOf[str, Advice]] = legacy.LOOP

    in_: Part = Field(None, alias="in")
    iterator: str | None = None
    spec: Part = None
    loop: Annotated[Any, Later("a loop inside a loop")] = None


class LoopSpec(Section):
    title = "`loop.spec`"

    mode: Mode | None = None
    max_in_flight: Part = None
    exec: Placement | None = None
    timeout: Part = None
    policy: Part = None


class LoopPolicy(Placeholders):
    title = "the loop's policy"
    rejected: ClassVar[MappingOf[str, Advice]] = legacy.CONTROL | {"rules": legacy.STEP_POLICY["rules"]}

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
    """A loop as read; ``None`` where the file says nothing."""

    at: Key
    items: Node | None
    iterator: str | None
    iterator_at: Place | None
    mode: Mode
    placement: Placement
    max_in_flight: Node | None
    failure_mode: FailureMode | None
    timeouts: Timeouts


def read_loop(node: Node, at: Key, knobs: Collection[str], problems: Problems) -> LoopDraft:
    """The loop block; ``in`` and ``iterator`` must both be there."""
    loop = read_section(node, Loop, problems)
    if isinstance(node, Mapping) or is_null(node):
        for name, value in (("in", loop.in_), ("iterator", loop.iterator)):
            if value is None:
                problems.error("missing_key", f"`loop` needs `{name}`", at, legacy.LOOP_PARTS)
    iterator_at = node.get("iterator") if isinstance(node, Mapping) else None
    if loop.iterator is not None and iterator_at is not None:
        _check_iterator(loop.iterator, iterator_at, problems)
    spec = read_section(loop.spec, LoopSpec, problems, layered=knobs)
    policy = read_section(spec.policy, LoopPolicy, problems)
    _check_agreement(loop.spec, spec.policy, problems)
    mode = spec.mode or policy.mode or "sequential"
    max_in_flight = spec.max_in_flight or policy.max_in_flight
    check_number(max_in_flight, "`max_in_flight`", 1, problems)
    _check_whole(max_in_flight, problems)
    _check_items(loop.in_, problems)
    if max_in_flight is not None and mode == "sequential":
        message = "`max_in_flight` has no effect in a sequential loop"
        problems.warn("no_effect", message, max_in_flight, "write mode: parallel, or remove it")
    return LoopDraft(
        at=at,
        items=loop.in_,
        iterator=loop.iterator,
        iterator_at=iterator_at,
        mode=mode,
        placement=spec.exec or policy.exec or ("distributed" if mode == "parallel" else "local"),
        max_in_flight=max_in_flight,
        failure_mode=read_section(policy.failure, PolicyFailure, problems).mode,
        timeouts=read_timeouts(spec.timeout, problems),
    )


def _check_iterator(name: str, at: Node, problems: Problems) -> None:
    if check_name(name, "an iterator's name", at, problems) and name in READ_ONLY:
        problems.error("reserved_name", f"an iterator's name cannot be `{name}`, `iter.{name}` is set by the loop", at)


READ_ONLY = frozenset(["index", "count", "parent"])
"""Keys of ``iter`` that the loop sets (LANGUAGE §5)."""


def _check_agreement(spec: Node | None, policy: Node | None, problems: Problems) -> None:
    if not isinstance(spec, Mapping) or not isinstance(policy, Mapping):
        return
    for name in ("mode", "max_in_flight", "exec"):
        outer, inner = spec.get(name), policy.get(name)
        if outer is not None and inner is not None and outer.plain() != inner.plain():
            line = outer.mark.line
            message = f"`{name}` stands in `loop.spec` (line {line}) and in its policy, with different values"
            problems.error("conflicting_keys", message, policy.keys[name], "remove one of them")


def _check_whole(node: Node | None, problems: Problems) -> None:
    if isinstance(node, Scalar) and isinstance(node.value, float):
        problems.error("wrong_type", "`max_in_flight` must be a whole number", node)


def _check_items(node: Node | None, problems: Problems) -> None:
    """A list, a mapping, or one expression: any other text or scalar can never be iterated."""
    if not isinstance(node, Scalar) or node.value is None:
        return
    text = node.value.strip() if isinstance(node.value, str) else ""
    if not (text.startswith("{{") and text.endswith("}}")):
        hint = f'write in: "{{{{ {text} }}}}"' if text.replace(".", "").isidentifier() else legacy.LOOP_PARTS
        message = f"`in` must be a list, a mapping or one {{{{ expression }}}}, this is {kind_of(node)}"
        problems.error("wrong_type", message, node, hint)
