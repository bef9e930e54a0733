"""JSON Schema (draft 2020-12) of triggers: ``noetl-stream trigger schema``."""

from __future__ import annotations

from typing import Any, Final, get_args

from noetl_stream.model.aggregates import SignatureAlgorithm, SignatureEncoding, SignatureForm, StreamFormat
from noetl_stream.model.status import EndStatus
from noetl_stream.playbook.model.document import API_VERSION
from noetl_stream.playbook.results.result_schema import DIALECT
from noetl_stream.playbook.schedule.schedule_schema import (
    MAPPING,
    METADATA,
    NAME,
    TEXT,
    object_of,
    or_null,
    with_description,
)
from noetl_stream.playbook.schedule.times import DURATION
from noetl_stream.playbook.trigger.notification import MAX_COMMAND
from noetl_stream.playbook.trigger.trigger_document import MAX_LABELS

Schema = dict[str, Any]

_HEADER: Final[Schema] = or_null({"type": "string", "minLength": 1, "maxLength": 128})
_WEBHOOK: Final = object_of(
    ["verify"],
    {
        "verify": with_description("How deliveries show who sent them.", {"enum": list(get_args(SignatureForm))}),
        "credential": with_description(
            "The stored credential that holds the secret.", or_null({**TEXT, "maxLength": 128})
        ),
        "header": with_description("The header of the signature (hmac) or token.", _HEADER),
        "algorithm": with_description(
            "Of the signature (hmac). Default: sha256.", {"enum": [*get_args(SignatureAlgorithm), None]}
        ),
        "encoding": with_description(
            "Of the signature (hmac). Default: hex.", {"enum": [*get_args(SignatureEncoding), None]}
        ),
        "prefix": with_description("What stands before the signature (hmac), such as sha256=.", or_null(TEXT)),
        "timestamp_header": with_description("The header of the time that is signed with the body (hmac).", _HEADER),
        "tolerance": with_description(
            "How far the signed time may be from now. Default: 5m.", or_null({"type": "string", "pattern": DURATION})
        ),
    },
)
_EXECUTION: Final = object_of(
    [],
    {
        "path": with_description("The path of the playbook, or all below one: shop/*.", or_null(NAME)),
        "labels": with_description("Labels that the execution must have.", {**MAPPING, "maxProperties": MAX_LABELS}),
        "status": with_description(
            "How it ended.", or_null({"type": "array", "items": {"enum": list(get_args(EndStatus))}})
        ),
    },
)


_NATS: Final = object_of(
    ["stream"],
    {
        "stream": with_description("The stream on NATS.", {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}),
        "subject": with_description("Which of its subjects: orders.*.paid, orders.>. Default: all.", or_null(TEXT)),
        "from": with_description("The first message: new, all, or a time. Default: new.", or_null(TEXT)),
        "format": with_description("What their data is. Default: json.", {"enum": [*get_args(StreamFormat), None]}),
    },
)


def _sources() -> Schema:
    sources = {
        "webhook": with_description("Requests to the address of the trigger.", _WEBHOOK),
        "nats": with_description("Messages of a stream on NATS.", _NATS),
        "execution": with_description("Ends of executions.", _EXECUTION),
    }
    return object_of([], sources, oneOf=[{"required": [name]} for name in sources])


def _notify() -> Schema:
    name = {**TEXT, "maxLength": 128}
    ways = {
        "webhook": with_description(
            "A request to an address.",
            object_of(
                ["url"],
                {
                    "url": with_description("The address.", {**TEXT, "pattern": "^https?://"}),
                    "credential": with_description("The stored credential that signs the message.", or_null(name)),
                    "auth": with_description("The stored credential that the request shows.", or_null(name)),
                },
            ),
        ),
        "nats": with_description(
            "A message on NATS.",
            object_of(
                ["subject", "credential"],
                {
                    "subject": with_description("Its subject.", TEXT),
                    "credential": with_description("The stored credential of the NATS.", name),
                    "jetstream": with_description("Whether a stream has to store it.", {"type": "boolean"}),
                },
            ),
        ),
        "command": with_description(
            "A program that reads the message from its standard input.",
            {"type": "array", "items": TEXT, "minItems": 1, "maxItems": MAX_COMMAND},
        ),
    }
    return object_of([], ways, oneOf=[{"required": [way]} for way in ways])


def trigger_schema() -> Schema:
    """The JSON Schema of a trigger."""
    spec = {
        "on": with_description("The events.", _sources()),
        "when": with_description(
            "Whether an event starts an execution: one expression over event.", {"type": ["string", "boolean", "null"]}
        ),
        "playbook": with_description("The path of the playbook to start.", NAME),
        "version": with_description("Its version. Default: the one registered last.", or_null(TEXT)),
        "notify": with_description("What is sent, in place of starting a playbook.", _notify()),
        "workload": with_description(
            "What executions are started with, or what is sent: templates over event.", MAPPING
        ),
        "key": with_description("Events with the same key start one execution: a template over event.", or_null(TEXT)),
    }
    properties = {
        "apiVersion": with_description("The version of the language.", {"const": API_VERSION}),
        "kind": with_description("What the document is.", {"const": "Trigger"}),
        "metadata": with_description("Its name, and its place in the catalog.", METADATA),
        "spec": with_description(
            "What is started, and on which events.",
            object_of(["on"], spec, oneOf=[{"required": ["playbook"]}, {"required": ["notify"]}]),
        ),
    }
    root = object_of(list(properties), properties)
    return {"$schema": DIALECT, "title": "NoETL trigger", **root}
