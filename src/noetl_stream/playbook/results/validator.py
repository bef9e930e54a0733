"""Validation of values by a JSON Schema, with jsonschema-rs, which is imported for the first schema; and walks through
a schema from a value to its parts.

``check`` follows the paths that templates read. Before that, every path is followed once, with arrays and any other
property for all the rest: validation applies each subschema at a place once for each way that leads to it, so a schema
that recurses along two ways would take exponential time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import unquote

from noetl_stream.errors import NoetlError
from noetl_stream.playbook.yaml.nodes import extend_pointer

if TYPE_CHECKING:
    import jsonschema_rs


MAX_PATTERN_BYTES: Final = 1024 * 1024
"""The largest compiled form of one pattern, in bytes."""
MAX_REASON_CHARACTERS: Final = 500

_WEIGHTS: Final = ((1, 8), (4, 80), (16, 170), (64, 4_000), (256, 60_000))
"""Compiled forms of up to these KiB, with the cost of a byte of text at worst; above 16 KiB a matcher is slow."""
_HEAVIEST: Final = 150_000

_VALUE: Final = "the value"


class InvalidSchema(NoetlError):
    """The schema is not a JSON Schema; ``path`` leads to the invalid part."""

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


class Mismatch(NamedTuple):
    """A mismatch of a value and its schema, with its reason, without the value. Both places are JSON pointers."""

    pointer: str
    reason: str
    schema_pointer: str

    @property
    def keyword(self) -> str:
        """The keyword of the schema that the value does not match, such as ``required``."""
        return self.schema_pointer.rpartition("/")[2]

    def __str__(self) -> str:
        place = f"`{self.pointer}`" if self.pointer else "the top"
        return f"at {place}: {self.reason} (`{self.schema_pointer}` of the schema)"


class Validator:
    """A compiled JSON Schema.

    Raises:
        InvalidSchema: the schema is not valid.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        import jsonschema_rs

        try:
            self._compiled = jsonschema_rs.Draft202012Validator(
                schema,
                validate_formats=True,
                ignore_unknown_formats=False,
                offline=True,
                mask=_VALUE,
                pattern_options=_options(MAX_PATTERN_BYTES),
            )
        except jsonschema_rs.ValidationError as error:
            raise InvalidSchema(_refusal(error), tuple(error.instance_path)) from None
        except ValueError as error:
            raise InvalidSchema(f"the schema cannot be read: {error}") from None

    def mismatch(self, value: Any) -> Mismatch | None:
        """The first mismatch of ``value``; ``None`` if it matches."""
        import jsonschema_rs

        try:
            self._compiled.validate(value)
        except jsonschema_rs.ValidationError as error:
            return _mismatch(error)
        return None

    def mismatches(self, value: Any) -> list[Mismatch]:
        """All mismatches of ``value``."""
        return [_mismatch(error) for error in self._compiled.iter_errors(value)]


def pattern_weight(pattern: str) -> int:
    """The worst cost of matching a pattern with one byte of text, in comparisons of 10 ns."""
    import jsonschema_rs

    for kilobytes, weight in _WEIGHTS:
        try:
            jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=_options(kilobytes * 1024))
        except ValueError:
            continue
        return weight
    return _HEAVIEST


def _options(size: int) -> jsonschema_rs.RegexOptions:
    """The options for patterns of linear time with a compiled form of at most ``size`` bytes."""
    import jsonschema_rs

    return jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=MAX_PATTERN_BYTES)


def _mismatch(error: jsonschema_rs.ValidationError) -> Mismatch:
    reason = error.message
    if len(reason) > MAX_REASON_CHARACTERS:
        reason = f"{reason[:MAX_REASON_CHARACTERS]}…"
    return Mismatch(_pointer_of(error.instance_path), reason, _pointer_of(error.schema_path))


def _pointer_of(path: list[str | int]) -> str:
    """Converts a path to a JSON pointer."""
    return "".join(extend_pointer("", part) for part in path)


def _refusal(error: jsonschema_rs.ValidationError) -> str:
    if error.kind.name == "format" and error.kind.value == "regex":
        return "the pattern cannot be matched in linear time: look-around and back-references are refused"
    return f"not a JSON Schema: {error.message.replace(_VALUE, 'this')}"


