"""Defaults of tasks from outer scopes: timeouts and knobs, merged from the outside in (LANGUAGE §1 *Layering*; v10
§3.1)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from noetl_stream.playbook.diagnostics import Position, Problems
from noetl_stream.playbook.kinds.inputs import spellings
from noetl_stream.playbook.kinds.spec import Kinds, KindSpec
from noetl_stream.playbook.model.sections import Section, read_section
from noetl_stream.playbook.model.timeouts import overlay, read_timeouts
from noetl_stream.playbook.plan import Timeouts
from noetl_stream.playbook.yaml.nodes import Mapping, Node, count_of

S = TypeVar("S", bound=Section)

MAX_LAYERED_VALUES: Final = 100
"""Values, at any depth, of the knobs in one outer ``spec``; every task inside is checked with them."""

_NO_TIMEOUTS: Final = Timeouts()
_NO_KNOBS: Final = Mapping(Position(1, 1), "")


@dataclass(frozen=True, slots=True)
class Layer:
    """Defaults of the tasks in a scope. ``knobs`` are nodes, so that their problems have positions."""

    timeouts: Timeouts = _NO_TIMEOUTS
    knobs: Mapping = _NO_KNOBS

    def over(self, outer: Layer) -> Layer:
        """This layer merged over an outer one."""
        return Layer(overlay(outer.timeouts, self.timeouts), merged(outer.knobs, self.knobs))

    def knobs_for(self, kind: KindSpec, own: Mapping) -> Mapping:
        """The knobs of a task of this kind with its ``own`` knobs."""
        foreign = self.knobs.keys.keys() - spellings(kind.knobs).keys()
        return merged(self.knobs.without(foreign), own)


def knobs_of(kinds: Kinds) -> frozenset[str]:
    """The ``spec`` keys of the installed kinds."""
    return frozenset(name for kind in kinds.values() for name in spellings(kind.knobs))


def read_layered(node: Node | None, section: type[S], knobs: Collection[str], problems: Problems) -> tuple[S, Layer]:
    """Reads an outer ``spec``: its own section, and the defaults for the tasks inside.

    Args:
        knobs: The ``spec`` keys of the installed kinds. A key of ``section`` takes precedence.
    """
    spec = read_section(node, section, problems, layered=knobs)
    if not isinstance(node, Mapping):
        return spec, Layer()
    others = {name for name in node.keys if name not in knobs or name in section.model_fields}
    layered = node.without(others)
    if count_of(layered) > MAX_LAYERED_VALUES:
        message = f"the knobs here have more than {MAX_LAYERED_VALUES} values (max_layered_values)"
        problems.error("limit_exceeded", message, next(iter(layered.keys.values())), "move them to the tasks")
        layered = _NO_KNOBS
    return spec, Layer(read_timeouts(node.get("timeout"), problems), layered)


def merged(outer: Mapping, inner: Mapping) -> Mapping:
    """Merges mappings key by key; otherwise the inner value wins."""
    both = Mapping(inner.mark, inner.pointer, {**outer.keys, **inner.keys}, {**outer.values, **inner.values})
    for name in outer.keys.keys() & inner.keys.keys():
        under, over = outer.values[name], inner.values[name]
        if isinstance(under, Mapping) and isinstance(over, Mapping):
            both.values[name] = merged(under, over)
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
