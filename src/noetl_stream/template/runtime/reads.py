"""Reads of a namespace, such as ``ctx.rows[0].name``: the one place that walks from a scope to a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from noetl_stream.model.reference import Payload
from noetl_stream.template.failures import EvaluationFailure
from noetl_stream.template.runtime.access import (
    NOT_THERE,
    missing,
    reach,
    settle,
    settle_members,
    why_not_there,
    written_path,
)
from noetl_stream.template.runtime.meter import Meter
from noetl_stream.template.runtime.scope import LazyResult, OutcomeEnvelope, ResultView, Scope

Read: TypeAlias = Callable[..., Any]
"""``read(scope, meter, *keys)``: the value, with ``keys`` for the places of the path that are computed.

It takes a meter to have the form of every other evaluation; a read costs nothing that must be counted.
"""

COMPUTED: Final = object()
"""Stands in a path for a key that is computed when the template is evaluated."""

_WHOLE_VIEWS: Final = frozenset({"steps", "results"})
_UNSETTLED: Final = frozenset({ResultView, LazyResult, Payload})


def make_read(namespace: str, parts: tuple[Any, ...], *, tolerant: bool) -> Read:
    """A function that reads this path.

    Args:
        namespace: Where the path starts.
        parts: Keys and indices from there, or :data:`COMPUTED`.
        tolerant: Whether an undefined part gives an undefined value, as under ``default()`` and ``is defined``,
            in place of an :class:`EvaluationFailure`.
    """
    if not parts:
        return _read_whole(namespace, tolerant=tolerant)
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
        if type(value) in _UNSETTLED:
            value = settle(value, scope.references)
        for part in parts:
            kind = type(value)
            if (kind is dict or kind is OutcomeEnvelope) and part in value:
                value = value[part]
                continue
            found = reach(value, part, scope.references)
            if found is NOT_THERE:
                return _first_missing(namespace, parts, scope, tolerant=tolerant)
            value = found
        kind = type(value)
        return settle(value, scope.references) if kind in _UNSETTLED or kind is OutcomeEnvelope else value

    return read


def _read_whole(namespace: str, *, tolerant: bool) -> Read:
    def read(scope: Scope, meter: Meter) -> Any:
        try:
            value = scope.namespaces[namespace]
        except KeyError:
            return _no_namespace(namespace, tolerant=tolerant)
        if namespace in _WHOLE_VIEWS:
            return settle_members(value, scope.references)
        return settle(value, scope.references)

    return read


def _no_namespace(namespace: str, *, tolerant: bool) -> Any:
    if tolerant:
        return missing(namespace)
    raise EvaluationFailure(f"`{namespace}` is undefined", hint="there is no such namespace here")


def _first_missing(namespace: str, parts: tuple[Any, ...], scope: Scope, *, tolerant: bool) -> Any:
    value = scope.namespaces[namespace]
    value = settle(value, scope.references) if type(value) in _UNSETTLED else value
    for position, part in enumerate(parts):
        found = reach(value, part, scope.references)
        if found is NOT_THERE:
            path = (namespace, *parts[: position + 1])
            if tolerant:
                return missing(written_path(path))
            raise why_not_there(value, path, scope.references)
        value = found
    return value
