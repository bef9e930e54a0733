"""Reads one mapping of a playbook into a pydantic model.

Unknown, missing, misplaced and mistyped keys become diagnostics, and reading goes on with the defaults, so that all
problems of a file are said at once.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from noetl_stream.playbook.diagnostics import Location, Problems, did_you_mean, listed
from noetl_stream.playbook.model.explain import explain
from noetl_stream.playbook.yaml.nodes import Mapping, MappingKey, Node, Scalar, Sequence, kind_of


@dataclass(frozen=True, slots=True)
class Required:
    """The key must stand in its mapping. ``hint`` shows how to write it."""

    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Reserved:
    """A placeholder of the sources: only its neutral values are accepted (LANGUAGE §1 *Placeholders*)."""

    neutral: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RejectedKey:
    """A key that is refused with the form to write instead (LANGUAGE §3 *Rejected*)."""

    message: str
    hint: str
    code: str = "legacy_syntax"


@dataclass(frozen=True, slots=True)
class PartMark:
    """The key's value is kept as a node: someone else reads it."""


Part = Annotated[Any, PartMark()]
"""A field that holds a :data:`Node` or ``None``."""


class Section(BaseModel):
    """Base of the models of a playbook's mappings.

    ``title`` is for messages, ``shown`` how to write one, ``rejected`` are keys with advice.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True)

    title: ClassVar[str] = "here"
    shown: ClassVar[str | None] = None
    rejected: ClassVar[MappingOf[str, RejectedKey]] = {}


class Placeholders(Section):
    """What the sources reserve under every ``policy`` (v10 §5, §15)."""

    before: Annotated[Any, Reserved()] = None
    after: Annotated[Any, Reserved()] = None
    finally_: Annotated[Any, Reserved()] = Field(None, alias="finally")
    tracing: Annotated[Any, Reserved()] = None
    quotas: Annotated[Any, Reserved()] = None
    compensation: Annotated[Any, Reserved()] = None
    resources: Annotated[Any, Reserved()] = None
    placement: Annotated[Any, Reserved()] = None
    profile: Annotated[Any, Reserved()] = None
    profiles: Annotated[Any, Reserved()] = None


S = TypeVar("S", bound=Section)

_EMPTY: Final[tuple[object, ...]] = (None, {}, [], "")


def read_section(
    node: Node | None, model: type[S], problems: Problems, *, at: Location | None = None, layered: Collection[str] = ()
) -> S:
    """The model of a mapping, with defaults where the file has problems.

    Args:
        node: The mapping; ``None`` and null read as one without keys.
        model: Its keys.
        problems: Takes what is wrong.
        at: Where a missing key is reported; default: at the mapping.
        layered: Keys of inner scopes that may stand here too, and are read by others (LANGUAGE §1 *Layering*).
    """
    if is_null(node):
        return model.model_construct()
    if not isinstance(node, Mapping):
        assert node is not None
        message = f"{model.title} must be a mapping, this is {kind_of(node)}"
        problems.error("wrong_type", message, node, model.shown)
        return model.model_construct()
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    parts: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for name, key in node.keys.items():
        value = node.values[name]
        field = fields.get(name)
        if field is None:
            if name not in layered:
                refuse_key(key, model, problems)
        elif _marker(field, PartMark):
            parts[name] = value
        elif _marker(field, Required) and is_null(value):
            continue
        elif _accepts(field, key, value, problems):
            values[name] = value.plain()
    for name, field in fields.items():
        required = _marker(field, Required)
        if required and is_null(node.get(name)):
            problems.error("missing_key", f"{model.title} needs `{name}`", at or node, required.hint)
    return model.model_construct(**parts, **_valid(node, model, values, problems))


def refuse_key(key: MappingKey, model: type[Section], problems: Problems) -> None:
    """Says why a key cannot stand where it stands."""
    advice = model.rejected.get(key.name)
    if advice:
        problems.error(advice.code, advice.message, key, advice.hint)
        return
    known = [field.alias or name for name, field in model.model_fields.items()]
    hint = did_you_mean(key.name, known) or f"known keys: {listed(known)}"
    problems.error("unknown_key", f"unknown key `{key.name}` in {model.title}", key, hint)


def entries(node: Node | None, what: str, problems: Problems, shown: str | None = None) -> list[Node]:
    """The items of a list; anything else is a diagnostic, whose hint is ``shown``, and no items."""
    if node is None:
        return []
    if isinstance(node, Sequence):
        return node.items
    problems.error("wrong_type", f"{what} must be a list, this is {kind_of(node)}", node, shown)
    return []


def pairs(node: Node | None, what: str, problems: Problems) -> list[tuple[MappingKey, Node]]:
    """The keys and values of a mapping; anything else is a diagnostic and no pairs."""
    if node is None:
        return []
    if isinstance(node, Mapping):
        return [(key, node.values[name]) for name, key in node.keys.items()]
    problems.error("wrong_type", f"{what} must be a mapping, this is {kind_of(node)}", node)
    return []


def text_of(node: Node | None, what: str, problems: Problems) -> str | None:
    """The text of a scalar; anything else is a diagnostic."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return node.value
    if node is not None:
        problems.error("wrong_type", f"{what} must be text, this is {kind_of(node)}", node)
    return None


