"""JSON Schema (draft 2020-12) of schedules: ``noetl-stream schedule schema``."""

from __future__ import annotations

from typing import Any, Final, TypeAlias, get_args

from noetl_stream.model.aggregates import Missed, Overlap
from noetl_stream.model.paths import MAX_PATH_CHARS
from noetl_stream.playbook.model.document import API_VERSION
from noetl_stream.playbook.results.result_schema import DIALECT
from noetl_stream.playbook.schedule.schedule_document import MAX_CRON, MAX_CRON_CHARS, MAX_TIMES
from noetl_stream.playbook.schedule.times import DAY, DURATION, TIME
from noetl_stream.schedule.zones import zone_names

Schema: TypeAlias = dict[str, Any]


def object_of(required: list[str], properties: Schema, **more: Any) -> Schema:
    """The schema of a mapping without other keys."""
    return {"type": "object", "properties": properties, "additionalProperties": False, "required": required, **more}


def with_description(description: str, schema: Schema) -> Schema:
    """Adds the description that editors show to ``schema``."""
    return {"description": description, **schema}


def or_null(schema: Schema) -> Schema:
    """Lets ``schema`` accept null, which counts as absent."""
    return {"anyOf": [schema, {"type": "null"}]}


def _list(item: Schema, most: int, least: int = 1) -> Schema:
    return or_null({"type": "array", "items": item, "minItems": least, "maxItems": most})


TEXT: Final[Schema] = {"type": "string"}
NAME: Final[Schema] = {"type": "string", "pattern": r"[^\s/]", "maxLength": MAX_PATH_CHARS}
MAPPING: Final[Schema] = {"type": ["object", "null"]}
_DURATION: Final = or_null({"type": "string", "pattern": DURATION})
_DAY: Final[Schema] = {"type": "string", "pattern": DAY}
_BOUND: Final[Schema] = {"anyOf": [_DAY, {"type": "string", "pattern": TIME}, {"type": "null"}]}

METADATA: Final = object_of(
    ["name", "path"],
    {
        "name": with_description("A name for people.", NAME),
        "path": with_description("The place in the catalog: names separated by slashes.", NAME),
        "version": with_description("A registered version never changes.", or_null(TEXT)),
        "description": with_description("What it is for; shown in lists.", or_null(TEXT)),
        "tags": with_description("Words for people.", _list(TEXT, MAX_TIMES, 0)),
        "labels": with_description("Scalars by which it is found.", MAPPING),
        "annotations": with_description("Anything else; the engine does not read it.", MAPPING),
    },
)
_WINDOW: Final = object_of(
    [],
    {
        "from": with_description("The first day or time.", _BOUND),
        "until": with_description("The last day or time; the whole day is in it.", _BOUND),
    },
)


def _spec() -> Schema:
    zones: Schema = {"enum": [*sorted(zone_names()), None]}
    cron: Schema = {"type": "string", "maxLength": MAX_CRON_CHARS}
    properties = {
        "playbook": with_description("The path of the playbook to start.", NAME),
        "version": with_description("Its version. Default: the one registered last.", or_null(TEXT)),
        "workload": with_description("What executions are started with. It is not rendered.", MAPPING),
        "cron": with_description("Expressions of five fields, or of six with seconds in front.", _list(cron, MAX_CRON)),
        "every": with_description("The distance of two occurrences: 30s, 15m, 6h, 2d.", _DURATION),
        "at": with_description("Times.", _list({"type": "string", "pattern": TIME}, MAX_TIMES)),
        "timezone": with_description("The IANA name of the zone of all days and times here.", zones),
        "jitter": with_description("Starts each occurrence up to so much later.", _DURATION),
        "window": with_description("No occurrence is before or after it.", or_null(_WINDOW)),
        "exclude": with_description("Days without an occurrence.", _list(_DAY, MAX_TIMES, 0)),
        "overlap": with_description(
            "What happens if the occurrence before still runs.", {"enum": list(get_args(Overlap))}
        ),
        "missed": with_description(
            "What happens to occurrences while no server ran.", {"enum": list(get_args(Missed))}
        ),
        "missed_within": with_description("How late a missed occurrence may start.", _DURATION),
        "pause_after_failures": with_description(
            "Pauses the schedule after so many failures in a row.",
            {"type": ["integer", "null"], "minimum": 1, "maximum": 1000},
        ),
        "paused": with_description("Whether it is registered paused.", {"type": "boolean"}),
    }
    return object_of(["playbook"], properties, oneOf=[_only("cron"), _only("every"), _only("at")])


def _only(way: str) -> Schema:
    return {"required": [way], "properties": {way: {"not": {"type": "null"}}}}


def schedule_schema() -> Schema:
    """The JSON Schema of a schedule."""
    properties = {
        "apiVersion": with_description("The version of the language.", {"const": API_VERSION}),
        "kind": with_description("What the document is.", {"const": "Schedule"}),
        "metadata": with_description("Its name, and its place in the catalog.", METADATA),
        "spec": with_description("What is started, and when.", _spec()),
    }
    root = object_of(list(properties), properties)
    return {"$schema": DIALECT, "title": "NoETL schedule", **root}
