"""Reads of namespace paths such as ``ctx.rows[0].name``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from noetl_stream.model.outcome import Payload
from noetl_stream.template.failures import EvaluationFailure
from noetl_stream.template.runtime.access import (
    NOT_FOUND,
    lookup,
    missing,
    not_found_error,
    unwrap,
    unwrap_members,
    written_path,
)
from noetl_stream.template.runtime.meter import Meter
from noetl_stream.template.runtime.scope import LazyResult, OutcomeEnvelope, ResultView, Scope

Read: TypeAlias = Callable[..., Any]
"""``read(scope, meter, *keys)``: the value of a path, with ``keys`` for its computed parts.

A read costs nothing; it takes a meter only to have the signature of other evaluations.
"""

COMPUTED: Final = object()
"""The part of a path that is computed during evaluation."""

_WHOLE_VIEWS: Final = frozenset({"steps", "results"})
_WRAPPED: Final = frozenset({ResultView, LazyResult, Payload})


def make_read(namespace: str, parts: tuple[Any, ...], *, tolerant: bool) -> Read:
    """The function that reads a path.

    Args:
        namespace: The first part of the path.
        parts: The keys and indices after it, or :data:`COMPUTED`.
        tolerant: Whether an undefined part yields an undefined value, as under ``default()`` and ``is defined``,
            instead of an :class:`EvaluationFailure`.
    """
    if not parts:
        return _read_namespace(namespace, tolerant=tolerant)
    static = _read_path(namespace, parts, tolerant=tolerant)
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
            return _no_namespace(namespace, tolerant=tolerant)
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


def _read_namespace(namespace: str, *, tolerant: bool) -> Read:
    def read(scope: Scope, meter: Meter) -> Any:
        try:
            value = scope.namespaces[namespace]
        except KeyError:
            return _no_namespace(namespace, tolerant=tolerant)
        if namespace in _WHOLE_VIEWS:
            return unwrap_members(value, scope.references)
        return unwrap(value, scope.references)

    return read


def _no_namespace(namespace: str, *, tolerant: bool) -> Any:
    if tolerant:
        return missing(namespace)
    raise EvaluationFailure(f"`{namespace}` is undefined", hint="the namespace is not available here")


def _first_missing(namespace: str, parts: tuple[Any, ...], scope: Scope, *, tolerant: bool) -> Any:
    value = scope.namespaces[namespace]
    value = unwrap(value, scope.references) if type(value) in _WRAPPED else value
    for position, part in enumerate(parts):
        found = lookup(value, part, scope.references)
        if found is NOT_FOUND:
            path = (namespace, *parts[: position + 1])
            if tolerant:
                return missing(written_path(path))
            raise not_found_error(value, path, scope.references)
        value = found
    return value
