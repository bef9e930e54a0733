"""Reads documents of ``kind: Trigger``, which start executions of a playbook on events (LANGUAGE §15 *Trigger*)."""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingOf
from datetime import UTC
from typing import Annotated, Any, ClassVar, Final, get_args

import msgspec

from noetl_stream.model.aggregates import (
    DEFAULT_TOLERANCE_S,
    EmittedEvents,
    EndedExecutions,
    EventSource,
    Exceeding,
    SignatureAlgorithm,
    SignatureEncoding,
    SignatureForm,
    StartRate,
    StreamFilter,
    StreamFormat,
    TriggerTerms,
    Verification,
)
from noetl_stream.model.limits import Limits
from noetl_stream.model.rights import MAX_PATH_CHARS, has_valid_segments
from noetl_stream.model.status import EndStatus
from noetl_stream.playbook.check.calls import PlaybookCall
from noetl_stream.playbook.check.templates import TemplateRead, Templates
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.catalog_document import (
    NAME,
    TEXT,
    CatalogRoot,
    Shaped,
    document_schema,
    read_head,
    schema_of,
)
from noetl_stream.playbook.model.document import Label, read_labels, read_workload
from noetl_stream.playbook.model.sections import MAPPING, Part, Required, Schema, Section, described, is_null, or_null
from noetl_stream.playbook.schedule.schedule_document import (
    DURATION,
    check_playbook,
    needs_zone,
    read_duration,
    read_time,
)
from noetl_stream.playbook.suggestions import did_you_mean, list_names
from noetl_stream.playbook.trigger.matching import EventSamples, visible_in
from noetl_stream.playbook.trigger.notification import Notification, NotifySection, notify_path, read_notification
from noetl_stream.playbook.vocabulary.hints import RejectedKey
from noetl_stream.playbook.vocabulary.names import check_identifier
from noetl_stream.playbook.yaml.nodes import Mapping, Node, Scalar, child
from noetl_stream.playbook.yaml.source import PlaybookSource
from noetl_stream.trigger.events import EventShape
from noetl_stream.trigger.rates import MOST_PER_MINUTE
from noetl_stream.trigger.stream_messages import is_subject_pattern, stream_fault

_STREAM_HINT: Final = "write nats: { stream: ORDERS, subject: orders.> }"
_FROM_HINT: Final = "write new, all, or a time with its offset: 2026-11-05T09:00:00Z"


class StreamSource(Section):
    title = "`nats`"
    example = _STREAM_HINT

    stream: Annotated[str | None, Required("stream: ORDERS")] = described(
        "The stream on NATS.", {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}
    )
    subject: str | None = described("Which of its subjects: orders.*.paid, orders.>. Default: all.")
    from_: str | None = described("The first message: new, all, or a time. Default: new.", alias="from")
    format: StreamFormat | None = described(
        "What their data is. Default: json.", {"enum": [*get_args(StreamFormat), None]}
    )


def read_stream(node: Node | None, problems: Problems) -> StreamFilter | None:
    """Reads the messages of a stream that start executions; ``None``, after reporting, if that is invalid."""
    node, read = StreamSource.read_whole(node, problems)
    if not isinstance(node, Mapping) or is_null(node.get("stream")):
        return None
    name = read.stream or ""
    if fault := stream_fault(name):
        problems.error("invalid_value", fault, node.values["stream"], "name a stream of your own")
    subject = read.subject or ">"
    if not is_subject_pattern(subject):
        hint = "write tokens with dots between; * stands for one token, > for all that follow: orders.*.paid, orders.>"
        message = f"`subject`: `{subject}` is not a subject pattern"
        problems.error("invalid_value", message, node.values["subject"], hint)
    return StreamFilter(
        stream=name,
        subject=subject,
        from_ms=_from_ms(read.from_ or "new", node, problems),
        format=read.format or "json",
    )


