"""Reads a mapping of a playbook into a pydantic model, whose fields have the JSON Schemas of their values.

Unknown, missing, misplaced and mistyped keys become diagnostics, and reading continues with defaults, so that all
problems of a file are reported at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from collections.abc import Mapping as MappingOf
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Self, TypeAlias, TypeVar, get_args, get_origin

import msgspec
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from noetl_stream.playbook.diagnostics import MAX_DIAGNOSTICS, Location, Problems
from noetl_stream.playbook.suggestions import correct_word, did_you_mean, list_names, nearest
from noetl_stream.playbook.vocabulary.hints import CRON_NAMES, VALUE, RejectedKey, filled, in_seconds, shown_value
from noetl_stream.playbook.yaml.nodes import Mapping, MappingKey, Node, Scalar, Sequence, descend, kind_of

Schema: TypeAlias = dict[str, Any]

ANYTHING: Final[Schema] = {}
NULL: Final[Schema] = {"type": "null"}
SECONDS: Final[Schema] = {"type": "number", "exclusiveMinimum": 0}
MAPPING: Final[Schema] = {"type": ["object", "null"]}


def ref(name: str) -> Schema:
    """The schema that refers to a definition."""
    return {"$ref": f"#/$defs/{name}"}


def or_null(schema: Schema) -> Schema:
    """The schema of a value, or null, which counts as absent."""
    return {"anyOf": [schema, NULL]}


def or_empty(schema: Schema) -> Schema:
    """The schema of a key that was once reserved, whose empty values are still accepted."""
    return {"anyOf": [schema, {"enum": [None, {}, [], ""]}]}


def section(model: str) -> Schema:
    """The schema of a section, given the name of its model, or null."""
    return or_null(ref(model))


def list_of(item: Schema, least: int = 0) -> Schema:
    """The schema of a list with at least this many items."""
    return {"type": "array", "items": item, **({"minItems": least} if least else {})}


def number_or_template(number: Schema) -> Schema:
    """The schema of a number, or of text that renders to one."""
    return {"anyOf": [number, {"type": "string", "pattern": r"\{\{"}]}


def mapping_of(value: Schema) -> Schema:
    """The schema of a mapping of names to values."""
    return {"type": "object", "propertyNames": ref("identifier"), "additionalProperties": value}


def mapping_with(name: str, value: Schema) -> Schema:
    """The schema of a mapping that has this key with such a value."""
    return {"type": "object", "properties": {name: value}, "required": [name]}


def ladder(rule: str, then: Schema) -> Schema:
    """The schema of rules: ``when`` and ``then``, ``when`` and ``then`` …, ``else``."""
    otherwise = {"allOf": [ref("Else"), {"properties": {"then": then}}]}
    rung = {"allOf": [ref(rule), {"required": ["when"], "properties": {"then": then}}]}
    only_else = {"properties": {"else": otherwise}, "additionalProperties": False}
    return list_of({"type": "object", "if": {"required": ["else"]}, "then": only_else, "else": rung}, 1)


_DEPTH: Final = 4
"""The most levels at which a section is searched for the place of a key."""

_SHOULD: Final = re.compile(r"^[A-Z]\w+ should")
_TYPES: Final = {
    "string_type": "text",
    "none_required": "null",
    **dict.fromkeys(("bool_type", "bool_parsing"), "a boolean"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    **dict.fromkeys(("dict_type", "model_type"), "a mapping"),
}
"""The names in messages of the types that pydantic errors ask for."""


class Required(msgspec.Struct, frozen=True):
    """Marks a required key. ``hint`` shows how to write it."""

    hint: str | None = None


PLACED_INSTEAD: Final = "write it into `executor.spec` or the `spec` of a step"
FINALLY_INSTEAD: Final = (
    "executor.spec.policy.finally names a step that runs at every end; "
    "an arc with when: \"{{ event.status == 'error' }}\" goes on after a failure"
)


class Reserved(msgspec.Struct, frozen=True):
    """Marks a reserved key: only neutral values are accepted; ``instead`` replaces it (LANGUAGE §1 *Placeholders*)."""

    neutral: tuple[str, ...] = ()
    instead: str = "remove it"


class PartMark(msgspec.Struct, frozen=True):
    """Marks a key whose value is kept as a node, to be read elsewhere."""


Part = Annotated[Any, PartMark()]
"""A field that holds a :data:`Node` or ``None``."""


def described(description: str, schema: Schema | None = None, *, default: Any = None, alias: str | None = None) -> Any:
    """The field of a key: its description, for editors, and the JSON Schema of its value.

    Args:
        schema: The JSON Schema, required for a :data:`Part`. Default: that of the field's type.
    """
    return Field(default, alias=alias, description=description, json_schema_extra=schema)


_EMPTY: Final[tuple[object, ...]] = (None, {}, [], "")

N = TypeVar("N", Mapping, Node, Node | None)


class Section(BaseModel):
    """Base of the models of a playbook's mappings.

    ``title`` names the mapping in messages, ``example`` is a hint that shows one, ``rejected`` are keys with a hint.
    ``schema_rules`` are JSON Schema for several keys at once.
    """

    model_config = ConfigDict(defer_build=True, extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True)

    title: ClassVar[str] = "here"
    example: ClassVar[str | None] = None
    rejected: ClassVar[MappingOf[str, RejectedKey]] = {}
    schema_rules: ClassVar[Schema] = {}

    @classmethod
    def from_node(
        cls, node: Node | None, problems: Problems, *, at: Location | None = None, layered: Collection[str] = ()
    ) -> Self:
        """Reads a mapping into the model, with defaults where it has problems.

        Args:
            node: The mapping; ``None`` and null count as an empty one.
            problems: Receives the diagnostics.
            at: The place to report a missing key at. Default: the mapping.
            layered: Keys of inner scopes that are valid here too and read elsewhere (LANGUAGE §1 *Layering*).
        """
        if node is None or is_null(node):
            return cls.model_construct()
        if not isinstance(node, Mapping):
            report_wrong_type(node, cls.title, "a mapping", problems, cls.example)
            return cls.model_construct()
        node = cls.recover(node, problems, layered)
        fields = {field.alias or name: field for name, field in cls.model_fields.items()}
        parts: dict[str, Any] = {}
        values: dict[str, Any] = {}
        for name, key in node.keys.items():
            value = node.values[name]
            field = fields.get(name)
            if field is None:
                if name not in layered:
                    _refuse_key(node, name, cls, problems)
            elif _marker(field, PartMark):
                parts[name] = value
            elif _marker(field, Required) and is_null(value):
                continue
            elif _accepts(field, key, value, problems):
                values[name] = value.plain()
        for name, field in fields.items():
            required = _marker(field, Required)
            if required and is_null(node.get(name)):
                problems.error("missing_key", f"{cls.title} needs `{name}`", at or node, required.hint)
        return cls.model_construct(**parts, **_valid_values(node, cls, values, problems))

    @classmethod
    def recover(cls, node: N, problems: Problems, layered: Collection[str] = ()) -> N:
        """Moves misspelt, older and misplaced keys of ``node`` to their places, after reporting them.

        Their values are then checked like the others. A key whose place is taken stays, for :meth:`from_node` to
        report.
        """
        known: list[str] = keys_of(cls)
        if not isinstance(node, Mapping) or node.keys.keys() <= {*known, *layered}:
            return node
        node = _indent_lost(node, cls, {*known, *layered}, problems)
        for name in _unknown_keys(node, known):
            advice = cls.rejected.get(name)
            deeper = () if advice or name in layered else _deeper(cls).get(name, ())
            word = None if advice or deeper or name in layered else correct_word(name, known)
            place = advice.place if advice else deeper or ((word,) if word else ())
            if place and (moved := node.move(name, place)):
                _refuse_key(node, name, cls, problems)
                node = moved
        return node

    @classmethod
    def read_whole(cls, node: N, problems: Problems) -> tuple[N, Self]:
        """Reads a mapping, and returns it with its keys at their places, too."""
        node = cls.recover(node, problems)
        return node, cls.from_node(node, problems)


class Placeholders(Section):
    """Keys that are reserved in every ``policy`` (v10 §5, §15)."""

    before: Annotated[Any, Reserved(instead="write a task in front, in the list of `tool`")] = None
    after: Annotated[Any, Reserved(instead="write a task behind, in the list of `tool`")] = None
    finally_: Annotated[Any, Reserved(instead=FINALLY_INSTEAD)] = Field(None, alias="finally")
    tracing: Annotated[Any, Reserved()] = None
    quotas: Annotated[Any, Reserved(instead="write it into `executor.spec.policy`, of the whole execution")] = None
    compensation: Annotated[Any, Reserved()] = None
    resources: Annotated[Any, Reserved(instead=PLACED_INSTEAD)] = None
    placement: Annotated[Any, Reserved(instead=PLACED_INSTEAD)] = None
    profile: Annotated[Any, Reserved()] = None
    profiles: Annotated[Any, Reserved()] = None


def _indent_lost(node: Mapping, model: type[Section], known: Collection[str], problems: Problems) -> Mapping:
    """Moves the keys that follow an empty one under it, after reporting that they lost their indentation."""
    parts = {field.alias or name for name, field in model.model_fields.items() if _marker(field, PartMark)}
    lost: dict[str, list[str]] = {}
    owner: str | None = None
    for name, value in node.values.items():
        if name in known:
            owner = name if name in parts and is_null(value) else None
        elif owner and (len(lost.get(owner, ())) > MAX_DIAGNOSTICS or not correct_word(name, known)):
            lost.setdefault(owner, []).append(name)
        else:
            owner = None
    for owner, names in lost.items():
        report_lost_indentation(node.keys[names[0]], f"`{owner}`", f"indent it below `{owner}`", problems)
        inner, node = node.select_keys(set(names)), node.drop_keys(set(names))
        node = replace(node, values={**node.values, owner: inner})
    return node


def report_lost_indentation(first: MappingKey, owner: str, hint: str, problems: Problems) -> None:
    """Reports that ``first`` and the keys after it are next to their owner instead of in it."""
    message = f"lost indentation: `{first.name}` belongs to {owner}, but stands beside it"
    problems.error("lost_indentation", message, first, hint)


def correct_spelling(
    node: Mapping, words: Collection[str], known: Collection[str], where: str, problems: Problems
) -> Mapping:
    """Corrects misspelt ``words`` among the keys of ``node``, after reporting them.

    Args:
        known: Other keys, which are not misspellings.
    """
    for name in _unknown_keys(node, {*known, *words}):
        word = correct_word(name, sorted(words))
        if word and (moved := node.move(name, (word,))):
            message = f"unknown key `{name}` in {where}"
            problems.error("unknown_key", message, node.keys[name], f"did you mean `{word}`?")
            node = moved
    return node


def _unknown_keys(node: Mapping, known: Collection[str]) -> list[str]:
    """The keys that are not ``known``, as many as can be reported: comparing each with all words is slow."""
    return [name for name in node.keys if name not in known][:MAX_DIAGNOSTICS]


def keys_of(model: type[Section]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


@cache
def _deeper(model: type[Section]) -> MappingOf[str, tuple[str, ...]]:
    """The places of the keys of the sections inside a section, by key; without keys that are reserved there, or have
    two places at one depth.
    """
    places: dict[str, tuple[str, ...]] = {}
    level: list[tuple[tuple[str, ...], type[Section]]] = [((), model)]
    while level:
        found: dict[str, list[tuple[str, ...]]] = {}
        inner: list[tuple[tuple[str, ...], type[Section]]] = []
        for place, part in level:
            for name, field in part.model_fields.items():
                here = (*place, field.alias or name)
                found.setdefault(here[-1], []).append(() if _marker(field, Reserved) else here)
                inner += [(here, section) for section in _sections_of(field) if len(here) < _DEPTH]
        places = {key: found[key][0] if len(found[key]) == 1 else () for key in found} | places
        level = inner
    return {key: place for key, place in places.items() if len(place) > 1}


def _sections_of(field: FieldInfo) -> Iterator[type[Section]]:
    """The sections that may be the value of a key."""
    schema: Any = field.json_schema_extra or {}
    refs = [option.get("$ref", "") for option in (schema, *schema.get("anyOf", ()))]
    known = {one.__name__: one for parent in (Section, Placeholders) for one in parent.__subclasses__()}
    return (known[name] for ref in refs if (name := ref.rpartition("/")[2]) in known)


def _refuse_key(node: Mapping, name: str, model: type[Section], problems: Problems) -> None:
    """Reports a key that its mapping does not accept."""
    key = node.keys[name]
    advice = model.rejected.get(key.name)
    if advice:
        advice.report(key, node, problems)
        return
    if place := _deeper(model).get(key.name):
        *around, name = place
        shown = "".join(f"{word}: {{ " for word in around) + f"{name}: {VALUE}" + " }" * len(around)
        hint = filled(f"write {shown}", name, node)
        problems.error("unknown_key", f"`{name}` belongs under `{'.'.join(around)}`", key, hint)
        return
    known = keys_of(model)
    near = in_seconds(key.name, node.values[key.name].plain(), known) or did_you_mean(key.name, known)
    shown = near or f"known keys: {list_names(known)}"
    problems.error("unknown_key", f"unknown key `{key.name}` in {model.title}", key, shown)


def without_dashes(node: Sequence) -> str | None:
    """A list of single pairs as the mapping that was meant; ``None`` for any other list."""
    parts = [item for item in node.items if isinstance(item, Mapping) and len(item.keys) == 1]
    merged = {name: value.plain() for part in parts for name, value in part.values.items()}
    shown = shown_value(merged) if parts and len(parts) == len(node.items) == len(merged) else "…"
    return shown if shown != "…" else None


def report_wrong_type(node: Node, what: str, wanted: str, problems: Problems, hint: str | None = None) -> None:
    """Reports a value that is not ``wanted``, such as ``a list``."""
    if wanted == "a list" and not is_null(node) and (shown := shown_value(node.plain())) != "…":
        of_names = isinstance(node, Mapping) and hint is not None and all(part.plain() for part in node.values.values())
        hint = hint if of_names else f"write a list: [ {shown} ]"
    elif wanted == "a mapping" and isinstance(node, Sequence) and (pairs := without_dashes(node)):
        hint = f"write it without dashes: {pairs}"
    elif hint is None and "number" in wanted and isinstance(node, Scalar):
        number = _NUMBERS.get(str(node.value).lower())
        hint = written_as(node.value) or (f"write {number}" if number else "write a number without quotes")
    problems.error("wrong_type", f"{what} must be {wanted}, not {kind_of(node)}", node, hint)


def entries(node: Node | None, what: str, problems: Problems, hint: str | None = None) -> list[Node]:
    """The items of a list. Reports any other value, with ``hint``, and returns no items."""
    if node is None:
        return []
    if isinstance(node, Sequence):
        return node.items
    report_wrong_type(node, what, "a list", problems, hint)
    return []


def pairs(node: Node | None, what: str, problems: Problems) -> list[tuple[MappingKey, Node]]:
    """The keys and values of a mapping. Reports any other value and returns no pairs."""
    if node is None:
        return []
    if isinstance(node, Mapping):
        return [(key, node.values[name]) for name, key in node.keys.items()]
    report_wrong_type(node, what, "a mapping", problems)
    return []


def text_of(node: Node | None, what: str, problems: Problems) -> str | None:
    """The text of a scalar. Reports any other value and returns ``None``."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return node.value
    if node is not None:
        report_wrong_type(node, what, "text", problems)
    return None


