"""Attributes of spans that a playbook names, ``tracing.attributes`` (LANGUAGE §9 *Tracing*)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetl_stream.template import ExpressionError, OverBudget, Scope, Template, render

MAX_CHARS: Final = 256
"""The length at which the text of an attribute is cut."""

MISSING: Final = "noetl.tracing.missing"
"""The attribute that lists the attributes that could not be rendered; this fails no execution."""


def attributes_of(templates: Mapping[str, Template], scope: Scope) -> dict[str, Any]:
    """The rendered attributes: strings, numbers and booleans. Null counts as absent.

    Raises:
        ValueNeeded: one of them reads a result that must be loaded first.
    """
    shown: dict[str, Any] = {}
    missing: list[str] = []
    for name, template in templates.items():
        try:
            value = render(template, scope)
        except (ExpressionError, OverBudget):
            missing.append(name)
            continue
        if isinstance(value, str):
            shown[name] = value[:MAX_CHARS]
        elif isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 2**63):
            shown[name] = value
        elif value is not None:
            missing.append(name)
    return {**shown, MISSING: ", ".join(missing)[:MAX_CHARS]} if missing else shown
