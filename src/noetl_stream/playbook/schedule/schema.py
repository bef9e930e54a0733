"""JSON Schema (draft 2020-12) of schedules: ``noetl-stream schedule schema``."""

from __future__ import annotations

from typing import Any, Final, TypeAlias, get_args

from noetl_stream.model.aggregates import Missed, Overlap
from noetl_stream.model.paths import MAX_PATH_CHARS
from noetl_stream.playbook.model.document import API_VERSION
from noetl_stream.playbook.results.schema import DIALECT
from noetl_stream.playbook.schedule.document import MAX_CRON, MAX_CRON_CHARS, MAX_TIMES
from noetl_stream.playbook.schedule.times import DAY, DURATION, TIME
from noetl_stream.schedule.zones import zone_names

Schema: TypeAlias = dict[str, Any]


def _object(required: list[str], properties: Schema, **more: Any) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False, "required": required, **more}


def _described(description: str, schema: Schema) -> Schema:
    return {"description": description, **schema}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(item: Schema, most: int, least: int = 1) -> Schema:
    return _or_null({"type": "array", "items": item, "minItems": least, "maxItems": most})


_TEXT: Final[Schema] = {"type": "string"}
_NAME: Final[Schema] = {"type": "string", "pattern": r"[^\s/]", "maxLength": MAX_PATH_CHARS}
_MAPPING: Final[Schema] = {"type": ["object", "null"]}
_DURATION: Final = _or_null({"type": "string", "pattern": DURATION})
_DAY: Final[Schema] = {"type": "string", "pattern": DAY}
_BOUND: Final[Schema] = {"anyOf": [_DAY, {"type": "string", "pattern": TIME}, {"type": "null"}]}

_METADATA: Final = _object(
    ["name", "path"],
    {
        "name": _described("A name for people.", _NAME),
        "path": _described("The place in the catalog: names separated by slashes.", _NAME),
        "version": _described("A registered version never changes.", _or_null(_TEXT)),
        "description": _described("What it is for; shown in lists.", _or_null(_TEXT)),
        "tags": _described("Words for people.", _list(_TEXT, MAX_TIMES, 0)),
        "labels": _described("Scalars by which it is found.", _MAPPING),
        "annotations": _described("Anything else; the engine does not read it.", _MAPPING),
    },
)
_WINDOW: Final = _object(
    [],
    {
        "from": _described("The first day or time.", _BOUND),
        "until": _described("The last day or time; the whole day is in it.", _BOUND),
    },
)


def _spec() -> Schema:
    zones: Schema = {"enum": [*sorted(zone_names()), None]}
    cron: Schema = {"type": "string", "maxLength": MAX_CRON_CHARS}
    properties = {
        "playbook": _described("The path of the playbook to start.", _NAME),
        "version": _described("Its version. Default: the one registered last.", _or_null(_TEXT)),
        "workload": _described("What executions are started with. It is not rendered.", _MAPPING),
        "cron": _described("Expressions of five fields, or of six with seconds in front.", _list(cron, MAX_CRON)),
        "every": _described("The distance of two occurrences: 30s, 15m, 6h, 2d.", _DURATION),
        "at": _described("Times.", _list({"type": "string", "pattern": TIME}, MAX_TIMES)),
        "timezone": _described("The IANA name of the zone of all days and times here.", zones),
        "jitter": _described("Starts each occurrence up to so much later.", _DURATION),
        "window": _described("No occurrence is before or after it.", _or_null(_WINDOW)),
        "exclude": _described("Days without an occurrence.", _list(_DAY, MAX_TIMES, 0)),
        "overlap": _described("What happens if the occurrence before still runs.", {"enum": list(get_args(Overlap))}),
        "missed": _described("What happens to occurrences while no server ran.", {"enum": list(get_args(Missed))}),
        "missed_within": _described("How late a missed occurrence may start.", _DURATION),
        "pause_after_failures": _described(
            "Pauses the schedule after so many failures in a row.",
            {"type": ["integer", "null"], "minimum": 1, "maximum": 1000},
        ),
        "paused": _described("Whether it is registered paused.", {"type": "boolean"}),
    }
    return _object(["playbook"], properties, oneOf=[_only("cron"), _only("every"), _only("at")])


def _only(way: str) -> Schema:
    return {"required": [way], "properties": {way: {"not": {"type": "null"}}}}


def schedule_schema() -> Schema:
    """The schema of a schedule."""
    properties = {
        "apiVersion": _described("The version of the language.", {"const": API_VERSION}),
        "kind": _described("What the document is.", {"const": "Schedule"}),
        "metadata": _described("Its name, and its place in the catalog.", _METADATA),
        "spec": _described("What is started, and when.", _spec()),
    }
    root = _object(list(properties), properties)
    return {"$schema": DIALECT, "title": "NoETL schedule", **root}
