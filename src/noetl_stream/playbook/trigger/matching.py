"""Events for the templates of triggers, the decision of a trigger about an event, trials of its templates with samples,
and circles of triggers on executions (LANGUAGE §15 *Trigger*). Pure.
"""

from __future__ import annotations

import codecs
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, Self
from urllib.parse import parse_qsl

import msgspec
from msgspec.structs import replace

from noetl_stream.errors import PayloadRefused, TooDeep, UsageError
from noetl_stream.model.aggregates import (
    UNTIMED,
    EmittedEvent,
    EmittedEvents,
    EndedExecution,
    EndedExecutions,
    EndError,
    EventSource,
    StreamFormat,
    TriggerTerms,
)
from noetl_stream.model.envelope import iso
from noetl_stream.model.json.codec import check_text, decode_value, encode
from noetl_stream.model.json.texts import charset_of, decode_body, digits_lost, media_type
from noetl_stream.model.labels import KEY_FORM, key_text, label_fault
from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.model.rights import covers
from noetl_stream.playbook.check.bindings import Visible
from noetl_stream.playbook.check.calls import PlaybookCall
from noetl_stream.playbook.codes import Code
from noetl_stream.playbook.diagnostics import Diagnostic, Problems
from noetl_stream.playbook.yaml.nodes import Node, Scalar, texts_of
from noetl_stream.template import (
    ABSENT,
    Budget,
    ExpressionError,
    Guard,
    OverBudget,
    Scope,
    Template,
    compile_guard,
    compile_template,
    holds,
    render,
)
from noetl_stream.template.runtime.scope import OutcomeEnvelope
from noetl_stream.trigger.events import EVENTS, EventShape, StreamEvent, WebhookEvent
from noetl_stream.trigger.signatures import WebhookDelivery
from noetl_stream.trigger.stream_messages import MAX_MESSAGE_BYTES, TriggerMessage

MAX_REASON_CHARS: Final = 1_000
MAX_FIELDS: Final = 1000
"""The most fields of a form or of the query of an address."""

_FORM: Final = "application/x-www-form-urlencoded"


class Rules(msgspec.Struct, frozen=True):
    """The rules of a trigger for events, as written: templates over ``event``."""

    source: EventSource
    when: str | bool
    workload: Any
    key: str | None
    labels: Any = {}

    @classmethod
    def from_terms(cls, terms: TriggerTerms) -> Rules:
        """The rules of a trigger's terms."""
        return cls(terms.source, terms.when, terms.workload, terms.key, terms.labels)


class Starts(NamedTuple):
    """The event starts an execution. ``key`` is empty if the trigger has none."""

    workload: dict[str, Any]
    key: str
    labels: Mapping[str, Any] = {}


class Ignored(NamedTuple):
    """The event starts no execution, by the rules of the trigger."""

    reason: str

    @classmethod
    def for_reason(cls, reason: str) -> Self:
        """Makes an outcome with a ``reason`` that can be stored, for any quoted part of the event."""
        return cls(reason.replace("\0", "").encode(errors="replace").decode()[:MAX_REASON_CHARS])


class Fault(Ignored):
    """The event starts no execution, because the trigger failed to apply its rules to it."""

    __slots__ = ()


def visible_in(kind: EventSource) -> Visible:
    """The names that templates of a trigger may read."""
    elsewhere = {name: ("event", name) for name in EVENTS[kind].__struct_fields__}
    return Visible(frozenset(["event"]), bindings={}, shadowed={}, elsewhere=elsewhere)


def webhook_event(delivery: WebhookDelivery, time: str = UNTIMED) -> Mapping[str, Any]:
    """The namespace ``event`` of a webhook that was called at a time. ``json`` and ``form`` are absent if the body is
    neither; of a repeated field the last counts.

    Raises:
        UsageError: the body is JSON that nests too deeply.
    """
    content_type = delivery.headers.get("content-type", "")
    text = decode_body(delivery.body, content_type)
    is_form = media_type(content_type) == _FORM
    return view_of(
        WebhookEvent(
            method="POST",  # addresses of webhooks accept no other
            time=time,
            headers=dict(delivery.headers),
            query=_fields(delivery.query),
            body=msgspec.UNSET if text is None else text,
            json=msgspec.UNSET if text is None else _json(text.encode()),
            form=_fields(text, charset_of(content_type)) if is_form and text is not None else msgspec.UNSET,
        )
    )


def digits_lost_in(terms: TriggerTerms, given: Mapping[str, Any]) -> list[str]:
    """The JSON pointers of the numbers in an event, as :func:`read_event` takes it, that lose digits."""
    text = given.get("body")
    if not isinstance(text, str) or (terms.nats is not None and terms.nats.format != "json"):
        return []
    name = "json" if terms.source == "webhook" else "data"
    return [f"/event/{name}{pointer}" for pointer in digits_lost(text.encode())]


