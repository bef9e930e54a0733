"""The ``files`` of a schedule. They compile to a playbook that lists new files, writes the marker, and then starts a
playbook for each file (LANGUAGE §15 *Schedule*).

The listing is in the journal before the marker is written, and the marker is written before a playbook starts. So each
file starts one execution, even if a process crashes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from noetl_stream.model.json.codec import encode
from noetl_stream.model.rights import MAX_PATH_CHARS
from noetl_stream.playbook.check.bindings import Visible
from noetl_stream.playbook.check.templates import TemplateRead, Templates
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.catalog_document import TEXT
from noetl_stream.playbook.model.document import API_VERSION
from noetl_stream.playbook.model.sections import Required, Section, described, is_null, or_null
from noetl_stream.playbook.suggestions import did_you_mean, list_names
from noetl_stream.playbook.yaml.nodes import Mapping as MappingNode
from noetl_stream.playbook.yaml.nodes import Node, holds_template

SUFFIX: Final = "/files"
"""The suffix that the path of the compiled playbook adds to that of the schedule."""
NAMESPACE: Final = "file"
DEFAULT_LIMIT: Final = 100
DEFAULT_IN_FLIGHT: Final = 10

_FIELDS: Final = ("path", "name", "size", "modified", "etag")
_CREDENTIAL: Final = or_null({**TEXT, "maxLength": 128})


class FilesSection(Section):
    title = "`files`"
    example = "write files: { list: s3://bucket/folder, marker: s3://bucket/state/orders.json, auth: … }"

    list_: Annotated[str, Required("list: s3://bucket/folder")] = described(
        "The place below which files arrive.", TEXT, default="", alias="list"
    )
    marker: Annotated[str, Required("marker: s3://bucket/state/orders.json")] = described(
        "The file that remembers what has arrived.", TEXT, default=""
    )
    pattern: str | None = described("Names to take: *.csv, 2026/**/*.csv. Default: all.", or_null(TEXT))
    auth: str | None = described("The stored credential of the place.", _CREDENTIAL)
    marker_auth: str | None = described("That of the marker. Default: `auth`.", _CREDENTIAL)
    limit: int = described(
        "The most files of one look.", {"type": "integer", "minimum": 1, "maximum": 10_000}, default=DEFAULT_LIMIT
    )
    late_s: float | None = described(
        "How much later than its time a file may become visible, in seconds. Default: 900.",
        or_null({"type": "number", "minimum": 0, "maximum": 86_400}),
    )
    max_in_flight: int = described(
        "How many executions of one look run at a time.",
        {"type": "integer", "minimum": 1, "maximum": 1_000},
        default=DEFAULT_IN_FLIGHT,
    )


class FileArrivals(msgspec.Struct, frozen=True):
    """The inputs of the tasks that list files and write the marker, and the maximum number of running executions."""

    listed: Mapping[str, Any]
    marked: Mapping[str, Any]
    max_in_flight: int


def read_arrivals(node: Node | None, path: str, problems: Problems) -> FileArrivals | None:
    """Reads the ``files`` of the schedule at ``path``; ``None`` if there are none, or a problem was reported."""
    if is_null(node):
        return None
    node, read = FilesSection.read_whole(node, problems)
    if not isinstance(node, MappingNode):
        return None
    if holds_template(node):
        problems.error("template_not_rendered", "`files` is not rendered", node, "write values")
    if len(path) > MAX_PATH_CHARS - len(SUFFIX):
        problems.error("invalid_value", f"`metadata.path` is too long for `files`, which adds `{SUFFIX}`", node)
    given = {name: getattr(read, name) for name in ("pattern", "limit", "late_s", "auth", "marker_auth")}
    listed = {"list": read.list_, "arrived": read.marker, **given}
    marked = {"mark": read.marker, "auth": read.marker_auth or read.auth}
    return FileArrivals(
        {name: value for name, value in listed.items() if value is not None},
        {name: value for name, value in marked.items() if value is not None},
        read.max_in_flight,
    )


def check_workload_of_files(node: Node | None, templates: Templates, problems: Problems) -> None:
    """Reports templates that read an unknown field of ``file``."""
    if node is None or is_null(node):
        return
    compiled = templates.template(node, Visible(frozenset([NAMESPACE]), {}, {}, {}))
    for path in sorted(compiled.paths):
        if path[0] == NAMESPACE and len(path) > 1 and path[1] not in _FIELDS:
            at = TemplateRead(path, templates.places(node)).location
            hint = did_you_mean(path[1], _FIELDS) or f"known: {list_names(_FIELDS)}"
            problems.error("unknown_name", f"`file` has no `{path[1]}`", at, hint)


def arrivals_playbook(path: str, name: str, given: FileArrivals, call: Mapping[str, Any]) -> str:
    """The text of the playbook that looks for files: JSON, which is valid YAML.

    Args:
        path: The path of the schedule.
        call: The inputs of the ``playbook`` task that runs for each file.
    """
    every = {"mode": "best_effort", "tolerated": 0}
    document = {
        "apiVersion": API_VERSION,
        "kind": "Playbook",
        "metadata": {
            "name": name,
            "path": path + SUFFIX,
            "description": f"What schedule {path} runs when it looks for files.",
        },
        "executor": {
            "spec": {
                "result": {
                    "files": "{{ arrived.files | map(attribute='path') | list }}",
                    "more": "{{ arrived.more }}",
                }
            }
        },
        "workflow": [
            {"step": "arrived", "tool": {"kind": "files", **given.listed}, "next": {"arcs": [{"step": "mark"}]}},
            {
                "step": "mark",
                "loop": {"in": "{{ [arrived.marker] if arrived.files else [] }}", "iterator": "marker"},
                "tool": {"kind": "files", **given.marked, "marker": "{{ iter.marker }}"},
                "next": {"arcs": [{"step": "each"}]},
            },
            {
                "step": "each",
                "loop": {
                    "in": "{{ arrived.files }}",
                    "iterator": NAMESPACE,
                    "spec": {
                        "mode": "parallel",
                        "max_in_flight": given.max_in_flight,
                        "policy": {"failure": every},
                    },
                },
                "tool": {"kind": "playbook", **call},
            },
        ],
    }
    return encode(document).decode()
