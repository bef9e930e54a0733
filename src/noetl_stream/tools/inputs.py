"""The base of input and knob models, and the check of rendered inputs that every kind starts with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, ValidationError

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.tools.contract import ToolFailure


class Inputs(BaseModel):
    """Inputs of a kind. Strict: a string never becomes a number (LANGUAGE §1)."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Knobs(BaseModel):
    """A kind's own keys under ``spec``."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], values: Mapping[str, Any]) -> Model:
    """The rendered inputs as their model.

    Raises:
        ToolFailure: kind ``invalid_input``; the message lists every field with its reason, and no values, since an
            input may hold a secret.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        reasons = dict.fromkeys(_reason(model, values, dict(problem)) for problem in error.errors(include_url=False))
        raise invalid_input("; ".join(reasons)) from None


def invalid_input(message: str) -> ToolFailure:
    """The failure of an input that cannot be used."""
    return ToolFailure(ErrorInfo(kind="invalid_input", message=message))


def _reason(model: type[BaseModel], values: Mapping[str, Any], problem: dict[str, Any]) -> str:
    location = [str(part) for part in problem["loc"]]
    if problem["type"] == "extra_forbidden" and len(location) == 1:
        return f"{location[0]}: {_unknown(model, values, location[0])}"
    # Pydantic adds the tried member of a union to the place ("command.list[str]"), which says nothing to an author.
    shown = [part for part in location if part not in _TYPE_NAMES and "[" not in part]
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{'.'.join(shown)}: {message[:1].lower()}{message[1:]}" if shown else message


def _unknown(model: type[BaseModel], values: Mapping[str, Any], name: str) -> str:
    for field in model.model_fields.values():
        alias = field.validation_alias
        if isinstance(alias, AliasChoices) and name in alias.choices:
            other = next((str(choice) for choice in alias.choices if choice in values and choice != name), None)
            return f"says the same as {other}; give one of them"
    return "is no input of this kind"


_TYPE_NAMES = frozenset({"str", "int", "float", "bool", "list", "dict", "none"})