def is_empty(node: Node | None) -> bool:
    """Whether a key that was once reserved is absent, or has a value that was accepted then."""
    return node is None or node.plain() in _EMPTY


def is_null(node: Node | None) -> bool:
    """Whether a key is absent or null."""
    return node is None or (isinstance(node, Scalar) and node.value is None)


def _marker(field: FieldInfo, kind: type[Any]) -> Any:
    return next((item for item in field.metadata if isinstance(item, kind)), None)


def _accepts(field: FieldInfo, key: MappingKey, value: Node, problems: Problems) -> bool:
    """Whether to validate the value of a key. Reports a reserved key with a value."""
    placeholder = _marker(field, Reserved)
    if placeholder is None:
        return True
    if value.plain() not in (*_EMPTY, *placeholder.neutral):
        allowed = f"; only {list_names(placeholder.neutral)} is allowed" if placeholder.neutral else ""
        message = f"`{key.name}` is reserved for a later version{allowed}"
        problems.error("reserved", message, key, placeholder.instead)
    return False


def _valid_values(node: Mapping, model: type[Section], values: dict[str, Any], problems: Problems) -> dict[str, Any]:
    """The valid values of a mapping. Reports the others and leaves them out."""
    try:
        model(**values)
    except ValidationError as failure:
        invalid = explain(failure, {name: node.values[name] for name in values})
        for item in invalid:
            hint = _value_hint(model, item.key, item.at, wants_list=item.is_type)
            problems.error("wrong_type" if item.is_type else "invalid_value", item.message, item.at, hint)
        invalid_keys = {item.key for item in invalid}
        return {name: value for name, value in values.items() if name not in invalid_keys}
    return values


