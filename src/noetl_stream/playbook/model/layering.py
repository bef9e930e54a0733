"""Defaults of tasks from outer scopes: timeouts and knobs, merged from the outside in (LANGUAGE §1 *Layering*, §5
*Timeouts*; v10 §3.1)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from noetl_stream.playbook.diagnostics import Position, Problems
from noetl_stream.playbook.kinds.inputs import spellings
from noetl_stream.playbook.kinds.spec import Kinds, KindSpec
from noetl_stream.playbook.model.sections import (
    SECONDS,
    Part,
    Section,
    described,
    is_null,
    number_or_template,
    or_null,
    report_wrong_type,
    written_as,
)
from noetl_stream.playbook.plan import Timeouts
from noetl_stream.playbook.yaml.nodes import Mapping, MappingKey, Node, Scalar, holds_template, walk

S = TypeVar("S", bound=Section)

MAX_LAYERED_VALUES: Final = 100
"""The most values, at any depth, of the knobs in one outer ``spec``; every task inside is checked with them."""

_NO_TIMEOUTS: Final = Timeouts()
_NO_KNOBS: Final = Mapping(Position(1, 1), "")


class Layer(msgspec.Struct, frozen=True):
    """Defaults of the tasks in a scope. ``knobs`` are nodes, so that their problems have positions."""

    timeouts: Timeouts = _NO_TIMEOUTS
    knobs: Mapping = _NO_KNOBS

    def merge_over(self, outer: Layer) -> Layer:
        """Merges this layer over an outer one."""
        return Layer(overlay(outer.timeouts, self.timeouts), merge_mappings(outer.knobs, self.knobs))

    def knobs_for(self, kind: KindSpec, own: Mapping) -> Mapping:
        foreign = self.knobs.keys.keys() - spellings(kind.knobs).keys()
        return merge_mappings(self.knobs.drop_keys(foreign), own)


def knobs_of(kinds: Kinds) -> frozenset[str]:
    """The ``spec`` keys of the installed kinds."""
    return frozenset(name for kind in kinds.values() for name in spellings(kind.knobs))


def read_layered(
    node: Node | None, section: type[S], knobs: Collection[str], problems: Problems
) -> tuple[Node | None, S, Layer]:
    """Reads an outer ``spec``: the node with its keys at their places, its section, and the defaults of tasks inside.

    Args:
        knobs: The ``spec`` keys of the installed kinds. A key of ``section`` takes precedence.
    """
    node = section.recover(node, problems, knobs)
    spec = section.from_node(node, problems, layered=knobs)
    if not isinstance(node, Mapping):
        return node, spec, Layer()
    others = {name for name in node.keys if name not in knobs or name in section.model_fields}
    layered = node.drop_keys(others)
    if len(list(walk(layered))) > 1 + MAX_LAYERED_VALUES:
        message = f"the knobs here have more than {MAX_LAYERED_VALUES} values (max_layered_values)"
        problems.error("limit_exceeded", message, next(iter(layered.keys.values())), "move them to the tasks")
        layered = _NO_KNOBS
    return node, spec, Layer(read_timeouts(node.get("timeout"), problems), layered)


def merge_mappings(outer: Mapping, inner: Mapping) -> Mapping:
    """Merges two mappings key by key; otherwise the inner value wins."""
    both = Mapping(inner.mark, inner.pointer, {**outer.keys, **inner.keys}, {**outer.values, **inner.values})
    for name in outer.keys.keys() & inner.keys.keys():
        under, over = outer.values[name], inner.values[name]
        if isinstance(under, Mapping) and isinstance(over, Mapping):
            both.values[name] = merge_mappings(under, over)
    return both


def warn_unused(layer: Layer, kinds: Iterable[KindSpec | None], scope: str, problems: Problems) -> None:
    """Warns of knobs that no task in the scope has, unless the kind of some task is unknown."""
    if not layer.knobs.keys:
        return
    known: set[str] = set()
    for kind in kinds:
        if kind is None or kind.knobs.model_config.get("extra") == "allow":
            return
        known.update(spellings(kind.knobs))
    for name, key in layer.knobs.keys.items():
        if name not in known:
            message = f"`{name}` has no effect: no task in {scope} uses it"
            problems.warn("no_effect", message, key, "remove it")


class TimeoutParts(Section):
    title = "`timeout`"

    total: float | None = described("Seconds for one attempt.", or_null(SECONDS))
    connect: float | None = described("Seconds to connect.", or_null(SECONDS))
    read: float | None = described("Seconds without an answer.", or_null(SECONDS))


class TaskTimeoutParts(Section):
    title = "`timeout`"

    total: Part = described("Seconds for one attempt.", number_or_template(or_null(SECONDS)))
    connect: Part = described("Seconds to connect.", number_or_template(or_null(SECONDS)))
    read: Part = described("Seconds without an answer.", number_or_template(or_null(SECONDS)))


def read_timeouts(node: Node | None, problems: Problems) -> Timeouts:
    """Reads ``timeout``, in seconds greater than 0; ``timeout: 30`` is ``{total: 30}``."""
    if isinstance(node, Scalar):
        if _number(node) is None:
            plainly = written_as(node.value) or "write a number of seconds: timeout: 30"
            hint = "write a constant, or the template in the `timeout` of a task" if holds_template(node) else plainly
            report_wrong_type(node, "`timeout`", "seconds or {total, connect, read}", problems, hint)
        return Timeouts(total=_seconds(_number(node), node, problems))
    node = TimeoutParts.recover(node, problems)
    TimeoutParts.from_node(node, problems)
    parts = node.select_keys(TimeoutParts.model_fields.keys()).values if isinstance(node, Mapping) else {}
    return Timeouts(**{name: _seconds(_number(part), part, problems) for name, part in parts.items()})


def split_timeouts(node: Node | None) -> tuple[Node | None, Mapping | None]:
    """Splits the ``timeout`` of a task into its constants, and the templates among its parts."""
    if not isinstance(node, Scalar | Mapping):
        return node, None
    parts = node.values if isinstance(node, Mapping) else {"total": node}
    rendered: dict[str, Node] = {
        name: part
        for name, part in parts.items()
        if name in TaskTimeoutParts.model_fields and isinstance(part, Scalar) and holds_template(part)
    }
    if not rendered:
        return node, None
    keys = node.keys if isinstance(node, Mapping) else {"total": MappingKey("total", node.mark, node.pointer)}
    templates = Mapping(node.mark, node.pointer, {name: keys[name] for name in rendered}, rendered)
    return node.drop_keys(rendered.keys()) if isinstance(node, Mapping) else None, templates


def overlay(outer: Timeouts, inner: Timeouts) -> Timeouts:
    """Merges the timeouts of two scopes part by part; the inner one wins."""
    return replace(outer, **{part: value for part, value in asdict(inner).items() if value is not None})


def read_rendered_seconds(node: Node | None, what: str, problems: Problems) -> Node | None:
    """Reads a number of seconds greater than 0, or a template; ``None`` if absent or invalid."""
    if isinstance(node, Scalar) and holds_template(node):
        return node
    return None if read_seconds(node, what, problems) is None else node


def read_seconds(node: Node | None, what: str, problems: Problems) -> float | None:
    """Reads a literal number of seconds greater than 0; ``None`` if absent or invalid."""
    if node is None or is_null(node):
        return None
    value = _number(node)
    if value is None:
        is_template = holds_template(node)
        hint = (
            "write a constant: templates are not allowed here"
            if is_template
            else written_as(node.plain()) or "write a number such as 600"
        )
        report_wrong_type(node, what, "a number of seconds", problems, hint)
    return _seconds(value, node, problems, what)


def _number(node: Node) -> float | None:
    value = node.value if isinstance(node, Scalar) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _seconds(value: float | None, at: Node, problems: Problems, what: str = "a timeout") -> float | None:
    if value is None or value > 0:
        return value
    problems.error("invalid_value", f"{what} must be greater than 0 seconds", at, "remove it for no timeout")
    return None
