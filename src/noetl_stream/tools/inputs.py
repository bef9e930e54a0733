"""Models and validation of inputs and knobs, and the input ``auth`` (LANGUAGE §11)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from noetl_stream.errors import UsageError
from noetl_stream.playbook.kinds.keychain import check_credential_name
from noetl_stream.settings.tools import MAX_RESULT_BYTES_VARIABLE, OWN_PREFIX, ToolSettings
from noetl_stream.tools.contract import ToolCall, ToolFailure


class Inputs(BaseModel):
    """Inputs of a kind. Strict: text never becomes a number (LANGUAGE §1)."""

    model_config = ConfigDict(defer_build=True, extra="forbid", strict=True, frozen=True)


class Knobs(BaseModel):
    """A kind's own keys under ``spec``."""

    model_config = ConfigDict(defer_build=True, extra="forbid", strict=True, frozen=True)


class OwnSettings(BaseModel):
    """The operator's settings of a kind from a plugin. The class of the kind names its model as ``settings``."""

    model_config = ConfigDict(defer_build=True, extra="forbid", strict=True, frozen=True)


Model = TypeVar("Model", bound=BaseModel)
AUTH_ALIASES: Final = AliasChoices("auth", "credential")
Auth = Annotated[str | dict[str, Any], AfterValidator(check_credential_name)]
"""The name of a credential, or its value as a mapping."""


def validated(model: type[Model], values: Mapping[str, Any]) -> Model:
    """Validates the rendered inputs of a task.

    Raises:
        ToolFailure: kind ``invalid_input``, or ``credential`` if only names of credentials are invalid. The message
            lists the invalid fields with reasons but without values, which may be secret.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        kind = "credential" if {problem["type"] for problem in problems} == {"credential"} else "invalid_input"
        reasons = dict.fromkeys(_reason(model, values, dict(problem)) for problem in problems)
        raise ToolFailure.of(kind, "; ".join(reasons)) from None


def invalid_input(message: str) -> ToolFailure:
    return ToolFailure.of("invalid_input", message)


def own_settings(model: type[Model], kind: str, settings: ToolSettings) -> Model:
    """Returns the operator's settings for the kind, from ``NOETL_TOOL_<KIND>``.

    Raises:
        UsageError: A setting is unknown or invalid.
    """
    try:
        return model.model_validate(settings.own.get(kind, {}))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        hint = f"its settings are {', '.join(model.model_fields)}"
        raise UsageError(f"{OWN_PREFIX}{kind.upper()}: {where}: {problem['msg']}", hint=hint) from None


def auth_field(default: Any, description: str) -> Any:
    """Makes the field ``auth`` of an input model, with its synonym ``credential``."""
    return Field(default=default, validation_alias=AUTH_ALIASES, description=description)


async def credential_of(call: ToolCall, auth: Auth) -> str | dict[str, Any]:
    """Returns the credential that ``auth`` names, or ``auth`` itself if it is a mapping.

    Raises:
        ToolFailure: kind ``credential`` if no credential has that name.
    """
    return await call.credential(auth) if isinstance(auth, str) else auth


def bad_credential(auth: Auth, reason: str) -> ToolFailure:
    """Makes the failure for an unusable credential. Never shows its value."""
    name = f"credential {auth!r}" if isinstance(auth, str) else "auth"
    return ToolFailure.of("credential", f"{name}: {reason}")


def text_entry(auth: Auth, credential: dict[str, Any], key: str) -> str | None:
    """Returns the text of the entry ``key`` of a credential; ``None`` if it is missing.

    Raises:
        ToolFailure: kind ``credential`` if the entry is not text.
    """
    value = credential.get(key)
    if value is None or isinstance(value, str):
        return value
    raise bad_credential(auth, f"{key} must be text")


def _reason(model: type[BaseModel], values: Mapping[str, Any], problem: dict[str, Any]) -> str:
    location = [str(part) for part in problem["loc"]]
    if problem["type"] == "extra_forbidden" and len(location) == 1:
        return f"{location[0]}: {_unknown(model, values, location[0])}"
    # Pydantic adds the attempted member of a union to the location ("command.list[str]"), which does not help authors.
    shown = [*location[:1], *(part for part in location[1:] if part not in _TYPE_NAMES and "[" not in part)]
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{'.'.join(shown)}: {message[:1].lower()}{message[1:]}" if shown else message


def _unknown(model: type[BaseModel], values: Mapping[str, Any], name: str) -> str:
    for field in model.model_fields.values():
        alias = field.validation_alias
        if isinstance(alias, AliasChoices) and name in alias.choices:
            other = next((str(choice) for choice in alias.choices if choice in values and choice != name), None)
            return f"is the same input as {other}; remove one"
    return "unknown input"


_TYPE_NAMES: Final = frozenset({"str", "int", "float", "bool", "list", "dict", "none"})


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
