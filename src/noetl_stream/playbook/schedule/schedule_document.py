"""Reads documents of ``kind: Schedule``, which define when executions of a playbook start (LANGUAGE §15 *Schedule*),
and their durations, days and times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from collections.abc import Mapping as MappingOf
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import partial
from typing import Annotated, Any, ClassVar, Final, TypeVar, get_args

import msgspec
from msgspec.structs import asdict
from pydantic import Field

from noetl_stream.model.aggregates import Missed, Overlap, ScheduleTerms, Timetable
from noetl_stream.model.limits import Limits
from noetl_stream.model.rights import MAX_PATH_CHARS, has_valid_segments
from noetl_stream.playbook.check.bindings import Visible
from noetl_stream.playbook.check.calls import PlaybookCall
from noetl_stream.playbook.check.templates import Templates
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.catalog_document import (
    MAX_ENTRIES,
    NAME,
    TEXT,
    CatalogRoot,
    Shaped,
    document_schema,
    read_head,
    schema_of,
    texts,
)
from noetl_stream.playbook.model.document import read_labels, read_workload
from noetl_stream.playbook.model.sections import (
    MAPPING,
    NULL,
    Part,
    Required,
    Schema,
    Section,
    described,
    is_null,
    or_null,
)
from noetl_stream.playbook.schedule.file_arrivals import (
    SUFFIX,
    FileArrivals,
    FilesSection,
    arrivals_playbook,
    check_workload_of_files,
    read_arrivals,
)
from noetl_stream.playbook.schedule.schedule_workload import NAMESPACE, Unrenderable, render_key, render_workload
from noetl_stream.playbook.suggestions import correct_word, list_names
from noetl_stream.playbook.vocabulary import advice
from noetl_stream.playbook.vocabulary.hints import CRON_NAMES
from noetl_stream.playbook.yaml.nodes import Mapping, Node, descend, holds_template, texts_of
from noetl_stream.playbook.yaml.source import PlaybookSource
from noetl_stream.schedule.occurrence import OccurrenceView, occurrence_view
from noetl_stream.schedule.recurrence import CRON_FIELDS, DAY_S, END_MS, InvalidCron, Recurrence, check_cron, cron_steps
from noetl_stream.zones import instant, midnight, zone_named, zone_names, zone_of_place

SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": DAY_S}
DURATION: Final = r"^[1-9][0-9]{0,7}[smhd]$"
DAY: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
TIME: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})?$"


def read_duration(text: str) -> int | None:
    """The seconds of a duration: ``30s``, ``15m``, ``6h`` or ``2d``; ``None`` if it is invalid."""
    return int(text[:-1]) * SECONDS[text[-1]] if re.fullmatch(DURATION, text) else None


def read_day(text: str) -> date | None:
    """The day in ``2026-12-25``; ``None`` if it is not a day from 1970 to 2199."""
    found = _moment(text, DAY)
    return found.date() if found is not None and _is_near(found.replace(tzinfo=UTC)) else None


def read_time(text: str, zone: tzinfo) -> int | None:
    """The instant in ``2026-11-05T09:00``, with or without seconds and offset; ``None`` if it is invalid.

    Args:
        zone: The zone of a time without an offset.
    """
    found = _moment(text, TIME)
    if found is None or not _is_near(found.replace(tzinfo=found.tzinfo or UTC)):
        return None
    if found.tzinfo is None:
        return instant(found, zone)
    return round(found.timestamp()) * 1000


def read_bound(text: str, zone: tzinfo, *, is_last: bool) -> int | None:
    """The instant in a day or time that bounds a window: see :func:`bound_ms`. ``None`` if it is neither."""
    day = read_day(text)
    if day is not None:
        return bound_ms(day, zone, is_last=is_last)
    at_ms = read_time(text, zone)
    return None if at_ms is None else at_ms + is_last


def bound_ms(bound: date, zone: tzinfo, *, is_last: bool) -> int:
    """The instant of a day or time that bounds a range.

    Args:
        zone: The zone of a day, and of a time without an offset.
        is_last: Whether the bound ends the range and is included: the result is then the first instant after it.
    """
    if not isinstance(bound, datetime):
        return midnight(bound + timedelta(days=is_last), zone)
    if bound.tzinfo is None:
        return instant(bound.replace(microsecond=0), zone) + is_last
    return int(bound.timestamp() * 1000) + is_last


def needs_zone(text: str) -> bool:
    """Whether a time means different instants in different zones."""
    found = _moment(text, TIME)
    return found is None or found.tzinfo is None


def _moment(text: str, form: str) -> datetime | None:
    if not re.fullmatch(form, text, re.ASCII):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _is_near(moment: datetime) -> bool:
    return moment.year >= 1970 and moment.timestamp() * 1000 < END_MS


MAX_CRON: Final = 20
MAX_CRON_CHARS: Final = 256
MAX_INTERVAL_S: Final = 366 * DAY_S
MAX_JITTER_S: Final = DAY_S

_DURATION: Final = or_null({"type": "string", "pattern": DURATION})
_DAY: Final[Schema] = {"type": "string", "pattern": DAY}
_TIME: Final[Schema] = {"type": "string", "pattern": TIME}
_BOUND: Final[Schema] = {"anyOf": [_DAY, _TIME, NULL]}
_WAYS: Final = ("cron", "every", "at")
_LONG_DURATION: Final = re.compile(r"\s*(\d+)\s*(s|m|h|d)(?:ec|ecs|econds?|in|ins|inutes?|rs?|ours?|ays?)?\s*\Z")
_DURATION_HINT: Final = "write a number of seconds, minutes, hours or days: 30s, 15m, 6h, 2d"
_DAY_HINT: Final = "write a day from 1970 to 2199: 2026-12-25"
_TIME_HINT: Final = "write a time from 1970 to 2199: 2026-11-05T09:00, or with an offset: 2026-11-05T09:00:00+01:00"
_BOUND_HINT: Final = "write a day, 2026-11-05, or a time, 2026-11-05T09:00, from 1970 to 2199"
_DAY_FIRST: Final = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4})")
_CRON_HINT: Final = (
    "minute hour day-of-month month day-of-week, as in `0 2 * * MON-FRI`; a sixth field in front is the second"
)


Read = TypeVar("Read")


class ScheduleWindow(Section):
    title = "`window`"
    example = "write window: { from: 2026-11-01, until: 2026-12-24 }"

    from_: str | None = described("The first day or time.", _BOUND, alias="from")
    until: str | None = described("The last day or time; the whole day is in it.", _BOUND)


class ScheduleSpec(Section):
    title = "`spec`"
    rejected = advice.SCHEDULE_SPEC
    example = "write spec: { playbook: …, cron: [ … ], timezone: … }"
    schema_rules: ClassVar[Schema] = {
        "oneOf": [{"required": [way], "properties": {way: {"not": NULL}}} for way in ("cron", "every", "at")]
    }

    playbook: Annotated[str, Required("playbook: folder/name, as it is registered")] = described(
        "The path of the playbook to start.", NAME, default=""
    )
    version: str | None = described("Its version. Default: the one registered last.")
    workload: Part = described(
        "What executions are started with: templates over schedule, with `files` over file.", MAPPING
    )
    files: Annotated[Part, Shaped(lambda: or_null(schema_of(FilesSection)))] = described(
        "Which files an occurrence looks for, to start an execution for each one that has arrived."
    )
    labels: Part = described("Labels of the executions that it starts. They are not rendered.", MAPPING)
    key: Part = described("The business key of each execution: a template over schedule.", or_null(TEXT))
    cron: list[str] | None = described(
        "Expressions of five fields, or of six with seconds in front.",
        texts({"type": "string", "maxLength": MAX_CRON_CHARS}, MAX_CRON),
    )
    every: str | None = described("The distance of two occurrences: 30s, 15m, 6h, 2d.", _DURATION)
    at: list[str] | None = described("Times.", texts(_TIME))
    timezone: Annotated[str | None, Shaped(lambda: {"enum": [*sorted(zone_names()), None]})] = described(
        "The IANA name of the zone of all days and times here."
    )
    jitter: str | None = described("Starts each occurrence up to so much later.", _DURATION)
    window: Annotated[Part, Shaped(lambda: or_null(schema_of(ScheduleWindow)))] = described(
        "No occurrence is before or after it."
    )
    exclude: list[str] | None = described("Days without an occurrence.", texts(_DAY, least=0))
    overlap: Overlap | None = described(
        "What happens if the occurrence before still runs. Default: skip, with `files` allow.",
        {"enum": [*get_args(Overlap), None]},
    )
    missed: Missed = described(
        "What happens to occurrences while no server ran.", {"enum": list(get_args(Missed))}, default="last"
    )
    missed_within: str | None = described("How late a missed occurrence may start.", _DURATION)
    pause_after_failures: Annotated[int, Field(ge=1, le=1000)] | None = described(
        "Pauses the schedule after so many failures in a row.",
        {"type": ["integer", "null"], "minimum": 1, "maximum": 1000},
    )
    paused: bool = described("Whether it is registered paused.", default=False)


class ScheduleRoot(CatalogRoot):
    title = "the schedule"
    noun = "schedule"

    kind: Annotated[str | None, Required("kind: Schedule")] = described("What the document is.", {"const": "Schedule"})
    spec: Annotated[
        Part, Required("spec: { playbook: …, cron: [ … ], timezone: … }"), Shaped(lambda: schema_of(ScheduleSpec))
    ] = described("What is started, and when.")


def schedule_schema() -> Schema:
    """The JSON Schema of schedules: ``noetl-stream schedule schema``."""
    return document_schema(ScheduleRoot)


class ScheduleDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document of ``kind: Schedule``. ``labels`` are ``metadata.labels``, ``start_labels`` those of the
    executions that it starts; durations are in seconds.

    ``missed_within_s`` and ``pause_after_failures`` are ``None`` where the document does not say. ``arrivals``: it
    starts executions for files that arrive.
    """

    digest: str
    name: str
    path: str
    version: str | None
    labels: MappingOf[str, Any]
    call: PlaybookCall
    workload: MappingOf[str, Any]
    start_labels: MappingOf[str, Any]
    key: Any
    recurrence: Recurrence
    jitter_s: int
    overlap: Overlap
    missed: Missed
    missed_within_s: int | None
    pause_after_failures: int | None
    paused: bool
    arrivals: FileArrivals | None = None

    @property
    def arrivals_text(self) -> str | None:
        """The text of the playbook that looks for files; ``None``: it looks for none."""
        if self.arrivals is None:
            return None
        version = {"version": self.call.version} if self.call.version else {}
        args = dict(self.workload) or {"file": "{{ file }}"}
        return arrivals_playbook(self.path, self.name, self.arrivals, {"path": self.call.path, **version, "args": args})

    @property
    def terms(self) -> ScheduleTerms:
        """The terms of the schedule for servers."""
        looks = self.arrivals is not None
        return ScheduleTerms(
            name=self.name,
            playbook=self.path + SUFFIX if looks else self.call.path,
            version=None if looks else self.call.version,
            workload={} if looks else dict(self.workload),
            labels=dict(self.start_labels),
            key=self.key,
            timetable=Timetable(**asdict(self.recurrence)),
            jitter_s=self.jitter_s,
            overlap=self.overlap,
            missed=self.missed,
            missed_within_s=self.missed_within_s,
            pause_after_failures=self.pause_after_failures or 0,
            calls=self.call.path if looks else None,
        )