def _from_ms(text: str, node: Mapping, problems: Problems) -> int | None:
    if text in ("new", "all"):
        return None if text == "new" else 0
    at_ms = None if needs_zone(text) else read_time(text, UTC)
    if at_ms is None:
        problems.error("invalid_value", f"`from`: `{text}` is not a valid time", node.values["from"], _FROM_HINT)
    return at_ms


MAX_TOLERANCE_S: Final = 3600
MAX_LABELS: Final = 20
MAX_CTX_KEYS: Final = 20
MAX_HEADER_CHARS: Final = 128

_WEBHOOK_HINT: Final = "write webhook: { verify: github, credential: … }"
_SOURCE_HINT: Final = (
    "write on: { webhook: { … } }, on: { nats: { … } }, on: { execution: { … } } or on: { event: { … } }"
)
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_|~-]{1,128}")
_CREDENTIAL: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_HEADER_NAME: Final = or_null({"type": "string", "minLength": 1, "maxLength": MAX_HEADER_CHARS})
_KEYS_OF_FORMS: Final[MappingOf[str, tuple[str, ...]]] = {
    "github": (),
    "stripe": ("tolerance",),
    "slack": ("tolerance",),
    "hmac": ("header", "algorithm", "encoding", "prefix", "timestamp_header", "tolerance"),
    "token": ("header",),
    "none": (),
}
"""The keys of ``webhook`` in addition to ``verify`` and ``credential``, by the form that they belong to."""


class WebhookSource(Section):
    title = "`webhook`"
    example = _WEBHOOK_HINT
    rejected: ClassVar = {
        word: RejectedKey(
            f"unknown key `{word}` in `webhook`",
            "remove it: the address follows from metadata.path: /api/v1/hooks/<the path>",
            "unknown_key",
        )
        for word in ("path", "url", "endpoint", "route")
    }

    verify: Annotated[SignatureForm, Required("verify: github, stripe, slack, hmac, token, or none")] = described(
        "How deliveries show who sent them.", {"enum": list(get_args(SignatureForm))}, default="none"
    )
    credential: str | None = described(
        "The stored credential that holds the secret.", or_null({"type": "string", "maxLength": 128})
    )
    header: str | None = described("The header of the signature (hmac) or token.", _HEADER_NAME)
    algorithm: SignatureAlgorithm | None = described(
        "Of the signature (hmac). Default: sha256.", {"enum": [*get_args(SignatureAlgorithm), None]}
    )
    encoding: SignatureEncoding | None = described(
        "Of the signature (hmac). Default: hex.", {"enum": [*get_args(SignatureEncoding), None]}
    )
    prefix: str | None = described("What stands before the signature (hmac), such as sha256=.")
    timestamp_header: str | None = described(
        "The header of the time that is signed with the body (hmac).", _HEADER_NAME
    )
    tolerance: str | None = described(
        "How far the signed time may be from now. Default: 5m.", or_null({"type": "string", "pattern": DURATION})
    )


class EndSource(Section):
    title = "`execution`"
    example = "write execution: { path: folder/name, status: [ failed ] }"

    path: str | None = described("The path of the playbook, or all below one: shop/*.", or_null(NAME))
    labels: dict[str, Label] | None = described(
        "Labels that the execution must have.", {**MAPPING, "maxProperties": MAX_LABELS}
    )
    status: list[EndStatus] | None = described(
        "How it ended.", or_null({"type": "array", "items": {"enum": list(get_args(EndStatus))}})
    )
    with_: list[str] | None = described(
        "The keys of its ctx that the event has.",
        or_null({"type": "array", "items": NAME, "maxItems": MAX_CTX_KEYS}),
        alias="with",
    )


class EventSourceSection(Section):
    title = "`event`"
    example = "write event: { name: order_shipped, path: folder/name }"

    name: Annotated[str, Required("event: { name: order_shipped }")] = described(
        "The name of the event, as a step emits it.", NAME, default=""
    )
    path: str | None = described("The path of the playbook that emits it, or all below one: shop/*.", or_null(NAME))
    labels: dict[str, Label] | None = described(
        "Labels that the execution must have.", {**MAPPING, "maxProperties": MAX_LABELS}
    )