def _value_hint(model: type[Section], name: str, at: Node, *, wants_list: bool) -> str | None:
    """A hint for a value that is close to an allowed word, or wrongly quoted."""
    value = at.plain()
    field = model.model_fields[name]
    choices = _words(field.annotation)
    takes = {field.annotation, *get_args(field.annotation)}
    wants_list = wants_list and isinstance(value, str) and any(get_origin(one) is list for one in takes)
    if choices and wants_list:
        near = nearest(str(value), choices)
        return f"write {name}: [ {near} ]" if near else f"write a list with some of {list_names(choices)}"
    if choices:
        near = did_you_mean(str(value), choices)
        if "inclusive" in choices and str(value).lower() in ("parallel", "all", "fanout", "fan_out", "concurrent"):
            near = "write inclusive, which takes each one whose guard holds"
        if "parallel" in choices and str(value).lower() in ("async", "concurrent", "all", "map", "distributed"):
            near = "write parallel"
        if "jump" in choices and str(value).lower() in _DIRECTIVES:
            near = f"write `{_DIRECTIVES[str(value).lower()]}`"
        return near or f"write {'one of ' if len(choices) > 1 else ''}{list_names(choices)}"
    if wants_list:
        value = CRON_NAMES.get(value.strip(), value)
        return f"write {name}: [ {json.dumps(value, ensure_ascii=False)} ]"
    if isinstance(value, str) and takes & {int, float, bool}:
        plainly = "write true or false" if bool in takes else _number_hint(field, name, value)
        return "write a constant: templates are not allowed here" if "{{" in value else written_as(value) or plainly
    if str in takes and isinstance(value, bool | int | float):
        schema: Any = field.json_schema_extra or {}
        patterns = [one["pattern"] for one in (schema, *schema.get("anyOf", ())) if "pattern" in one]
        is_time = not isinstance(value, bool) and any(re.search(one, duration_of(value)) for one in patterns)
        return f"write {name}: {duration_of(value)}" if is_time else _quoted(at)
    return None