def read_schedule(source: PlaybookSource, digest: str, limits: Limits, problems: Problems) -> ScheduleDocument | None:
    """The document; ``None``, after reporting, if it has errors."""
    top, metadata = read_head(source.root, ScheduleRoot, problems)
    node, spec = ScheduleSpec.read_whole(top.spec, problems)
    if not isinstance(node, Mapping):
        return None
    check_playbook(spec.playbook, node, problems)
    workload = read_workload(spec.workload, limits, problems)
    labels = read_labels(spec.labels, problems)
    templates = Templates(source.text, problems, limits)
    arrivals = read_arrivals(spec.files, metadata.path.removeprefix("/"), problems)
    looks = not is_null(spec.files)
    if looks:
        check_workload_of_files(spec.workload, templates, problems)
        _check_beside_files(spec, node, problems)
    for node_of in (None if looks else spec.workload, spec.key):
        if node_of is not None and not is_null(node_of):
            templates.template(node_of, Visible(frozenset([NAMESPACE]), {}, {}, {}), on_server=True)
    if spec.labels is not None and holds_template(spec.labels):
        problems.error("template_not_rendered", "`labels` of a schedule is not rendered", spec.labels, "write values")
    reading = _Reading(node, spec, problems)
    recurrence = reading.recurrence()
    jitter_s = reading.duration("jitter", MAX_JITTER_S) or 0
    missed_within_s = reading.duration("missed_within", MAX_INTERVAL_S)
    if missed_within_s and spec.missed == "none":
        problems.warn("no_effect", "`missed_within` has no effect with `missed: none`", node.keys["missed_within"])
    if problems.has_errors:
        return None
    first_ms = recurrence.next_after(-1)
    if first_ms is None:
        hint = "look at its times, `window` and `exclude` together"
        problems.error("never_due", "the schedule has no occurrence before 2200", node.values[reading.way], hint)
        return None
    view = occurrence_view(recurrence, recurrence.next_after(first_ms) or first_ms, path=metadata.path, name="")
    rendered = None if looks else spec.workload
    _check_workload(rendered, view, limits, problems)
    _check_key(spec.key, view, limits, problems)
    if problems.has_errors:
        return None
    if recurrence.from_ms or recurrence.at_ms:  # otherwise the first one has long passed
        first = occurrence_view(recurrence, first_ms, path=metadata.path, name="")
        _check_workload(rendered, first, limits, problems, is_first=True)
    return ScheduleDocument(
        digest=digest,
        name=metadata.name,
        path=metadata.path.removeprefix("/"),
        version=metadata.version,
        labels=metadata.labels or {},
        call=PlaybookCall(spec.playbook.removeprefix("/"), spec.version, node.values["playbook"]),
        workload=workload,
        start_labels=labels,
        key=None if is_null(spec.key) else spec.key.plain(),
        recurrence=recurrence,
        jitter_s=jitter_s,
        overlap=spec.overlap or ("allow" if looks else "skip"),
        missed=spec.missed,
        missed_within_s=missed_within_s,
        pause_after_failures=spec.pause_after_failures,
        paused=spec.paused,
        arrivals=arrivals,
    )