class TriggerSources(Section):
    title = "`on`"
    example = _SOURCE_HINT
    rejected: ClassVar = {
        "schedule": RejectedKey(
            "a time is not an event of a trigger",
            'write a document of kind: Schedule, with spec: { playbook: …, cron: [ "0 2 * * *" ] }',
            "unknown_key",
        ),
        "files": RejectedKey(
            "files that arrive are looked for by a schedule",
            "write a document of kind: Schedule, with spec: { playbook: …, every: 1m, files: { list: …, marker: … } }",
            "unknown_key",
        ),
    }
    schema_rules: ClassVar[Schema] = {"oneOf": [{"required": [name]} for name in get_args(EventSource)]}

    webhook: Annotated[Part, Shaped(lambda: schema_of(WebhookSource))] = described(
        "Requests to the address of the trigger."
    )
    nats: Annotated[Part, Shaped(lambda: schema_of(StreamSource))] = described("Messages of a stream on NATS.")
    execution: Annotated[Part, Shaped(lambda: schema_of(EndSource))] = described("Ends of executions.")
    event: Annotated[Part, Shaped(lambda: schema_of(EventSourceSection))] = described("Events that steps emit.")


_RATE_HINT: Final = "write rate: { per_minute: 60, burst: 20, exceeding: wait }"


class RateSection(Section):
    title = "`rate`"
    example = _RATE_HINT

    per_minute: Annotated[int | None, Required("per_minute: 60")] = described(
        "How many executions start in a minute, on average.",
        {"type": "integer", "minimum": 1, "maximum": MOST_PER_MINUTE},
    )
    burst: int | None = described(
        "How many start at once after a rest. Default: per_minute.",
        or_null({"type": "integer", "minimum": 1, "maximum": MOST_PER_MINUTE}),
    )
    exceeding: Exceeding | None = described(
        "What becomes of an event beyond that: it waits, or is dropped. Default: wait.",
        {"enum": [*get_args(Exceeding), None]},
    )


def read_rate(node: Node | None, problems: Problems) -> StartRate | None:
    """Reads the rate at which a trigger starts executions; ``None`` without a rate, or after reporting."""
    if is_null(node):
        return None
    node, read = RateSection.read_whole(node, problems)
    if not isinstance(node, Mapping) or read.per_minute is None:
        return None
    for name, value in (("per_minute", read.per_minute), ("burst", read.burst)):
        if value is not None and not 1 <= value <= MOST_PER_MINUTE:
            message = f"`{name}` must be from 1 to {MOST_PER_MINUTE:,}, not {value}"
            problems.error("invalid_value", message, node.values[name], _RATE_HINT)
    return StartRate(
        per_minute=read.per_minute, burst=read.burst or read.per_minute, exceeding=read.exceeding or "wait"
    )


class TriggerSpec(Section):
    title = "`spec`"
    example = "write spec: { on: { … }, playbook: … }"
    schema_rules: ClassVar[Schema] = {"oneOf": [{"required": ["playbook"]}, {"required": ["notify"]}]}

    on: Annotated[Part, Required(_SOURCE_HINT), Shaped(lambda: schema_of(TriggerSources))] = described("The events.")
    when: Part = described(
        "Whether an event starts an execution: one expression over event.", {"type": ["string", "boolean", "null"]}
    )
    playbook: str | None = described("The path of the playbook to start.", NAME)
    version: str | None = described("Its version. Default: the one registered last.")
    notify: Annotated[Part, Shaped(lambda: schema_of(NotifySection))] = described(
        "What is sent, in place of starting a playbook."
    )
    workload: Part = described("What executions are started with, or what is sent: templates over event.", MAPPING)
    labels: Part = described("Labels of what is started: templates over event.", MAPPING)
    key: Part = described("Events with the same key start one execution: a template over event.", or_null(TEXT))
    rate: Annotated[Part, Shaped(lambda: schema_of(RateSection))] = described("How often executions start.")
    allow_circle: bool | None = described(
        "Whether the end of what it starts may start it again, through other triggers. Default: false."
    )