def _quoted(at: Node) -> str:
    """The hint to quote a value that is not text, as far as it has all its digits: 3.10 is the number 3.1."""
    shown = shown_value(at.plain())
    is_whole = isinstance(at, Scalar) and at.end - at.start == len(shown)
    return f'quote it: "{shown}"' if is_whole else "quote it, with all its digits"


def form_hint(key: str, at: Node, message: str) -> str | None:
    """A hint for a value of another type than ``message`` says that its key takes."""
    value = at.plain()
    if isinstance(value, bool | int | float) and "must be text" in message:
        return _quoted(at)
    pairs = without_dashes(at) if isinstance(at, Sequence) and "a mapping" in message else None
    return f"write {key}: {pairs}" if pairs else written_as(value)


_DIRECTIVES: Final = {
    **dict.fromkeys(("goto", "go_to", "skip_to"), "jump"),
    **dict.fromkeys(("stop", "abort", "error", "raise", "exit"), "fail"),
    **dict.fromkeys(("next", "ignore", "pass", "proceed"), "continue"),
    **dict.fromkeys(("repeat", "again", "rerun"), "retry"),
    **dict.fromkeys(("skip", "return", "end", "done"), "break"),
}
_BY_WORD: Final = {
    **dict.fromkeys(("highest", "critical", "urgent", "high"), "maximum"),
    **dict.fromkeys(("lowest", "low"), "minimum"),
}


