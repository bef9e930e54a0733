"""How a template reaches into values and what becomes of them: keys, undefined parts, plain JSON, text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from jinja2 import StrictUndefined, Undefined

from noetl_stream.model.reference import Payload
from noetl_stream.template.failures import EvaluationFailure, closest, shorten
from noetl_stream.template.runtime.meter import Meter
from noetl_stream.template.runtime.scope import (
    ABSENT,
    JSON,
    Absent,
    LazyResult,
    OutcomeEnvelope,
    References,
    ResultView,
)

NOT_THERE: Final = object()
"""What :func:`reach` gives for a key that is not there."""

_LAZY: Final = (ResultView, LazyResult, Payload)
_SCALARS: Final = frozenset({str, bool, type(None)})
_PART_CHARS: Final = 60
_BITS_A_CHARACTER: Final = 3
"""A digit stands for more than three bits: a number has not more of them than this says, give or take one."""


class Missing(StrictUndefined):
    """An undefined part inside an expression: only ``default()``, ``is defined`` and further dots take it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "undefined"


def missing(text: str) -> Missing:
    """The undefined value of the part that is written ``text`` in the template."""
    return Missing(f"`{text}` is undefined", name=text)


def require(value: Any) -> Any:
    """``value`` itself.

    Raises:
        EvaluationFailure: if it is undefined.
    """
    if isinstance(value, Undefined):
        raise EvaluationFailure(what_is_missing(value))
    return value


def what_is_missing(value: Undefined) -> str:
    """One line that names the undefined part."""
    hint, name = value._undefined_hint, value._undefined_name  # noqa: SLF001  Jinja says it nowhere else
    return hint.rstrip(".") if hint else f"`{name}` is undefined"


def settle(value: Any, references: References) -> Any:
    """The value behind a view or payload; an envelope with its members settled; anything else as it is.

    Raises:
        ReferenceNeeded: if it stands in the object store and is not in ``references``.
    """
    if isinstance(value, ResultView | LazyResult):
        return value.value(references)
    if isinstance(value, Payload):
        return LazyResult(value).value(references)
    if type(value) is OutcomeEnvelope:
        return settle_members(value, references)
    return value


def settle_members(value: Mapping[str, Any], references: References) -> dict[str, Any]:
    """A mapping with every member settled.

    Raises:
        ReferenceNeeded: if one stands in the object store and is not in ``references``.
    """
    return {name: settle(member, references) for name, member in value.items()}


def reach(value: Any, key: Any, references: References) -> Any:
    """What ``value.key`` or ``value[key]`` is: a key of a mapping, an index of a list or text, never an attribute.

    Returns :data:`NOT_THERE` for anything else; attributes of an absent value are absent.
    """
    if isinstance(value, ResultView):
        return _reach_result(value, key, references)
    if not isinstance(value, Mapping):
        value = settle(value, references)
    if isinstance(value, Mapping):
        if type(key) is not str:
            return NOT_THERE
        try:
            return value[key]
        except KeyError:
            return NOT_THERE
    if value is ABSENT:
        return ABSENT
    if isinstance(value, list | tuple | str) and type(key) is int:
        try:
            return value[key]
        except IndexError:
            return NOT_THERE
    return NOT_THERE


def _reach_result(view: ResultView, key: Any, references: References) -> Any:
    result = view.value(references)
    own = NOT_THERE if result is ABSENT else reach(result, key, references)
    if own is not NOT_THERE or type(key) is not str:
        return own
    extra = view.extra(key)
    if extra is not None:
        return extra
    return result if key == "data" or result is ABSENT else NOT_THERE


def why_not_there(value: Any, path: tuple[Any, ...], references: References) -> EvaluationFailure:
    """The failure for ``path``, whose last key is not in ``value``."""
    settled, key, written = settle(value, references), path[-1], written_path(path)
    if isinstance(settled, Mapping):
        close = closest(key, (name for name in settled if isinstance(name, str))) if isinstance(key, str) else None
        hint = f"did you mean `{written_path((*path[:-1], close))}`?" if close else None
        return EvaluationFailure(f"`{written}` is undefined", hint=hint)
    if isinstance(settled, list | str) and type(key) is int:
        return EvaluationFailure(f"`{written}` is undefined: there are {len(settled)} elements")
    return EvaluationFailure(f"`{written}` is undefined: what it is read from is {kind_of(settled)}")


