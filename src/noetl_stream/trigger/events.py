"""The events of triggers: the content of ``event`` in their templates, one model for each source (LANGUAGE §15
*Trigger*).

Events are built as these models, ``check`` reads their fields, and ``docs/reference/triggers.md`` lists them. A field
that is :data:`msgspec.UNSET` is absent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, cast

import msgspec
from msgspec.inspect import (
    AnyType,
    DictType,
    LiteralType,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    type_info,
)

from noetl_stream.model.aggregates import (
    UNTIMED,
    EmittedEvent,
    EmittedEvents,
    EndedExecution,
    EndedExecutions,
    EndError,
    EventSource,
    StreamFilter,
    Verification,
)
from noetl_stream.model.status import EndStatus
from noetl_stream.trigger.signatures import secret_headers

Path = tuple[str, ...]


class WebhookEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery to a webhook. Header names are lower-case; of a repeated field of the query or form the last one
    counts.

    ``body`` is absent if it is not UTF-8, ``json`` and ``form`` if the body is neither.
    """

    method: Literal["POST"]
    time: str
    query: dict[str, str]
    headers: dict[str, str]
    body: str | msgspec.UnsetType = msgspec.UNSET
    json: Any = msgspec.UNSET
    form: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a stream. ``data`` is text unless its format is JSON; ``time`` is when the stream stored it."""

    subject: str
    stream: str
    sequence: int
    time: str
    data: Any
    headers: dict[str, str]


EVENTS: Final[Mapping[EventSource, type[msgspec.Struct]]] = {
    "webhook": WebhookEvent,
    "nats": StreamEvent,
    "execution": EndedExecution,
    "event": EmittedEvent,
}
"""The model of ``event`` by the source of the trigger."""


class UnknownPath(NamedTuple):
    """A path that no event has. ``message`` is the error; ``known`` are the keys that exist there."""

    message: str
    key: str
    known: Collection[str] = ()


class Sample(NamedTuple):
    """An event with which templates are tried; ``label`` names its kind."""

    label: str
    event: msgspec.Struct


class EventShape(msgspec.Struct, frozen=True):
    """The shape of the events that one trigger receives.

    Attributes:
        narrowed: The types of paths below ``event`` that are narrower than in the model, by what the trigger waits for;
            ``None``: always absent.
        left_out: The headers that no event has.
        ctx: The keys of ``event.ctx``.
    """

    source: EventSource
    narrowed: Mapping[Path, Type | None] = {}
    left_out: frozenset[str] = frozenset()
    ctx: Collection[str] = ()

    @classmethod
    def from_source(
        cls, source: EventSource, waits_for: Verification | StreamFilter | EndedExecutions | EmittedEvents | None
    ) -> EventShape:
        """The shape of events by what a trigger waits for; ``None`` if that could not be read."""
        match waits_for:
            case Verification():
                return cls(source, left_out=secret_headers(waits_for))
            case StreamFilter(format=form) if form != "json":
                return cls(source, {("data",): StrType()})
            case EmittedEvents(name=name, path=path):
                return cls(source, {("name",): LiteralType((name,)), **_only(path)})
            case EndedExecutions(path=path, status=status, ctx=keys):
                narrowed: dict[Path, Type | None] = _only(path)
                if status:
                    narrowed["status",] = LiteralType(status)
                    narrowed |= {} if {"failed", "cancelled"} & {*status} else {("error",): None}
                    narrowed |= {} if "completed" in status else {("result",): None}
                return cls(source, narrowed, ctx=keys)
        return cls(source)

    def unknown(self, path: Path) -> UnknownPath | None:
        """The error of a path, which begins with ``event``, that no event has; ``None`` if one may have it."""
        here: Type | None = _model(self.source)
        for depth, key in enumerate(path[1:], 1):
            place = ".".join(path[:depth])
            owner = f"an event of `{self.source}`" if depth == 1 else f"`{place}`"
            match here:
                case AnyType():
                    return None
                case StructType(fields=fields):
                    types = {field.name: field.type for field in fields}
                    if key not in types:
                        return UnknownPath(f"{owner} has no `{key}`", key, tuple(types))
                    here = self.narrowed.get(path[1 : depth + 1], types[key])
                case DictType(value_type=inner):
                    if path[:2] == ("event", "headers") and (fault := self._header_fault(key)):
                        return fault
                    if path[:2] == ("event", "ctx") and depth == 2 and key not in self.ctx:
                        return UnknownPath(f"`event.ctx` has no `{key}`: `with` does not name it", key, self.ctx)
                    here = inner
                case _:
                    return UnknownPath(f"{owner} is not a mapping and has no `{key}`", key)
            if here is None:
                return UnknownPath(f"`{place}.{key}` is always null: the trigger is not told of ends that have it", key)
            here = _without_null(here)
        return None

    def is_known(self, path: Path) -> bool:
        """Whether the value at a path has a type in the model and is not a mapping."""
        here: Type = _model(self.source)
        for key in path[1:]:
            fields = {field.name: field.type for field in here.fields} if isinstance(here, StructType) else {}
            if key not in fields:
                return False
            here = _without_null(fields[key])
        return not isinstance(here, AnyType | DictType | StructType)

    def samples(self) -> Iterator[Sample]:
        """An event of each kind that the trigger may receive, with and without its optional members."""
        if self.source == "webhook":
            yield Sample("a delivery", WebhookEvent(method="POST", time=UNTIMED, query={}, headers={}, body="text"))
        elif self.source == "nats":
            event = StreamEvent(subject="orders", stream="ORDERS", sequence=1, time=UNTIMED, data="", headers={})
            yield Sample("a message", event)
        elif self.source == "event":
            emitted = EmittedEvent(
                id="execution-1.7",
                name="".join(self.words(("event", "name"))),
                execution_id="execution-1",
                path="".join(self.words(("event", "path"))) or "folder/name",
                step="start",
            )
            yield Sample("an event that has null as `version`, `url`, `due`", emitted)
            full = msgspec.structs.replace(emitted, version="1", url="https://noetl.example.com", due=UNTIMED)
            yield Sample("an event", full)
        else:
            for status in self.words(("event", "status")):
                yield from _sample_ends(cast(EndStatus, status), "".join(self.words(("event", "path"))))

    def words(self, path: Path) -> tuple[str, ...]:
        """All values that the text at a path of the event may have; empty if they are not enumerable."""
        found = self.narrowed.get(path[1:])
        if found is None and len(path) == 2:
            found = next((field.type for field in _model(self.source).fields if field.name == path[1]), None)
        return tuple(map(str, found.values)) if isinstance(found, LiteralType) else ()

    def _header_fault(self, name: str) -> UnknownPath | None:
        if self.source != "webhook":
            return None
        if name != name.lower():
            return UnknownPath(
                f"`event.headers` has no `{name}`: names of headers are lower-case", name, (name.lower(),)
            )
        if name in self.left_out:
            return UnknownPath(f"`event.headers` has no `{name}`: what shows who sent an event is left out of it", name)
        return None


def _only(path: str) -> dict[Path, Type | None]:
    """The known types of the path of executions, given the path that a trigger names."""
    return {("path",): LiteralType((path,))} if path and not path.endswith("/*") else {}


def _sample_ends(status: EndStatus, path: str) -> Iterator[Sample]:
    """The end of an execution that a schedule has started, with a version and a link, and of one without."""
    error = None if status == "completed" else EndError("http_error", "404", "fetch", "get", "404")
    known: dict[str, Any] = {"execution_id": "execution-1", "path": path or "folder/name", "status": status}
    full = EndedExecution(**known, version="1", error=error, url="https://noetl.example.com", due=UNTIMED)
    yield Sample(f"an end with status `{status}`", full)
    bare = EndedExecution(**known, error=error and EndError(error.kind, error.message))
    absent = "`version`, `url`, `due`" + (", `error.step`, `error.task`, `error.code`" if error else "")
    yield Sample(f"an end with status `{status}` that has null as {absent}", bare)


@lru_cache
def _model(source: EventSource) -> StructType:
    found = type_info(EVENTS[source])
    assert isinstance(found, StructType)
    return found


def _without_null(type_: Type) -> Type:
    return next(one for one in type_.types if not isinstance(one, NoneType)) if isinstance(type_, UnionType) else type_
