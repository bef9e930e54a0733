"""Validates values by a JSON Schema, with jsonschema-rs, which is imported when the first schema is met."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from noetl_stream.errors import NoetlError
from noetl_stream.playbook.yaml.nodes import extend_pointer

if TYPE_CHECKING:
    import jsonschema_rs

MAX_PATTERN_BYTES: Final = 1024 * 1024
"""The largest compiled form of one pattern, in bytes."""
MAX_REASON_CHARACTERS: Final = 500

_WEIGHTS: Final = ((1, 8), (4, 80), (16, 170), (64, 4_000), (256, 60_000))
"""Compiled forms of up to so many KiB, with what a byte of text costs at worst; above 16 KiB a matcher is slow."""
_HEAVIEST: Final = 150_000

_VALUE: Final = "the value"


class InvalidSchema(NoetlError):
    """Not a JSON Schema; ``path`` leads to the wrong part."""

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


class Mismatch(NamedTuple):
    """A mismatch of a value and its schema, with its reason, which does not quote the value. Both places are JSON
    pointers.
    """

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
    """What it costs at worst to match a pattern with one byte of text, in comparisons of 10 ns."""
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