def kind_of(value: Any) -> str:
    """The JSON name of a value's type, with its article."""
    if value is None or isinstance(value, Absent):
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, list | tuple) else f"of type {type(value).__name__}"


def plain(value: Any, references: References, meter: Meter) -> JSON:
    """A copy of ``value`` in plain JSON values; views are settled, absent is null, tuples are lists.

    Raises:
        EvaluationFailure: for an undefined part, a number that is not finite, a key that is not text, or a value that
            JSON has no form for.
        ReferenceNeeded: if a payload in it stands in the object store and is not in ``references``.
    """
    kind = type(value)
    if kind is str:
        meter.keep_chars(len(value))
        return value
    if kind is int:
        meter.keep_chars(value.bit_length() // _BITS_A_CHARACTER)
        return value
    if kind in _SCALARS:
        return value
    if kind is dict:
        meter.keep_items(len(value))
        return _plain_mapping(value, references, meter)
    if kind is list or kind is tuple:
        meter.keep_items(len(value))
        return [plain(element, references, meter) for element in value]
    return _plain_other(value, references, meter)


def _plain_mapping(value: Mapping[Any, Any], references: References, meter: Meter) -> dict[str, Any]:
    copy = {}
    for key, element in value.items():
        if not isinstance(key, str):
            raise EvaluationFailure(f"a key of a mapping must be text, {key!r} is {kind_of(key)}")
        meter.keep_chars(len(key))
        copy[str(key)] = plain(element, references, meter)
    return copy


def _plain_other(value: Any, references: References, meter: Meter) -> JSON:
    if isinstance(value, float):
        if value - value != 0:
            raise EvaluationFailure(f"{value} is no JSON number")
        return float(value)
    if isinstance(value, Absent):
        return None
    if isinstance(value, _LAZY):
        return plain(settle(value, references), references, meter)
    if isinstance(value, str):
        # Jinja's own filters may hand back a subclass of str.
        return plain(str(value), references, meter)
    if isinstance(value, Mapping):
        meter.keep_items(len(value))
        return _plain_mapping(value, references, meter)
    if isinstance(value, list | tuple):
        return plain(list(value), references, meter)
    require(value)
    raise EvaluationFailure(f"the value is {kind_of(value)}, which JSON has no form for")


def text_of(value: Any, references: References, meter: Meter) -> str:
    """How ``value`` stands in a text: as Jinja writes it (``True``, ``None``, ``['a']``).

    Raises:
        EvaluationFailure: as :func:`plain`.
    """
    kind = type(value)
    if kind is str:
        meter.write(len(value))
        return value  # type: ignore[no-any-return]
    if kind is int or kind is bool:
        text = str(value)
        meter.write(len(text))
        return text
    before = meter.kept_chars
    settled = plain_for_text(value, references, meter)
    text = str(settled)
    meter.write(max(len(text) - (meter.kept_chars - before), 0))
    return text


def plain_for_text(value: Any, references: References, meter: Meter) -> JSON:
    """:func:`plain`, of a value that becomes text: its strings count as written before they are."""
    before = meter.kept_chars
    settled = plain(value, references, meter)
    meter.write(meter.kept_chars - before)
    return settled


def written_path(parts: Iterable[Any]) -> str:
    """How a path is written: ``ctx.rows[0].name``."""
    text = ""
    for part in parts:
        if type(part) is str and len(part) > _PART_CHARS:
            part = shorten(part, _PART_CHARS)
        if type(part) is str and (part.isidentifier() or not text):
            text = f"{text}.{part}" if text else part
        else:
            text = f"{text}[{part!r}]"
    return text