def _check_beside_files(spec: ScheduleSpec, node: Mapping, problems: Problems) -> None:
    """Reports keys that do not go with ``files``."""
    if spec.overlap in ("cancel", "terminate"):
        message = f"`overlap: {spec.overlap}` beside `files`: what has been found and not started yet would be lost"
        problems.error("conflicting_keys", message, node.values["overlap"], "write allow, skip or queue_one")
    if not is_null(spec.key):
        message = "`key` beside `files`: an occurrence starts an execution for each file, which its etag tells apart"
        problems.error("conflicting_keys", message, node.keys["key"], "remove it")


def _check_workload(
    node: Node | None, view: OccurrenceView, limits: Limits, problems: Problems, *, is_first: bool = False
) -> None:
    """Reports templates that cannot be evaluated for an occurrence of the timetable; for the first one, which has no
    predecessor, as a warning.
    """
    for text, source in texts_of(node) if node is not None else ():
        if holds_template(text):
            try:
                render_workload({"value": source}, lambda: view, limits)
            except Unrenderable as error:
                if is_first:
                    message = f"`workload` cannot be evaluated for the first occurrence, which is skipped then: {error}"
                    problems.warn("cannot_render", message, text, "say what it is then, with `| default('', true)`")
                    continue
                hint = f"known: {list_names(f'schedule.{name}' for name in view.__struct_fields__)}"
                problems.error("unknown_name", f"`workload` cannot be evaluated: {error}", text, hint)