def _number_hint(field: FieldInfo, name: str, value: str) -> str:
    """The hint for a word where a number is wanted: the number in the word or the text."""
    schema: Any = field.json_schema_extra or {}
    bounds = next((one for one in (schema, *schema.get("anyOf", ())) if "maximum" in one and "minimum" in one), None)
    if bounds and value.lower() in _BY_WORD:
        return f"write {name}: {bounds[_BY_WORD[value.lower()]]}, of {bounds['minimum']} to {bounds['maximum']}"
    if bounds:
        return f"write a number from {bounds['minimum']} to {bounds['maximum']}"
    return "write a number without quotes" if re.fullmatch(r"-?\d+(\.\d+)?", value) else "write a number"


def duration_of(seconds: float) -> str:
    """A number of seconds as a duration: ``15m``."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


def _words(annotation: Any) -> list[str]:
    """The words of a ``Literal`` or of an optional one."""
    inner = get_args(annotation)
    return [item for item in inner if isinstance(item, str)] or [word for item in inner for word in _words(item)]


class InvalidValue(msgspec.Struct, frozen=True):
    """One invalid value of a mapping. ``key`` is the key that holds it."""

    key: str
    at: Node
    message: str
    is_type: bool
    choices: tuple[str, ...] = ()
    pattern: str = ""


_DURATION: Final = re.compile(
    r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|sec|secs|seconds?|min|mins|minutes?|hours?|days?)\s*\Z"
)
_NUMBERS: Final = {
    word: number
    for number, word in enumerate(("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), 1)
}
_ISO_DURATION: Final = re.compile(r"P(?:(\d+)D)?T?(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?")
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SWITCHES: Final = {**dict.fromkeys(("yes", "on"), "true"), **dict.fromkeys(("no", "off"), "false")}


def written_as(value: object) -> str | None:
    """The hint for text that other languages read as a number of seconds or a boolean."""
    found = _DURATION.match(value) if isinstance(value, str) else None
    if found is not None:
        unit = found[2] if found[2] in _UNITS else found[2][0]
        return f"write {float(found[1]) * _UNITS[unit]:g}, in seconds"
    parts = _ISO_DURATION.fullmatch(value) if isinstance(value, str) else None
    if parts is not None and any(parts.groups()):
        seconds = sum(float(part or 0) * _UNITS[unit] for part, unit in zip(parts.groups(), "dhms", strict=True))
        return f"write {seconds:g}, in seconds"
    word = _SWITCHES.get(value.lower()) if isinstance(value, str) else None
    return f"write {word}, since `{value}` is text" if word else None


def explain(failure: ValidationError, values: MappingOf[str, Node]) -> list[InvalidValue]:
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
    """The message of a validation error that concerns no single value."""
    message = str(error["msg"])
    return _SHOULD.sub("must", message.removeprefix("Value error, "))


def _invalid(key: str, at: Node, errors: list[Any]) -> InvalidValue:
    wanted = list(dict.fromkeys(_TYPES.get(error["type"], "") for error in errors))
    if all(wanted):
        return InvalidValue(key, at, f"`{key}` must be {' or '.join(wanted)}, not {kind_of(at)}", True)
    other = next(error for error in errors if error["type"] not in _TYPES)
    if other["type"] == "literal_error":
        words = tuple(re.findall(r"'([^']*)'", other["ctx"]["expected"]))
        return InvalidValue(key, at, f"`{key}` must be {other['ctx']['expected']}", False, words)
    pattern = other["ctx"]["pattern"] if other["type"] == "string_pattern_mismatch" else ""
    return InvalidValue(key, at, f"`{key}`: {sentence(other)}", False, pattern=pattern)