class TriggerRoot(CatalogRoot):
    title = "the trigger"
    noun = "trigger"

    kind: Annotated[str | None, Required("kind: Trigger")] = described("What the document is.", {"const": "Trigger"})
    spec: Annotated[Part, Required("spec: { on: { … }, playbook: … }"), Shaped(lambda: schema_of(TriggerSpec))] = (
        described("What is started, and on which events.")
    )


def trigger_schema() -> Schema:
    """The JSON Schema of triggers: ``noetl-stream trigger schema``."""
    return document_schema(TriggerRoot)


class TriggerDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document of ``kind: Trigger``. ``labels`` are ``metadata.labels``; ``call`` is the playbook that ``terms``
    start; ``None`` for the playbook of ``notification``. ``watched`` is the playbook whose ends it waits for, if it is
    only one. ``allows_circle``: it may be registered although it may start itself again through others.
    """

    digest: str
    name: str
    path: str
    version: str | None
    labels: MappingOf[str, Any]
    call: PlaybookCall | None
    watched: PlaybookCall | None
    terms: TriggerTerms
    notification: Notification | None = None
    allows_circle: bool = False


def read_trigger(source: PlaybookSource, digest: str, limits: Limits, problems: Problems) -> TriggerDocument | None:
    """The document; ``None``, after reporting, if it has errors."""
    top, metadata = read_head(source.root, TriggerRoot, problems)
    node, spec = TriggerSpec.read_whole(top.spec, problems)
    if not isinstance(node, Mapping):
        return None
    notification = _action(spec, node, problems)
    on = TriggerSources.recover(spec.on, problems)
    kind, part = _source(on, TriggerSources.from_node(on, problems), problems)
    webhook = _webhook(part, problems) if kind == "webhook" else None
    execution = _execution(part, problems) if kind == "execution" else None
    event = _event(part, problems) if kind == "event" else None
    nats = read_stream(part, problems) if kind == "nats" else None
    rate = read_rate(spec.rate, problems)
    workload = read_workload(spec.workload, limits, problems)
    labels = read_labels(spec.labels, problems)
    if kind is not None:
        shape = EventShape.from_source(kind, webhook or execution or event or nats)
        _check_templates(spec, shape, Templates(source.text, problems, limits), problems)
    if problems.has_errors:
        return None
    path, playbook = metadata.path.removeprefix("/"), (spec.playbook or "").removeprefix("/")
    call = PlaybookCall(playbook, spec.version, node.values["playbook"]) if notification is None else None
    return TriggerDocument(
        digest=digest,
        name=metadata.name,
        path=path,
        version=metadata.version,
        labels=metadata.labels or {},
        call=call,
        watched=_watched_call(execution or event, part),
        notification=notification,
        allows_circle=bool(spec.allow_circle),
        terms=TriggerTerms(
            playbook=playbook if notification is None else notify_path(path, node, problems),
            version=spec.version,
            when=True if is_null(spec.when) else spec.when.plain(),
            workload=workload if notification is None else {"message": workload or "{{ event }}"},
            labels=labels,
            key=None if is_null(spec.key) else spec.key.plain(),
            webhook=webhook,
            execution=execution,
            event=event,
            nats=nats,
            rate=rate,
        ),
    )


def _watched_call(watched: EndedExecutions | EmittedEvents | None, part: Node | None) -> PlaybookCall | None:
    if watched is None or not watched.path or watched.path.endswith("/*") or not isinstance(part, Mapping):
        return None
    return PlaybookCall(watched.path, None, part.values["path"])


def _action(spec: TriggerSpec, node: Mapping, problems: Problems) -> Notification | None:
    """Reads the notification that is sent instead of starting a playbook."""
    if is_null(spec.notify):
        if is_null(node.get("playbook")):
            hint = "write playbook: folder/name, as it is registered; or notify: { … }"
            problems.error("missing_key", "`spec` needs `playbook` or `notify`", node, hint)
        check_playbook(spec.playbook or "", node, problems)
        return None
    for name in ("playbook", "version"):
        if not is_null(node.get(name)):
            message = f"`{name}` beside `notify`: a trigger starts a playbook or notifies"
            problems.error("conflicting_keys", message, node.keys[name], "remove one, or write two triggers")
    return read_notification(spec.notify, problems)


def _source(on: Node | None, read: TriggerSources, problems: Problems) -> tuple[EventSource | None, Node | None]:
    """The kind of the trigger's events, and the part of the document that defines them."""
    given: list[EventSource] = [name for name in get_args(EventSource) if not is_null(child(on, name))]
    if not isinstance(on, Mapping):
        return None, None
    for name in given[1:]:
        message = f"`{name}` beside `{given[0]}`: a trigger is on one kind of events"
        problems.error("conflicting_keys", message, on.keys[name], "remove one, or write two triggers")
    if not given:
        problems.error("missing_key", f"`on` needs one of {list_names(get_args(EventSource))}", on, _SOURCE_HINT)
        return None, None
    return given[0], getattr(read, given[0])


