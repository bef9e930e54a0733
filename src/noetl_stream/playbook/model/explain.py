"""Turns pydantic validation errors into messages with positions in the playbook."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from noetl_stream.playbook.yaml.nodes import Node, descend, kind_of

_SHOULD: Final = re.compile(r"^[A-Z]\w+ should")
_TYPES: Final = {
    "string_type": "text",
    "bool_type": "a boolean",
    "bool_parsing": "a boolean",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "none_required": "null",
}


@dataclass(frozen=True, slots=True)
class InvalidValue:
    """One invalid value. ``key`` is the key of the validated mapping that holds it."""

    key: str
    at: Node
    message: str
    is_type: bool


def explain(failure: ValidationError, values: Mapping[str, Node]) -> list[InvalidValue]:
    """The invalid values, one entry per position. Errors from the members of a union become one message.

    Args:
        failure: The error of validating a mapping of plain values.
        values: The nodes of those values. Errors at other keys are dropped.
    """
    found: dict[str, tuple[str, Node, list[Any]]] = {}
    for error in failure.errors(include_url=False):
        key = str(error["loc"][0]) if error["loc"] else ""
        if key in values:
            at = descend(values[key], tuple(error["loc"][1:]))
            found.setdefault(at.pointer, (key, at, []))[2].append(error)
    return [_invalid(key, at, errors) for key, at, errors in found.values()]


def sentence(error: Any) -> str:
    """The message of an error that concerns no single value."""
    message = str(error["msg"])
    return _SHOULD.sub("must", message.removeprefix("Value error, "))


def _invalid(key: str, at: Node, errors: list[Any]) -> InvalidValue:
    wanted = list(dict.fromkeys(_TYPES.get(error["type"], "") for error in errors))
    if all(wanted):
        return InvalidValue(key, at, f"`{key}` must be {' or '.join(wanted)}, not {kind_of(at)}", True)
    other = next(error for error in errors if error["type"] not in _TYPES)
    if other["type"] == "literal_error":
        return InvalidValue(key, at, f"`{key}` must be {other['ctx']['expected']}", False)
    return InvalidValue(key, at, f"`{key}`: {sentence(other)}", False)
