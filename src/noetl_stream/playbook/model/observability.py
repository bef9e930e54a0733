"""Observability of a playbook, as read: events that steps emit (LANGUAGE §7 *Emitted events*), and attributes of spans
(LANGUAGE §9 *Tracing*).
"""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingOf
from typing import Annotated, Any, Final, get_args

import msgspec

from noetl_stream.model.events import Boundary
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.sections import (
    MAPPING,
    Part,
    Required,
    Section,
    described,
    entries,
    is_empty,
    is_null,
    list_of,
    or_empty,
    or_null,
    pairs,
    ref,
    report_wrong_type,
)
from noetl_stream.playbook.suggestions import list_names, nearest
from noetl_stream.playbook.vocabulary.names import MAX_NAME_CHARS, check_identifier
from noetl_stream.playbook.yaml.nodes import Mapping, Node, Scalar, kind_of

BOUNDARIES: Final[tuple[Boundary, ...]] = get_args(Boundary)
MAX_EVENTS: Final = 20
"""The most events that a step may emit."""

MAX_ATTRIBUTES: Final = 32
"""The most attributes of one scope."""

OWN_PREFIX: Final = "noetl."
ATTRIBUTE_NAME: Final = re.compile(r"^(?!noetl\.)[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*$")

_EXAMPLE: Final = 'write emit: { events: [ { name: order_shipped, data: { order: "{{ … }}" } } ] }'


class Emit(Section):
    title = "`emit`"
    example = _EXAMPLE

    events: Part = described(
        "Events of its own that the step emits when a run of it begins or ends.",
        or_empty({**list_of(ref("EmitEntry")), "maxItems": MAX_EVENTS}),
    )


class EmitEntry(Section):
    title = "an event of `emit`"
    example = _EXAMPLE

    name: Annotated[str, Required("{ name: order_shipped, … }")] = described(
        "The name of the event, by which others find it.", ref("identifier"), default=""
    )
    on: Part = described(
        "When it is emitted: `started`, `completed`, `failed`. Default: [completed].",
        or_null({"type": "array", "items": {"enum": list(BOUNDARIES)}, "minItems": 1}),
    )
    when: Part = described("The condition. Without one, always.", ref("guard"))
    data: Part = described("What the event says: templates.", MAPPING)


class SpanAttributes(Section):
    title = "`tracing`"
    example = 'write tracing: { attributes: { shop.order: "{{ … }}" } }'

    attributes: Part = described(
        "Attributes of its spans: texts, numbers, booleans, or templates of them.",
        or_null(
            {
                "type": "object",
                "maxProperties": MAX_ATTRIBUTES,
                "propertyNames": {"pattern": ATTRIBUTE_NAME.pattern, "maxLength": MAX_NAME_CHARS},
                "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
            }
        ),
    )


class EmitDraft(msgspec.Struct, frozen=True):
    """An event of a step as read."""

    event: str
    on: frozenset[Boundary]
    when: Node | None
    data: Mapping | None
    at: Node


def read_emit(node: Node | None, problems: Problems) -> list[EmitDraft]:
    """Reads ``step.spec.policy.emit``, if present."""
    listed = Emit.from_node(node, problems).events
    items = [] if is_empty(listed) else entries(listed, "`events`", problems, _EXAMPLE)
    if len(items) > MAX_EVENTS:
        message = f"`events` has {len(items)} entries; a step emits at most {MAX_EVENTS}"
        problems.error("limit_exceeded", message, items[MAX_EVENTS], "leave some out, or emit them from other steps")
    return [draft for item in items[:MAX_EVENTS] if (draft := _read_event(item, problems))]


def read_tracing(node: Node | None, problems: Problems) -> MappingOf[str, Node]:
    """Reads the attributes of ``policy.tracing``, if present."""
    if node is None or is_empty(node):
        return {}
    read = SpanAttributes.from_node(node, problems).attributes
    written = [] if read is None or is_null(read) else pairs(read, "`attributes`", problems)
    if len(written) > MAX_ATTRIBUTES:
        message = f"`attributes` has {len(written)} entries; a scope has at most {MAX_ATTRIBUTES}"
        problems.error("limit_exceeded", message, written[MAX_ATTRIBUTES][0], "leave some out")
    found: dict[str, Node] = {}
    for key, value in written[:MAX_ATTRIBUTES]:
        if key.name.startswith(OWN_PREFIX):
            message = f"attributes named `{OWN_PREFIX}…` are those of the engine"
            problems.error("reserved_name", message, key, "use a name of your own: shop.order")
        elif len(key.name) > MAX_NAME_CHARS or not ATTRIBUTE_NAME.match(key.name):
            hint = f"use letters, digits, `_` and dots between: shop.order, up to {MAX_NAME_CHARS} characters"
            problems.error("invalid_name", f"`{key.name}` is not the name of an attribute", key, hint)
        elif not isinstance(value, Scalar):
            report_wrong_type(value, f"the attribute `{key.name}`", "text, a number, a boolean or a template", problems)
        else:
            found[key.name] = value
    return found


def _read_event(node: Node, problems: Problems) -> EmitDraft | None:
    if not isinstance(node, Mapping):
        report_wrong_type(node, EmitEntry.title, "a mapping", problems, _EXAMPLE)
        return None
    node = EmitEntry.recover(node, problems)
    read = EmitEntry.from_node(node, problems)
    if read.name:
        check_identifier(read.name, "the name of an event", node.values["name"], problems)
    data: Any = None if is_null(read.data) else read.data
    if data is not None and not isinstance(data, Mapping):
        report_wrong_type(data, "`data`", "a mapping", problems, 'write data: { order: "{{ … }}" }')
        data = None
    return EmitDraft(read.name, _read_on(read.on, problems), None if is_null(read.when) else read.when, data, node)


def _read_on(node: Node | None, problems: Problems) -> frozenset[Boundary]:
    if node is None or is_null(node):
        return frozenset(["completed"])
    found: list[Boundary] = []
    if isinstance(node, Scalar):
        meant = _moment_in(node.plain()) or "completed"
        problems.error("wrong_type", f"`on` must be a list, not {kind_of(node)}", node, f"write on: [ {meant} ]")
        return frozenset(["completed"])
    items = entries(node, "`on`", problems, "write on: [completed, failed]")
    for item in items:
        word = item.plain()
        if word in BOUNDARIES:
            found.append(word)
        else:
            near = _moment_in(word)
            hint = f"write `{near}`" if near else f"moments: {list_names(BOUNDARIES)}"
            problems.error("invalid_value", f"`{word}` is not a moment of a step run", item, hint)
    if not items and not problems.has_errors:
        problems.error("invalid_value", "`on` is empty", node, "write on: [completed]")
    return frozenset(found)


_MOMENTS: Final = {
    **dict.fromkeys(("start", "begin", "before", "enter", "step.started", "step.enter"), "started"),
    **dict.fromkeys(
        ("done", "end", "exit", "after", "success", "ok", "step.done", "loop.done", "step.exit"), "completed"
    ),
    **dict.fromkeys(("error", "failure", "step.failed"), "failed"),
}
"""Words for moments of a step run, among them the names of events."""


def _moment_in(word: object) -> str | None:
    """The moment of a step run that a word means."""
    return _MOMENTS.get(word.lower()) or nearest(word, BOUNDARIES) if isinstance(word, str) else None