def is_null(node: Node | None) -> bool:
    """Whether a key is absent or has the value null."""
    return node is None or (isinstance(node, Scalar) and node.value is None)


def _empty(node: Node) -> bool:
    return node.plain() in _EMPTY


def _marker(field: FieldInfo, kind: type[Any]) -> Any:
    return next((item for item in field.metadata if isinstance(item, kind)), None)


def _accepts(field: FieldInfo, key: MappingKey, value: Node, problems: Problems) -> bool:
    """Whether the value is to be validated; placeholders end here."""
    placeholder = _marker(field, Reserved)
    if placeholder is None:
        return True
    if not _empty(value) and value.plain() not in placeholder.neutral:
        allowed = f"; only {listed(placeholder.neutral)} may stand there" if placeholder.neutral else ""
        message = f"`{key.name}` is reserved for a later version{allowed}"
        problems.error("reserved", message, key, "remove the key: it would have no effect")
    return False


def _valid(node: Mapping, model: type[Section], values: dict[str, Any], problems: Problems) -> dict[str, Any]:
    """The values that pass, as the model has them; the others are reported and left out."""
    try:
        model(**values)
    except ValidationError as failure:
        wrongs = explain(failure, {name: node.values[name] for name in values})
        for wrong in wrongs:
            hint = _spelling(model, wrong.key, wrong.at.plain())
            problems.error("wrong_type" if wrong.is_type else "invalid_value", wrong.message, wrong.at, hint)
        bad = {wrong.key for wrong in wrongs}
        return {name: value for name, value in values.items() if name not in bad}
    return values


def _spelling(model: type[Section], name: str, value: object) -> str | None:
    """A hint for words that nearly are one of a closed set, and for text that lost its quotes."""
    field = model.model_fields[name]
    choices = _words(field.annotation)
    if choices:
        near = did_you_mean(str(value), choices)
        return near or f"one of {listed(choices)}"
    takes = {field.annotation, *get_args(field.annotation)}
    if isinstance(value, str) and takes & {int, float, bool}:
        plainly = "write true or false" if bool in takes else "write a number, without quotes"
        return "a template cannot stand here" if "{{" in value else plainly
    return "put it in quotes" if str in takes and isinstance(value, bool | int | float) else None


def _words(annotation: Any) -> list[str]:
    """The words of a ``Literal``, optional or not."""
    inner = get_args(annotation)
    return [item for item in inner if isinstance(item, str)] or [word for item in inner for word in _words(item)]