def _webhook(node: Node | None, problems: Problems) -> Verification | None:
    node, read = WebhookSource.read_whole(node, problems)
    if not isinstance(node, Mapping) or is_null(node.get("verify")):
        return None
    own = _KEYS_OF_FORMS[read.verify]
    for name in (name for name in node.keys if name not in ("verify", "credential", *own)):
        if name in WebhookSource.model_fields:
            problems.error(
                "no_effect", f"`{name}` has no effect with `verify: {read.verify}`", node.keys[name], "remove it"
            )
    _check_credential(read, node, problems)
    for name in ("header", "timestamp_header"):
        text = getattr(read, name)
        if text is not None and not _HEADER.fullmatch(text):
            problems.error("invalid_value", f"`{name}`: `{text}` is not the name of a header", node.values[name])
    if "header" in own and not read.header:
        example = "header: Authorization" if read.verify == "token" else "header: X-Signature"
        problems.error("missing_key", f"`verify: {read.verify}` needs `header`", node, f"write {example}")
    tolerance_s = DEFAULT_TOLERANCE_S if read.tolerance is None else read_duration(read.tolerance)
    if tolerance_s is None or tolerance_s > MAX_TOLERANCE_S:
        hint = "write at most an hour: 30s, 5m, 1h"
        problems.error(
            "invalid_value", f"`tolerance`: `{read.tolerance}` is not a valid duration", node.values["tolerance"], hint
        )
    elif read.tolerance is not None and read.verify == "hmac" and not read.timestamp_header:
        message = "`tolerance` has no effect without `timestamp_header`"
        problems.error("no_effect", message, node.keys["tolerance"], "name the header of the signed time, or remove it")
    return Verification(
        form=read.verify,
        credential=read.credential or "",
        header=(read.header or "").lower(),
        algorithm=read.algorithm or "sha256",
        encoding=read.encoding or "hex",
        prefix=read.prefix or "",
        timestamp_header=(read.timestamp_header or "").lower(),
        tolerance_s=tolerance_s or DEFAULT_TOLERANCE_S,
    )


def _check_credential(read: WebhookSource, node: Mapping, problems: Problems) -> None:
    name = read.credential
    if name is not None and not _CREDENTIAL.fullmatch(name):
        hint = "use up to 128 letters, digits, `_`, `.` and `-`"
        problems.error("invalid_value", f"`{name}` is not the name of a credential", node.values["credential"], hint)
    elif read.verify == "none" and name is not None:
        message = "`credential` has no effect with `verify: none`"
        problems.error("no_effect", message, node.keys["credential"], "say how deliveries are signed: verify: github")
    elif read.verify != "none" and name is None:
        hint = "write credential: …, and store the secret: noetl-stream credential set NAME"
        problems.error("missing_key", f"`verify: {read.verify}` needs `credential`", node, hint)