def execution_event(ended: EndedExecution) -> Mapping[str, Any]:
    """The namespace ``event`` of the end of an execution."""
    return view_of(ended)


def view_of(event: msgspec.Struct) -> Mapping[str, Any]:
    """An event in the form for templates."""
    fields = msgspec.structs.asdict(event)
    return OutcomeEnvelope((name, _shown_value(value)) for name, value in fields.items())


def _shown_value(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return view_of(value)
    return ABSENT if value is msgspec.UNSET else value


def concerns(wanted: EndedExecutions | EmittedEvents, path: str, labels: Mapping[str, Any], word: str) -> bool:
    """Whether the trigger waits for this end or event, apart from its templates; ``word`` is the status, or name."""
    below = wanted.path.removesuffix("*") if wanted.path.endswith("/*") else None
    is_there = not wanted.path or path == wanted.path or (below is not None and path.startswith(below))
    is_labelled = all(name in labels and labels[name] == value for name, value in wanted.labels.items())
    words = (wanted.name,) if isinstance(wanted, EmittedEvents) else wanted.status
    return is_there and is_labelled and (not words or word in words)


def match(rules: Rules, event: Mapping[str, Any], limits: Limits = DEFAULT_LIMITS) -> Starts | Ignored:
    """Decides what the trigger does with an event. Never raises for the content of the event."""
    when, workload, labels, key = _compile_rules(encode(rules))
    scope = Scope({"event": event}, limits=limits, budget=Budget(limits.max_inline_operations))
    try:
        if not holds(when, scope):
            return Ignored.for_reason(f"`when` does not hold: {when.source}")
        rendered_key = None if key is None else render(key, scope)
        return _check_start(render(workload, scope), render(labels, scope), rendered_key, limits)
    except ExpressionError as error:
        return Fault.for_reason(f"cannot be evaluated: {error}")
    except OverBudget:
        return Fault.for_reason(
            f"its templates cost more than {limits.max_inline_operations:,} operations (limits.max_inline_operations)"
        )
    except PayloadRefused as error:
        return Fault.for_reason(f"the workload cannot be stored: {error.message}")


def _check_start(workload: Any, labels: Any, key: Any, limits: Limits) -> Starts | Ignored:
    encoded = encode(workload)
    check_text(encoded)
    size = len(encoded)
    if size > limits.max_workload_bytes:
        most = limits.max_workload_bytes
        return Fault.for_reason(
            f"the workload has {size:,} bytes of JSON; the limit is {most:,} (limits.max_workload_bytes)"
        )
    if fault := label_fault(labels):
        return Fault.for_reason(f"`labels`: {fault}")
    if key is None:
        return Starts(workload, "", labels)
    text = key_text(key)
    return Starts(workload, text, labels) if text else Fault.for_reason(KEY_FORM)


@lru_cache(maxsize=256)
def _compile_rules(rules: bytes) -> tuple[Guard, Template, Template, Template | None]:
    read = msgspec.json.decode(rules, type=Rules)
    names = visible_in(read.source).namespaces
    key = read.key
    return (
        compile_guard(read.when, namespaces=names, bindings={}),
        compile_template(read.workload, namespaces=names, bindings={}, expressions_only=True),
        compile_template(read.labels, namespaces=names, bindings={}, expressions_only=True),
        None if key is None else compile_template(key, namespaces=names, bindings={}, expressions_only=True),
    )


def _json(body: bytes) -> Any:
    try:
        return decode_value(body)
    except TooDeep as error:
        raise UsageError(f"its body is {error.message}") from None
    except PayloadRefused:
        return msgspec.UNSET


def _fields(text: str, charset: str = "utf-8") -> dict[str, str]:
    try:
        return dict(parse_qsl(text, keep_blank_values=True, encoding=charset, max_num_fields=MAX_FIELDS))
    except ValueError:
        return {}


class _GivenDelivery(msgspec.Struct, forbid_unknown_fields=True):
    method: Literal["POST"] = "POST"
    time: str = UNTIMED
    headers: dict[str, str] = {}
    query: str = ""
    body: str = ""
    base64: str | None = None
    json: Any = msgspec.UNSET


class _GivenMessage(msgspec.Struct, forbid_unknown_fields=True):
    subject: str
    stream: str = ""
    sequence: int = 0
    time: str = UNTIMED
    headers: dict[str, str] = {}
    body: str = ""
    base64: str | None = None
    json: Any = msgspec.UNSET
    size: int = 0


class _GivenError(EndError, frozen=True, forbid_unknown_fields=True):
    pass


class _GivenEnd(EndedExecution, frozen=True, forbid_unknown_fields=True):
    error: _GivenError | None = None


class _GivenEvent(EmittedEvent, frozen=True, forbid_unknown_fields=True):
    id: str = ""
    execution_id: str = ""
    path: str = ""
    step: str = ""


def describe_delivery(delivery: WebhookDelivery) -> dict[str, Any]:
    """Describes a delivery in the form of :func:`read_event`: plain JSON values."""
    query = {"query": delivery.query} if delivery.query else {}
    return {"method": delivery.method, "headers": dict(delivery.headers), **query, **_describe_body(delivery.body)}


def describe_message(message: TriggerMessage) -> dict[str, Any]:
    """Describes a message of a stream for :func:`read_event`: plain JSON values, with only ``size`` if too large."""
    place = {"subject": message.subject, "stream": message.stream, "sequence": message.sequence}
    event = {**place, "time": iso(message.at_ms)}
    if message.size > MAX_MESSAGE_BYTES:
        return {**event, "size": message.size}
    headers = {"headers": dict(message.headers)} if message.headers else {}
    return {**event, **headers, **_describe_body(message.body)}


def _describe_body(body: bytes) -> dict[str, str]:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = "\0"
    return {"base64": b64encode(body).decode()} if "\0" in text else {"body": text}


def read_event(source: EventSource, given: Any, form: StreamFormat = "json") -> Mapping[str, Any]:
    """Reads the namespace ``event`` from a description of an event: the keys of a delivery or a message, with ``json``
    or ``base64`` in place of ``body``, or of an end.

    Args:
        form: The format of a message's data.

    Raises:
        UsageError: the description is not valid.
    """
    try:
        if source == "execution":
            return execution_event(msgspec.convert(given, _GivenEnd))
        if source == "event":
            return view_of(msgspec.convert(given, _GivenEvent))
        if source == "nats":
            return _message_event(msgspec.convert(given, _GivenMessage), form)
        found = msgspec.convert(given, _GivenDelivery)
    except msgspec.ValidationError as error:
        raise UsageError(f"not an event of `{source}`: {error}", hint=f"write {_EXAMPLES[source]}") from None
    body = _body_of(found)
    headers = {name.lower(): value for name, value in found.headers.items()}
    delivery = WebhookDelivery(method=found.method, headers=headers, query=found.query, body=body)
    return webhook_event(delivery, found.time)


_EXAMPLES: Final[Mapping[EventSource, str]] = {
    "webhook": "json: { … }",
    "nats": "{ subject: orders.paid, json: { … } }",
    "execution": "{ execution_id: …, path: …, status: failed, error: { kind: …, message: … } }",
    "event": "{ name: order_shipped, path: …, data: { … } }",
}


def _body_of(given: _GivenDelivery | _GivenMessage) -> bytes:
    if given.base64 is not None:
        try:
            return b64decode(given.base64)
        except ValueError as error:
            raise UsageError(f"`base64` of the event: {error}") from None
    return given.body.encode() if given.json is msgspec.UNSET else encode(given.json)


def _message_event(given: _GivenMessage, form: StreamFormat) -> Mapping[str, Any]:
    if given.size > MAX_MESSAGE_BYTES:
        raise UsageError(f"the message has {given.size:,} bytes, and at most {MAX_MESSAGE_BYTES:,} are taken")
    return view_of(
        StreamEvent(
            subject=given.subject,
            data=_data(_body_of(given), form),
            headers=given.headers,
            stream=given.stream,
            sequence=given.sequence,
            time=given.time,
        )
    )


def _data(body: bytes, form: StreamFormat) -> Any:
    if form == "bytes":
        return b64encode(body).decode()
    try:
        body = body.removeprefix(codecs.BOM_UTF8)
        return decode_value(body) if form == "json" else body.decode()
    except TooDeep as error:
        raise UsageError(f"its data is {error.message}") from None
    except PayloadRefused as error:
        raise UsageError(f"its data is not JSON: {error.message}", hint="`format: text` and `bytes` take any") from None
    except UnicodeDecodeError:
        raise UsageError("its data is not UTF-8 text", hint="`format: bytes` takes any") from None


CIRCLE: Final[Code] = "trigger_circle"
"""The code of the warning about a circle of triggers."""


def circle_of(
    path: str, triggers: Mapping[str, TriggerTerms], emitted: Mapping[str, Collection[str]] = {}
) -> list[str]:
    """The shortest circle of triggers, by path, from ``path`` on: each waits for the end of an execution that the
    previous one starts, or an event that it emits, and the first for those of the last. Empty if there is none. A
    trigger never sees executions that it has started itself.

    Labels, status and ``when`` are ignored: they may break the circle.

    Args:
        emitted: The names of the events that a trigger's executions can emit, by its path.
    """
    ways, seen = [[path]], {path}
    while ways:
        way = ways.pop(0)
        for found in _triggers_after(triggers[way[-1]].playbook, triggers, emitted.get(way[-1], ())):
            if found == path and len(way) > 1:
                return way
            if found not in seen:
                seen.add(found)
                ways.append([*way, found])
    return []


def warning_of(circle: Sequence[str], call: PlaybookCall, file: str, paths: Sequence[str] = ()) -> Diagnostic:
    """The warning about a circle, at the playbook that the first trigger starts.

    Args:
        paths: The paths that the caller may see, empty for all: other triggers are counted, not named.
    """
    shown = [path for path in circle[1:] if covers(paths, path)]
    hidden = len(circle) - 1 - len(shown)
    more = [f"{hidden} other triggers" if hidden > 1 else "another trigger"] if hidden else []
    message = f"what follows from `{call.path}` may start it again through {', '.join([*shown, *more])}, without end"
    hint = (
        "let it wait for something else or start another playbook (`playbook check` names the triggers that you may "
        "see); where `labels`, `status` or `when` break the circle, or it is meant, write allow_circle: true under "
        "`spec`, without which it is not registered"
    )
    return Diagnostic.warning(CIRCLE, message, hint, file, call.at)


def _triggers_after(playbook: str, triggers: Mapping[str, TriggerTerms], emitted: Collection[str]) -> list[str]:
    """The triggers that may wait for the end of an execution of this playbook, or for one of its events."""
    found: list[str] = []
    for path, terms in triggers.items():
        if terms.execution is not None:
            is_next = concerns(replace(terms.execution, labels={}, status=()), playbook, {}, "")
        else:
            wanted = terms.event
            is_next = wanted is not None and any(
                concerns(replace(wanted, labels={}), playbook, {}, name) for name in emitted
            )
        if is_next:
            found.append(path)
    return found


class EventSamples:
    """Samples of the events that a trigger may receive: those for which ``when`` holds, once it was checked.

    The samples have the types and the nulls of the events, but not their content: for a template that reads content,
    only faults that occur with any content are reported. A template that reads a value of unknown type is not tried.
    """

    def __init__(self, shape: EventShape, problems: Problems) -> None:
        self._shape = shape
        self._problems = problems
        self._names = visible_in(shape.source).namespaces
        self._left = [(sample.label, {"event": view_of(sample.event)}) for sample in shape.samples()]
        self._possible = len(self._left)

    def check(self, name: str, node: Node) -> None:
        """Reports texts of a value that cannot be evaluated for these events; as an error if for none of them."""
        for at, text in texts_of(node):
            read = (
                compile_guard(text, namespaces=self._names, bindings={})
                if name == "when"
                else compile_template(text, namespaces=self._names, bindings={}, expressions_only=True)
            )
            if not read.paths or not all(map(self._shape.is_known, read.paths)):
                continue
            faults = dict(self._faults(read))
            if not faults:
                continue
            label, error = next(iter(faults.items()))
            if len(faults) == self._possible:
                self._report(name, at, f"for any event: {error}")
            else:
                hint = "say what it is then, with `| default('', true)` or `if`, or leave these events out by `when`"
                self._problems.warn("cannot_render", f"`{name}` cannot be evaluated for {label}: {error}", at, hint)

    def _report(self, name: str, at: Scalar, why: str) -> None:
        self._problems.error("cannot_render", f"`{name}` cannot be evaluated {why}", at, "correct the expression")

    def _faults(self, read: Guard | Template) -> Iterator[tuple[str, str]]:
        """The samples for which it cannot be evaluated, with the reason. Samples for which a guard does not hold are
        omitted; if their content decided that, such an event is still possible.
        """
        for label, names in [*self._left]:
            of_content = any(self._is_content(path, names) for path in read.paths)
            scope = Scope(names, limits=DEFAULT_LIMITS, budget=Budget(DEFAULT_LIMITS.max_inline_operations))
            try:
                if isinstance(read, Guard):
                    if not holds(read, scope):
                        self._left.remove((label, names))
                        self._possible -= not of_content
                else:
                    render(read, scope)
            except ExpressionError as error:
                if not of_content or _is_of_type(error):
                    yield label, str(error)
            except OverBudget:
                yield label, "it costs too much"

    def _is_content(self, path: tuple[str, ...], names: Mapping[str, Any]) -> bool:
        """Whether the sample's value at a path stands for any content: not for null, a time, or one of few words."""
        value: Any = names
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value is not None and value != UNTIMED and not self._shape.words(path)


def _is_of_type(error: ExpressionError) -> bool:
    """Whether a fault is one of types or of null, with any content; a guard that is text has no cause."""
    cause = error.__cause__
    return cause is None or isinstance(cause, TypeError) or "null" in str(cause)
