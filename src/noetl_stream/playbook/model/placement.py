"""Placement as read: the labels that the pool of a step must or should have, and its resources (LANGUAGE §15)."""

from __future__ import annotations

import re
from typing import Final

from noetl_stream.model.placement import LABEL, RESOURCES, Placement, label_value
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.sections import (
    Part,
    Schema,
    Section,
    described,
    is_empty,
    is_null,
    or_null,
    pairs,
    report_wrong_type,
)
from noetl_stream.playbook.yaml.nodes import Node, Scalar, holds_template

_LABELS: Final[Schema] = or_null({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}})
_AMOUNT: Final[Schema] = or_null({"type": "number", "exclusiveMinimum": 0})
_EXAMPLE: Final = "{ required: { zone: eu }, preferred: { disk: ssd } }"


class PlacementLabels(Section):
    title = "`placement`"
    example = f"write placement: {_EXAMPLE}"

    required: Part = described("Labels that the pool must have.", _LABELS)
    preferred: Part = described("Labels of which the pool should have as many as possible.", _LABELS)


class Resources(Section):
    title = "`resources`"
    example = "write resources: { memory_mb: 4096, cpu: 2 }"

    memory_mb: Part = described("The memory that each worker of the pool must have at least, in MB.", _AMOUNT)
    cpu: Part = described("The CPUs that each worker of the pool must have at least.", _AMOUNT)


def read_placement(placement: Node | None, resources: Node | None, problems: Problems) -> Placement | None:
    """Reads ``placement`` and ``resources`` of a ``spec``; ``None`` without both."""
    if is_empty(placement) and is_empty(resources):
        return None
    labels = PlacementLabels.from_node(None if is_empty(placement) else placement, problems)
    needed = Resources.from_node(None if is_empty(resources) else resources, problems)
    amounts = {name: _read_amount(getattr(needed, name), name, problems) for name in RESOURCES}
    return Placement(
        required=_read_labels(labels.required, "`required`", problems),
        preferred=_read_labels(labels.preferred, "`preferred`", problems),
        resources={name: amount for name, amount in amounts.items() if amount is not None},
    )


def _read_labels(node: Node | None, what: str, problems: Problems) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in [] if is_null(node) else pairs(node, what, problems):
        text = label_value(value.plain()) if isinstance(value, Scalar) else None
        if not LABEL.fullmatch(key.name):
            hint = "use 1 to 64 letters, digits, `_`, `-`, `.` and `/`"
            problems.error("invalid_name", f"invalid label `{key.name}` of a pool", key, hint)
        elif holds_template(value):
            message = f"label `{key.name}` must be a constant: the pool is chosen when the execution starts"
            problems.error("wrong_type", message, value, "write the value")
        elif text is None:
            hint = "write text, a number or a boolean, without white space, `;` and `=`"
            problems.error("invalid_value", f"label `{key.name}` has a value that no pool can have", value, hint)
        else:
            found[key.name] = text
    return found


_AMOUNTS: Final = {"memory_mb": "in MB, such as 4096", "cpu": "such as 2, or 0.5 for half of one"}
_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(m|[KMGT]i?B?|)")
_MB_OF: Final = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}


def _amount_in(value: object, name: str) -> float | None:
    """The amount in a quantity as Kubernetes writes it: 4096 in ``4Gi`` of memory, 0.5 in ``500m`` of a CPU."""
    found = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if found is None or (found[2] == "m") != (name == "cpu" and value != found[1]):
        return None
    return float(found[1]) * (0.001 if found[2] == "m" else _MB_OF.get(found[2][:1], 1))


def _read_amount(node: Node | None, name: str, problems: Problems) -> float | None:
    if node is None or is_null(node):
        return None
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        amount = _amount_in(value, name)
        hint = f"write {name}: {amount:g}" if amount else f"it is a number {_AMOUNTS[name]}"
        report_wrong_type(node, f"`{name}`", "a number", problems, hint)
        return None
    if value <= 0:
        problems.error("invalid_value", f"`{name}` must be greater than 0, not {value:g}", node, "leave it out for any")
        return None
    return float(value)