def _check_key(node: Node | None, view: OccurrenceView, limits: Limits, problems: Problems) -> None:
    """Reports a key that is invalid for every occurrence of the timetable."""
    if node is None or is_null(node):
        return
    try:
        render_key(node.plain(), lambda: view, limits)
    except Unrenderable as error:
        problems.error("invalid_value", f"`key` cannot be evaluated: {error}", node)


def check_playbook(path: str, node: Mapping, problems: Problems) -> None:
    """Reports a ``playbook`` that is not a playbook's path."""
    path = path.removeprefix("/")
    at = node.get("playbook")
    if at is None or not isinstance(at.plain(), str):
        return
    if not has_valid_segments(path) or not path.isprintable() or set(path) & {" ", "@"} or len(path) > MAX_PATH_CHARS:
        hint = "write names separated by single slashes, team/reports; a version goes to `version`"
        problems.error("invalid_value", "`playbook` must be the path of a playbook", at, hint)


class _Reading:
    """Reads the times in the ``spec`` of a schedule, and reports their problems.

    Attributes:
        way: The key of the timetable: ``cron``, ``every`` or ``at``.
    """

    def __init__(self, node: Mapping, spec: ScheduleSpec, problems: Problems) -> None:
        self._node, self._spec, self._problems = node, spec, problems
        self._window_node = ScheduleWindow.recover(spec.window, problems)
        self._bounds = ScheduleWindow.from_node(self._window_node, problems)
        given = [name for name in _WAYS if not is_null(node.get(name))]
        self.way = given[0] if given else ""
        for name in given[1:]:
            message = f"`{name}` beside `{given[0]}`: a schedule says in one way when it is due"
            problems.error("conflicting_keys", message, node.keys[name], "remove one, or write two schedules")
        if not given:
            hint = 'write cron: [ "0 2 * * *" ], every: 15m, or at: [ 2026-11-05T09:00 ]'
            problems.error("missing_key", "`spec` needs `cron`, `every` or `at`", node, hint)

    def recurrence(self) -> Recurrence:
        """The recurrence of the schedule, as far as it can be read."""
        zone = self._zone()
        from_ms, before_ms = self._window(zone)
        cron = self._cron()
        times = self._each("at", self._spec.at, partial(read_time, zone=zone), "time", _TIME_HINT)
        days = self._each("exclude", self._spec.exclude, read_day, "day", _DAY_HINT)
        return Recurrence(
            zone=self._spec.timezone if self._spec.timezone in zone_names() else "UTC",
            cron=cron,
            every_s=self.duration("every", MAX_INTERVAL_S) or 0,
            at_ms=tuple(sorted(set(times))),
            from_ms=from_ms,
            before_ms=before_ms,
            exclude=frozenset(days),
        )

    def duration(self, name: str, most_s: int) -> int | None:
        """The duration at a key in seconds; ``None`` without it."""
        text = getattr(self._spec, name)
        if text is None:
            return None
        found, at = read_duration(text), self._node.values[name]
        if found is None:
            plain = _LONG_DURATION.match(text)
            hint = f"write {name}: {plain[1]}{plain[2]}" if plain else _DURATION_HINT
            self._problems.error("invalid_value", f"`{name}`: `{text}` is not a duration", at, hint)
        elif found > most_s:
            self._problems.error("invalid_value", f"`{name}` must be at most {most_s // DAY_S}d", at)
        return found

    def _zone(self) -> tzinfo:
        name = self._spec.timezone
        if name is None:
            self._ask_for_zone()
            return zone_named("UTC")
        if name not in zone_names():
            hint = _similar_zone(name) or "write the IANA name of a zone, such as Europe/Berlin, or UTC"
            self._problems.error("unknown_zone", f"unknown time zone `{name}`", self._node.values["timezone"], hint)
            return zone_named("UTC")
        return zone_named(name)

    def _ask_for_zone(self) -> None:
        """Reports a missing ``timezone`` if the times mean different instants in different zones."""
        spec, bounds = self._spec, filter(None, (self._bounds.from_, self._bounds.until))
        if spec.cron or any(map(needs_zone, [*(spec.at or ()), *(spec.exclude or ()), *bounds])):
            hint = "write timezone: UTC, or the IANA name of a zone, such as Europe/Berlin"
            message = f"`spec` needs `timezone` with {'`cron`' if spec.cron else 'days, and times without an offset'}"
            self._problems.error("missing_key", message, self._node, hint)

    def _cron(self) -> tuple[str, ...]:
        found = []
        for text, at in self._items("cron", self._spec.cron, MAX_CRON):
            try:
                if len(text) > MAX_CRON_CHARS:
                    raise InvalidCron(f"more than {MAX_CRON_CHARS} characters")
                check_cron(text)
                found.append(text)
            except InvalidCron as error:
                message = f"not a cron expression: {error}"
                hint = f'write "{CRON_NAMES[text.strip()]}"' if text.strip() in CRON_NAMES else error.hint or _CRON_HINT
                self._problems.error("invalid_cron", message, at, hint)
                continue
            for step in (step for step in cron_steps(text) if step.is_uneven):
                name, *_, whole = CRON_FIELDS[step.field]
                message = f"`{step.text}` in the {name} is not every {step.interval}: it begins anew with each {whole}"
                self._problems.warn("uneven_step", message, at, f"write every: {step.interval}, or list the values")
        return tuple(found)

    def _each(
        self, name: str, texts: list[str] | None, read: Callable[[str], Read | None], noun: str, hint: str
    ) -> list[Read]:
        """The values of the texts in a list, without the unreadable ones."""
        found = []
        for text, at in self._items(name, texts, MAX_ENTRIES):
            value = read(text)
            if value is None:
                self._problems.error("invalid_value", f"`{name}`: `{text}` is not a {noun}", at, hint)
            else:
                found.append(value)
        return found

    def _window(self, zone: tzinfo) -> tuple[int, int]:
        """The first instant of the window, and the first after it."""
        found = [0, END_MS]
        for place, (name, text) in enumerate((("from", self._bounds.from_), ("until", self._bounds.until))):
            if text is None or self._window_node is None:
                continue
            at_ms = read_bound(text, zone, is_last=place == 1)
            if at_ms is None:
                message = f"`{name}`: `{text}` is not a day or time"
                day = _day_in(text)
                hint = f"write {name}: {day}" if day else _BOUND_HINT
                self._problems.error("invalid_value", message, descend(self._window_node, (name,)), hint)
            else:
                found[place] = at_ms
        if found[0] >= found[1] and self._window_node is not None:
            self._problems.error("invalid_value", "`window` ends before it begins", self._window_node)
        return found[0], found[1]

    def _items(self, name: str, texts: list[str] | None, most: int) -> Collection[tuple[str, Node]]:
        """The texts of a list with their places."""
        node = self._node.get(name)
        if texts is None or node is None:
            return ()
        if len(texts) > most:
            self._problems.error("limit_exceeded", f"`{name}` has {len(texts)} entries; the limit is {most}", node)
            return ()
        if not texts and name in _WAYS:
            self._problems.error("invalid_value", f"`{name}` is empty", node)
        return [(text, descend(node, (index,))) for index, text in enumerate(texts)]


def _similar_zone(name: str) -> str | None:
    """The hint for an unknown zone: `Berlin` and `europe/berlin` mean `Europe/Berlin`."""
    names = [one for one in sorted(zone_names()) if one[:1].lower() == name[:1].lower()]
    near = zone_of_place(name) or correct_word(name, names)
    return f"did you mean `{near}`?" if near else None


def _day_in(text: str) -> str | None:
    """The day in ``01.12.2026`` or ``31/12/2026``; ``None`` where it could be another: ``01/12/2026``."""
    found = _DAY_FIRST.fullmatch(text.strip())
    if found is None or (found[2] != "." and int(found[1]) <= 12 and found[1] != found[3]):
        return None
    day = f"{found[4]}-{int(found[3]):02}-{int(found[1]):02}"
    return day if read_day(day) else None
