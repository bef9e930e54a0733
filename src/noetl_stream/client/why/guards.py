"""Guards with the values they read: what a person must know to see why one does not hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noetl_stream.client.why.reason import shown
from noetl_stream.template import ExpressionError, Guard, ReferenceNeeded, Scope, holds
from noetl_stream.template.runtime.evaluation import NoValue, value_at


def guard_document(guard: Guard, scope: Scope) -> dict[str, Any]:
    """``{"when", "holds", "values": {path: value}, "missing": [paths]}`` of a guard by what it reads now.

    ``holds`` is ``None`` where it cannot be said without loading a result, or at all.
    """
    values: dict[str, Any] = {}
    missing: list[str] = []
    for path in sorted(guard.paths):
        name = ".".join(path)
        try:
            found = value_at(path, scope)
        except ReferenceNeeded as needed:
            found = f"({needed.reference.size} bytes, kept by reference)"
        if isinstance(found, NoValue):
            missing.append(name)
        else:
            values[name] = found
    return {"when": guard.source, "holds": _holds(guard, scope), "values": values, "missing": missing}


def values_said(documents: Sequence[dict[str, Any]]) -> str:
    """What the guards read, in words: ``ctx.approved is missing, workload.limit is 3``."""
    said: dict[str, str] = {}
    for document in documents:
        said |= {name: f"{name} is {shown(value)}" for name, value in document["values"].items()}
        said |= {name: f"{name} is not there" for name in document["missing"]}
    return ", ".join(said.values())


def _holds(guard: Guard, scope: Scope) -> bool | None:
    try:
        return holds(guard, scope)
    except (ReferenceNeeded, ExpressionError):
        return None
