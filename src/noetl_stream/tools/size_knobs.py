"""The operator's bound on the options for how much a task may receive or return."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

from noetl_stream.settings.tools import MAX_RESULT_BYTES_VARIABLE
from noetl_stream.tools.contract import ToolFailure


def bounded_knobs(model: type[BaseModel], knobs: Mapping[str, Any], most_bytes: int) -> Mapping[str, Any]:
    """Returns the knobs of a task with defaults of ``max_…_bytes`` lowered to the operator's bound.

    Raises:
        ToolFailure: ``not_allowed``; the playbook asks for more.
    """
    sizes = _sizes(model)
    if not sizes:
        return knobs
    for name in sizes.keys() & knobs.keys():
        asked = knobs[name]
        if isinstance(asked, int) and asked > most_bytes:
            bound = f"{MAX_RESULT_BYTES_VARIABLE}: {most_bytes:,} bytes"
            message = f"{name}: {asked} is more than the worker's operator allows ({bound})"
            raise ToolFailure.of("not_allowed", message)
    lowered = {name: most_bytes for name, default in sizes.items() if default > most_bytes and name not in knobs}
    return {**knobs, **lowered} if lowered else knobs


@cache
def _sizes(model: type[BaseModel]) -> dict[str, int]:
    """Returns the size knobs of a kind, with their defaults."""
    defaults = {name: field.default for name, field in model.model_fields.items()}
    return {
        name: default
        for name, default in defaults.items()
        if name.startswith("max_") and name.endswith("_bytes") and isinstance(default, int)
    }
