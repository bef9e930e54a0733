"""Scopes as JSON: packs the namespaces that templates read, for another process, which unpacks them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from noetl_stream.model.outcome import ErrorInfo, Payload, Reference, StepValue
from noetl_stream.template.runtime.scope import ABSENT, LazyResult, ResultView, event_view

Reads = Collection[tuple[str, str | None]]
"""Namespaces and first keys, as in :attr:`~noetl_stream.template.Template.reads`."""


class PackedEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """The namespace ``event``: the arguments of :func:`~noetl_stream.template.runtime.scope.event_view`."""

    name: str | None
    step: str
    status: str
    result: Payload | None = None
    error: ErrorInfo | None = None
    loop: dict[str, int] | None = None


class PackedScope(msgspec.Struct, frozen=True, omit_defaults=True):
    """The namespaces of a scope as JSON: ``plain`` holds values, ``steps`` and ``absent`` make ``steps``."""

    plain: dict[str, Any] = {}
    steps: dict[str, StepValue] | None = None
    absent: list[str] = []
    event: PackedEvent | None = None

    def references(self) -> Iterator[Reference]:
        """The results by reference that the scope names."""
        payloads = [] if self.event is None or self.event.result is None else [self.event.result]
        for value in (self.steps or {}).values():
            payloads += [outcome.result for outcome in (value.outcome, *value.results.values())]
        return (payload.reference for payload in payloads if payload.reference is not None)


def pack(namespaces: Mapping[str, Any], names: Collection[str], reads: Reads) -> PackedScope:
    """Packs those of ``names`` that ``reads`` contains, without the keys that it does not.

    Args:
        namespaces: The namespaces of a scope that the server makes.
    """
    plain: dict[str, Any] = {}
    steps: dict[str, StepValue] | None = None
    absent: list[str] = []
    event = None
    for name in names:
        keys = {key for namespace, key in reads if namespace == name}
        if name not in namespaces or not keys:
            continue
        value = namespaces[name]
        if name == "event":
            event = _pack_event(value)
            continue
        if isinstance(value, Mapping) and None not in keys:
            value = {key: value[key] for key in sorted(map(str, keys)) if key in value}
        if name == "steps":
            steps = {key: view.step_value for key, view in value.items() if isinstance(view, ResultView)}
            absent = [key for key, view in value.items() if view is ABSENT]
        else:
            plain[name] = value
    return PackedScope(plain, steps, absent, event)


def unpack(*packed: PackedScope) -> dict[str, Any]:
    """The namespaces of packed scopes, in one or several parts."""
    namespaces: dict[str, Any] = {}
    for part in packed:
        namespaces |= part.plain
        if part.steps is not None:
            views = {name: ResultView(value.outcome, value.results) for name, value in part.steps.items()}
            namespaces["steps"] = dict.fromkeys(part.absent, ABSENT) | views
        if part.event is not None:
            event = part.event
            namespaces["event"] = event_view(
                event.name, event.step, event.result, event.error, event.loop, status=event.status
            )
    return namespaces


def _pack_event(view: Mapping[str, Any]) -> PackedEvent:
    result, error, loop = view["result"], view["error"], view["loop"]
    return PackedEvent(
        view["name"],
        view["step"],
        view["status"],
        result.payload if isinstance(result, LazyResult) else None,
        None if error is ABSENT else ErrorInfo(**{key: value for key, value in error.items() if value is not ABSENT}),
        None if loop is ABSENT else dict(loop),
    )