def _execution(node: Node | None, problems: Problems) -> EndedExecutions | None:
    node, read = EndSource.read_whole(node, problems)
    if not isinstance(node, Mapping):
        return None
    path = _watched_path(read.path, node, problems)
    if not any((path, read.labels, read.status)):
        hint = "write execution: { path: folder/name, status: [ failed ] }"
        problems.error("missing_key", "`execution` needs `path`, `labels` or `status`", node, hint)
    _check_labels(read.labels, node, problems)
    if len(read.with_ or ()) > MAX_CTX_KEYS:
        problems.error("limit_exceeded", f"`with` has more than {MAX_CTX_KEYS} entries", node.values["with"])
    status, keys = tuple(dict.fromkeys(read.status or ())), tuple(dict.fromkeys(read.with_ or ()))
    return EndedExecutions(path=path, labels=read.labels or {}, status=status, ctx=keys)


def _event(node: Node | None, problems: Problems) -> EmittedEvents | None:
    node, read = EventSourceSection.read_whole(node, problems)
    if not isinstance(node, Mapping) or not read.name:
        return None
    check_identifier(read.name, "the name of an event", node.values["name"], problems)
    _check_labels(read.labels, node, problems)
    return EmittedEvents(name=read.name, path=_watched_path(read.path, node, problems), labels=read.labels or {})


def _check_labels(labels: MappingOf[str, Any] | None, node: Mapping, problems: Problems) -> None:
    if len(labels or ()) > MAX_LABELS:
        problems.error("limit_exceeded", f"`labels` has more than {MAX_LABELS} entries", node.values["labels"])


def _watched_path(written: str | None, node: Mapping, problems: Problems) -> str:
    path = (written or "").removeprefix("/")
    if written is not None and not _is_pattern(path):
        hint = "write a path, shop/orders, or all below one: shop/*"
        problems.error("invalid_value", f"`path`: `{written}` is not the path of a playbook", node.values["path"], hint)
    return path


def _is_pattern(path: str) -> bool:
    folder = path.removesuffix("/*")
    return (
        has_valid_segments(folder)
        and folder.isprintable()
        and not set(folder) & {" ", "@", "*"}
        and len(path) <= MAX_PATH_CHARS
    )


def _check_templates(spec: TriggerSpec, shape: EventShape, templates: Templates, problems: Problems) -> None:
    """Compiles ``when``, ``workload``, ``labels`` and ``key``, and reports reads that no event has."""
    visible = visible_in(shape.source)
    samples = EventSamples(shape, problems)
    for name in ("when", "workload", "labels", "key"):
        node = getattr(spec, name)
        if is_null(node):
            continue
        guard = templates.guard(node, visible) if name == "when" else None
        compiled = guard if name == "when" else templates.template(node, visible, on_server=True)
        if name == "key" and not (isinstance(node, Scalar) and isinstance(node.value, str)):
            problems.error("wrong_type", "`key` must be text", node, 'write key: "{{ event.json.id }}"')
        elif name == "key" and compiled is not None and not compiled.paths:
            hint = 'read it from the event: key: "{{ event.json.id }}"'
            problems.warn("constant_key", "`key` is the same for every event: only the first one starts", node, hint)
        places = templates.places(node)
        for path in sorted(compiled.paths if compiled is not None else ()):
            if (found := shape.unknown(path)) is not None:
                known = f"known: {list_names(found.known)}" if found.known else None
                body = f"write `{'.'.join(('event', 'json', *path[2:]))}`" if path[:2] == ("event", "body") else None
                way = body or did_you_mean(found.key, found.known) or known
                problems.error("unknown_name", found.message, TemplateRead(path, places).location, way)
        for path, literal in guard.comparisons if guard is not None else ():
            if (words := shape.words(path)) and literal not in words:
                message, hint = f"`{'.'.join(path)}` is never `{literal}` here", f"write one of {list_names(words)}"
                # A path that only `on` excludes is harmless beside the paths it permits.
                is_some_events = literal in EventShape(shape.source).words(path) or path == ("event", "path")
                report = problems.warn if is_some_events else problems.error
                report("impossible_comparison", message, places.find(path), hint)
        if not problems.has_errors:
            samples.check(name, node)
