"""Access to values from templates: paths, keys, undefined parts, conversion to plain JSON and text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, repeat
from typing import Any, Final, TypeAlias

from jinja2 import StrictUndefined, Undefined

from noetl_stream.model.json.values import MAX_DEPTH, TOO_DEEP
from noetl_stream.model.outcome import Payload
from noetl_stream.template.failures import EvaluationFailure, ValueNeeded, add_needed, closest, shorten
from noetl_stream.template.runtime.meter import Meter
from noetl_stream.template.runtime.scope import (
    ABSENT,
    JSON,
    Absent,
    Carried,
    LazyResult,
    OutcomeEnvelope,
    References,
    ResultView,
    Scope,
)

KEYS_SHOWN: Final = 8
_KEYS_READ: Final = 100
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")
_PART_CHARS: Final = 60


def missing_key_hint(value: Mapping[Any, Any], path: tuple[Any, ...]) -> str | None:
    """The hint for ``path``, whose last key the mapping ``value`` does not have."""
    *parents, key = path
    carried = isinstance(value, Carried)
    there = {**dict.fromkeys(value.others), **value} if isinstance(value, Carried) else value
    names = (name for name in there if isinstance(name, str))
    close = closest(key, names) if isinstance(key, str) else None
    meant = f"did you mean `{written_path((*parents, close))}`?" if close else None
    if parents == ["ctx"]:
        wait = "let a guard wait for it with `next.spec.wait` or `admit.wait`"
        absent = f"nothing has set it: write `{written_path(path)} | default(…)`, or {wait}"
        return f"{meant} If not, {absent}" if meant else absent
    if meant is None and parents[:1] != ["keychain"]:
        return "; ".join(_keys_text(there, parents, key, may_be_empty=not carried)) or None
    return meant


def _keys_text(value: Mapping[Any, Any], parents: list[Any], key: Any, *, may_be_empty: bool) -> Iterator[str]:
    """Lists the keys of ``value``, and where the missing key is, if one level below."""
    names = [name for name in islice(value, _KEYS_READ) if isinstance(name, str) and _NAME.fullmatch(name)]
    shown = names[:KEYS_SHOWN]
    if shown:
        more = f" and {len(value) - len(shown)} more" if len(value) > len(shown) else ""
        yield f"it has {', '.join(f'`{name}`' for name in shown)}{more}"
    elif not value and may_be_empty:
        yield "it is empty"
    below = (name for name in names if isinstance(inner := value[name], Mapping) and key in inner)
    if (name := next(below, None)) is not None:
        yield f"did you mean `{written_path((*parents, name, key))}`?"


def written_path(parts: Iterable[Any]) -> str:
    """Writes a path as text: ``ctx.rows[0].name``."""
    text = ""
    for part in parts:
        if type(part) is str and len(part) > _PART_CHARS:
            part = shorten(part, _PART_CHARS)
        if type(part) is str and (part.isidentifier() or not text):
            text = f"{text}.{part}" if text else part
        else:
            text = f"{text}[{part!r}]"
    return text


Read: TypeAlias = Callable[..., Any]
"""The function that reads a path: ``read(scope, meter, *keys)``, with ``keys`` for its computed parts.

A read costs nothing; it takes a meter only to have the signature of other evaluations.
"""

COMPUTED: Final = object()
"""A part of a path that is computed during evaluation."""

_WHOLE_VIEWS: Final = frozenset({"steps", "results"})

NOT_FOUND: Final = object()
"""Returned by :func:`lookup` for a missing key."""

_LAZY: Final = (ResultView, LazyResult, Payload)
_WRAPPED: Final = frozenset(_LAZY)
_SCALARS: Final = frozenset({str, bool, type(None)})
_BITS_PER_DIGIT: Final = 3
"""Bits that a decimal digit holds at least, which bounds a number's length: it holds more than three."""