MAX_APPLIED: Final = 1_000
"""The most subschemas that may apply to one value, each counted once for each way that leads to it."""
MAX_FOLLOWED: Final = 200_000
"""The most parts of values into which subschemas are followed to count that."""

MAX_DEPTH: Final = 100
"""The deepest nesting of subschemas that apply to one value."""

Pointers = Counter[str]
"""Subschemas by JSON pointer, with the number of times each applies to one value."""

Label = tuple[Literal["property", "index", "names"], str]
"""A kind of part: a property or an index by name (``""``: any other), or the names of the properties."""

ITEM: Final = "[]"
"""Any item of a list, in a path of keys."""

_ROOT: Final = Counter([""])
_LISTED: Final = ("allOf", "anyOf", "oneOf")
_BESIDE: Final = ("not", "if", "then", "else")


class SchemaRefused(NoetlError):
    """Validation with the schema has no useful bound; ``pointer`` is the subschema that shows this."""

    def __init__(self, message: str, pointer: str) -> None:
        super().__init__(message)
        self.pointer = pointer


class Unknown(NamedTuple):
    """A read that leaves the schema, which declares other keys at this depth of the path."""

    depth: int
    declared: tuple[str, ...]


class Walk:
    """A walk through one schema, whose references are local and exist."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._applied: dict[str, Pointers] = {}

    def check_bounded(self) -> None:
        """
        Raises:
            SchemaRefused: a subschema refers to itself without going into the value, or too many apply to one value.
        """
        waiting, seen, followed = deque([_ROOT]), {frozenset(_ROOT.items())}, 0
        while waiting:
            applied = self._closure(waiting.popleft())
            place = next(iter(applied), "")
            if applied.total() > MAX_APPLIED:
                message = f"more than {MAX_APPLIED:,} subschemas can apply to one value (max_schema_applied)"
                raise SchemaRefused(message, place)
            labels = list(self._labels(applied))
            followed += len(applied) * len(labels)
            if followed > MAX_FOLLOWED:
                message = f"the schema has more than {MAX_FOLLOWED:,} combinations of subschemas (max_schema_followed)"
                raise SchemaRefused(message, place)
            for label in labels:
                part = self._parts(applied, label, is_sure=False)
                if part and (key := frozenset(part.items())) not in seen:
                    seen.add(key)
                    waiting.append(part)

    def unknown(self, path: Sequence[str]) -> Unknown | None:
        """The place where a path of keys and :data:`ITEM` leaves the schema; ``None`` if it does not, or if unknown."""
        at = _ROOT
        for depth, key in enumerate(path):
            before, applied = at, self._closure(at)
            label: Label = ("index", "") if key == ITEM else ("property", key)
            at = self._parts(applied, label, is_sure=True)
            if at:
                continue
            if key == ITEM:
                return None
            if any(map(self._is_open, applied)):
                return None
            declared = {name for pointer in applied for name in _mapping(self._subschema_at(pointer), "properties")}
            return Unknown(depth, tuple(sorted(declared))) if declared or any(map(self._is_no_object, before)) else None
        return None

    def has(self, key: str) -> bool:
        """Whether the schema declares the key of the value itself."""
        return bool(self._parts(self._closure(_ROOT), ("property", key), is_sure=True))

    def _subschema_at(self, pointer: str) -> Mapping[str, Any]:
        """The subschema at a JSON pointer; ``true`` and ``false`` as an empty one."""
        found: Any = self._schema
        for part in pointer.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            found = found[int(part)] if isinstance(found, list) else found[part]
        return found if isinstance(found, Mapping) else {}

    def _closure(self, pointers: Pointers) -> Pointers:
        """The subschemas, and all that apply to the same value because of them."""
        found: Pointers = Counter()
        for pointer, times in pointers.items():
            for other, count in self._applied_by(pointer, frozenset()).items():
                found[other] += times * count
            if len(found) > MAX_APPLIED:
                break
        return found

    def _applied_by(self, pointer: str, around: frozenset[str]) -> Pointers:
        if pointer in around:
            raise SchemaRefused("the subschema refers to itself without going into the value", pointer)
        if len(around) > MAX_DEPTH:
            raise SchemaRefused(f"more than {MAX_DEPTH} references lead to one another (max_schema_depth)", pointer)
        known = self._applied.get(pointer)
        if known is None:
            known = Counter([pointer])
            for other in self._subschemas_of_same_value(pointer):
                known.update(self._applied_by(other, around | {pointer}))
                if known.total() > MAX_APPLIED:
                    break
            self._applied[pointer] = known
        return known

    def _subschemas_of_same_value(self, pointer: str) -> Iterator[str]:
        """The subschemas that a subschema applies to the same value."""
        schema = self._subschema_at(pointer)
        if "$ref" in schema:
            yield _target(schema)
        for word in _LISTED:
            for index in range(len(schema.get(word, ()))):
                yield extend_pointer(f"{pointer}/{word}", index)
        for word in _BESIDE:
            if word in schema:
                yield f"{pointer}/{word}"
        for name in _mapping(schema, "dependentSchemas"):
            yield extend_pointer(f"{pointer}/dependentSchemas", name)

    def _labels(self, applied: Pointers) -> Iterator[Label]:
        schemas = [self._subschema_at(pointer) for pointer in applied]
        names = {name for schema in schemas for name in _mapping(schema, "properties")}
        most = max((len(schema.get("prefixItems", ())) for schema in schemas), default=0)
        yield from (("property", name) for name in [*sorted(names), ""])
        yield from (("index", str(index)) for index in range(most))
        yield from (("index", ""), ("names", ""))

    def _parts(self, applied: Pointers, label: Label, *, is_sure: bool) -> Pointers:
        """The subschemas that apply to a part of a value.

        Args:
            is_sure: Whether to omit subschemas that apply to only some of these parts, such as those of a pattern.
        """
        found: Pointers = Counter()
        for pointer, times in applied.items():
            for part in self._parts_of(pointer, *label, is_sure):
                found[part] += times
        return found

    def _parts_of(self, pointer: str, what: str, name: str, is_sure: bool) -> Iterator[str]:
        schema = self._subschema_at(pointer)
        if what == "names":
            yield from [f"{pointer}/propertyNames"] if "propertyNames" in schema else ()
        elif what == "property":
            if name in _mapping(schema, "properties"):
                yield extend_pointer(f"{pointer}/properties", name)
            elif isinstance(schema.get("additionalProperties"), Mapping):
                yield f"{pointer}/additionalProperties"
            if not is_sure:
                yield from (
                    extend_pointer(f"{pointer}/patternProperties", one) for one in _mapping(schema, "patternProperties")
                )
                yield from [f"{pointer}/unevaluatedProperties"] if "unevaluatedProperties" in schema else ()
        else:
            places = len(schema.get("prefixItems", ()))
            if name and int(name) < places:
                yield extend_pointer(f"{pointer}/prefixItems", name)
            elif "items" in schema:
                yield f"{pointer}/items"
            if not is_sure:
                yield from (f"{pointer}/{word}" for word in ("unevaluatedItems", "contains") if word in schema)

    def _is_open(self, pointer: str) -> bool:
        """Whether the subschema permits keys that it does not name, explicitly or by naming none."""
        schema = self._subschema_at(pointer)
        if schema.get("patternProperties") or schema.get("additionalProperties") is True:
            return True
        if schema.get("unevaluatedProperties", False) is not False:
            return True
        return pointer.rpartition("/")[0].endswith(("/anyOf", "/oneOf")) and self._is_silent(pointer)

    def _is_silent(self, pointer: str) -> bool:
        """Whether the subschema leaves open which keys a matching value has."""
        applied = self._applied_by(pointer, frozenset())
        return not (self._is_no_object(pointer) or any("properties" in self._subschema_at(one) for one in applied))

    def _is_no_object(self, pointer: str) -> bool:
        """Whether the subschema matches no objects, as far as it says itself or by reference."""
        schema = self._subschema_at(pointer)
        if "type" in schema:
            return "object" not in schema["type"]
        return "$ref" in schema and self._is_no_object(_target(schema))


def _mapping(schema: Mapping[str, Any], word: str) -> Mapping[str, Any]:
    found = schema.get(word)
    return found if isinstance(found, Mapping) else {}


def _target(schema: Mapping[str, Any]) -> str:
    return unquote(schema["$ref"]).removeprefix("#")