class Missing(StrictUndefined):
    """An undefined part of an expression. Only ``default()``, ``is defined`` and further attributes accept it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "undefined"


def undefined_part(text: str) -> Missing:
    """The undefined value of a part of a template written as ``text``."""
    return Missing(f"`{text}` is undefined", name=text)


def require(value: Any) -> Any:
    """Returns ``value`` unless it is undefined.

    Raises:
        EvaluationFailure: The value is undefined.
    """
    if isinstance(value, Undefined):
        hint, name = value._undefined_hint, value._undefined_name  # noqa: SLF001  Jinja exposes it nowhere else
        raise EvaluationFailure(hint.rstrip(".") if hint else f"`{name}` is undefined")
    return value


def unwrap(value: Any, references: References) -> Any:
    """Unwraps a value: the value behind a view or payload, an envelope with its members unwrapped, any other as it is.

    Raises:
        ReferenceNeeded: The value is in the object store and not in ``references``.
    """
    if isinstance(value, ResultView | LazyResult):
        return value.value(references)
    if isinstance(value, Payload):
        return LazyResult(value).value(references)
    if type(value) is OutcomeEnvelope:
        return unwrap_members(value, references)
    return value


def unwrap_members(value: Mapping[str, Any], references: References) -> dict[str, Any]:
    """Unwraps the members of a mapping.

    Raises:
        ReferenceNeeded: A member is in the object store and not in ``references``.
    """
    remaining = iter(value.items())
    try:
        return {name: unwrap(member, references) for name, member in remaining}
    except ValueNeeded as needed:
        add_needed(needed, map(unwrap, (member for _, member in remaining), repeat(references)))
        raise


def lookup(value: Any, key: Any, references: References) -> Any:
    """Looks up ``value.key`` or ``value[key]``: a key of a mapping, or an index of a list or text, never an attribute.

    Returns :data:`NOT_FOUND` if there is none. Keys of an absent value are absent.
    """
    if isinstance(value, ResultView):
        return _lookup_result(value, key, references)
    if not isinstance(value, Mapping):
        value = unwrap(value, references)
    if isinstance(value, Mapping):
        if type(key) is not str:
            return NOT_FOUND
        try:
            return value[key]
        except KeyError:
            return NOT_FOUND
    if value is ABSENT:
        return ABSENT
    if isinstance(value, list | tuple | str) and type(key) is int:
        try:
            return value[key]
        except IndexError:
            return NOT_FOUND
    return NOT_FOUND


def _lookup_result(view: ResultView, key: Any, references: References) -> Any:
    result = view.value(references)
    own = NOT_FOUND if result is ABSENT else lookup(result, key, references)
    if own is not NOT_FOUND or type(key) is not str:
        return own
    extra = view.extra(key)
    if extra is not None:
        return extra
    return result if key == "data" or result is ABSENT else NOT_FOUND


def not_found_error(value: Any, path: tuple[Any, ...], references: References) -> EvaluationFailure:
    """The error for ``path``, whose last key ``value`` does not have."""
    unwrapped, key, written = unwrap(value, references), path[-1], written_path(path)
    if isinstance(unwrapped, Mapping):
        hint = missing_key_hint(unwrapped, path)
        return EvaluationFailure(f"`{written}` is undefined", hint=hint, missing=written)
    if isinstance(unwrapped, list | str) and type(key) is int:
        return EvaluationFailure(f"`{written}` is undefined: the length is {len(unwrapped)}")
    hint = f"write `{written_path(path[:-1])}`" if key == "data" and unwrapped is not None else None
    return EvaluationFailure(f"`{written}` is undefined: {kind_of(unwrapped)} has no such key", hint=hint)


def kind_of(value: Any) -> str:
    """The type of a value, as messages name it."""
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
    return "a list" if isinstance(value, list | tuple) else f"a {type(value).__name__} object"


def plain(value: Any, references: References, meter: Meter, depth: int = 0) -> JSON:
    """Copies ``value`` as plain JSON: views unwrapped, absent as null, tuples as lists.

    Args:
        depth: The number of lists and mappings around the value.

    Raises:
        EvaluationFailure: An undefined part, a number that is not finite, a key that is not text, a value that JSON
            cannot hold, or one that nests too deeply.
        ReferenceNeeded: A payload in it is in the object store and not in ``references``.
    """
    kind = type(value)
    if kind is str:
        meter.keep_chars(len(value))
        return value
    if kind is int:
        meter.keep_chars(value.bit_length() // _BITS_PER_DIGIT)
        return value
    if kind in _SCALARS:
        return value
    if kind is dict:
        meter.keep_items(len(value))
        return _plain_mapping(value, references, meter, depth)
    if kind is list or kind is tuple:
        meter.keep_items(len(value))
        _check_depth(depth)
        return [plain(element, references, meter, depth + 1) for element in value]
    return _plain_other(value, references, meter, depth)


def _plain_mapping(value: Mapping[Any, Any], references: References, meter: Meter, depth: int) -> dict[str, Any]:
    _check_depth(depth)
    copy = {}
    for key, element in value.items():
        if not isinstance(key, str):
            raise EvaluationFailure(f"a mapping key must be text, not {kind_of(key)}: {key!r}")
        meter.keep_chars(len(key))
        copy[str(key)] = plain(element, references, meter, depth + 1)
    return copy


def _check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise EvaluationFailure(f"the value is {TOO_DEEP}")


def _plain_other(value: Any, references: References, meter: Meter, depth: int) -> JSON:
    if isinstance(value, float):
        if value - value != 0:
            raise EvaluationFailure(f"{value} is not a valid JSON number")
        return float(value)
    if isinstance(value, Absent):
        return None
    if isinstance(value, _LAZY):
        return plain(unwrap(value, references), references, meter, depth)
    if isinstance(value, str):
        # Jinja's filters may return a subclass of str.
        return plain(str(value), references, meter)
    if isinstance(value, Mapping):
        meter.keep_items(len(value))
        return _plain_mapping(value, references, meter, depth)
    if isinstance(value, list | tuple):
        return plain(list(value), references, meter, depth)
    require(value)
    raise EvaluationFailure(f"the value is {kind_of(value)}, which JSON cannot hold")


def text_of(value: Any, references: References, meter: Meter) -> str:
    """Writes ``value`` as text like Jinja (``True``, ``None``, ``['a']``).

    Raises:
        EvaluationFailure: As for :func:`plain`.
    """
    kind = type(value)
    if kind is str:
        meter.write(len(value))
        return value  # type: ignore[no-any-return]
    if kind is int or kind is bool:
        text = str(value)
        meter.write(len(text))
        return text
    meter.spend_either(0, 1)
    before = meter.kept_chars
    plain_value = plain_for_text(value, references, meter)
    text = str(plain_value)
    meter.write(max(len(text) - (meter.kept_chars - before), 0))
    return text


def plain_for_text(value: Any, references: References, meter: Meter) -> JSON:
    """Makes a value :func:`plain` that becomes text: its strings are counted as output in advance."""
    before = meter.kept_chars
    plain_value = plain(value, references, meter)
    meter.write(meter.kept_chars - before)
    return plain_value


def make_read(namespace: str, parts: tuple[Any, ...], *, tolerant: bool) -> Read:
    """Makes the function that reads a path.

    Args:
        namespace: The first part of the path.
        parts: The keys and indices after it, or :data:`COMPUTED`.
        tolerant: Whether an undefined part yields an undefined value, as under ``default()`` and ``is defined``,
            instead of an :class:`EvaluationFailure`.
    """
    static = _read_path(namespace, parts, tolerant=tolerant)
    if not parts and namespace in _WHOLE_VIEWS:

        def read_whole(scope: Scope, meter: Meter) -> Any:
            views = static(scope, meter)
            return views if isinstance(views, Missing) else unwrap_members(views, scope.references)

        return read_whole
    if COMPUTED not in parts:
        return static

    def read(scope: Scope, meter: Meter, *keys: Any) -> Any:
        given = iter(keys)
        filled = tuple(next(given) if part is COMPUTED else part for part in parts)
        return _read_path(namespace, filled, tolerant=tolerant)(scope, meter)

    return read


def _read_path(namespace: str, parts: tuple[Any, ...], *, tolerant: bool) -> Read:
    def read(scope: Scope, meter: Meter) -> Any:
        try:
            value = scope.namespaces[namespace]
        except KeyError:
            return _missing_namespace(namespace, tolerant=tolerant)
        if type(value) in _WRAPPED:
            value = unwrap(value, scope.references)
        for part in parts:
            kind = type(value)
            if (kind is dict or kind is OutcomeEnvelope) and part in value:
                value = value[part]
                continue
            found = lookup(value, part, scope.references)
            if found is NOT_FOUND:
                return _first_missing(namespace, parts, scope, tolerant=tolerant)
            value = found
        kind = type(value)
        return unwrap(value, scope.references) if kind in _WRAPPED or kind is OutcomeEnvelope else value

    return read


def _missing_namespace(namespace: str, *, tolerant: bool) -> Any:
    if tolerant:
        return undefined_part(namespace)
    raise EvaluationFailure(f"`{namespace}` is undefined", hint="the namespace is not available here")


def _first_missing(namespace: str, parts: tuple[Any, ...], scope: Scope, *, tolerant: bool) -> Any:
    value = scope.namespaces[namespace]
    value = unwrap(value, scope.references) if type(value) in _WRAPPED else value
    for position, part in enumerate(parts):
        element = lookup(value, part, scope.references)
        if element is NOT_FOUND:
            path = (namespace, *parts[: position + 1])
            if tolerant:
                return undefined_part(written_path(path))
            raise not_found_error(value, path, scope.references)
        value = element
    return value
