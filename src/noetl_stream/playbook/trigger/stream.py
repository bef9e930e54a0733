"""The source ``on: nats`` of triggers: messages of a stream as a document names them."""

from __future__ import annotations

from datetime import UTC
from typing import Annotated, Final, get_args

from noetl_stream.model.aggregates import StreamFilter, StreamFormat
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.sections import Required, Section, described, is_null, read_section, recover_keys
from noetl_stream.playbook.schedule.times import needs_zone, read_time
from noetl_stream.playbook.yaml.nodes import Mapping, Node
from noetl_stream.trigger.stream_messages import is_subject_pattern, stream_fault

_HINT: Final = "write nats: { stream: ORDERS, subject: orders.> }"
_FROM_HINT: Final = "write new, all, or a time with its offset: 2026-11-05T09:00:00Z"


class StreamSource(Section):
    title = "`nats`"
    example = _HINT

    stream: Annotated[str | None, Required("stream: ORDERS")] = described(
        "The stream on NATS.", {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}
    )
    subject: str | None = described("Which of its subjects: orders.*.paid, orders.>. Default: all.")
    from_: str | None = described("The first message: new, all, or a time. Default: new.", alias="from")
    format: StreamFormat | None = described(
        "What their data is. Default: json.", {"enum": [*get_args(StreamFormat), None]}
    )


def read_stream(node: Node | None, problems: Problems) -> StreamFilter | None:
    """Reads which messages of a stream start executions; ``None``, after reporting, if that cannot be read."""
    node = recover_keys(node, StreamSource, problems)
    read = read_section(node, StreamSource, problems)
    if not isinstance(node, Mapping) or is_null(node.get("stream")):
        return None
    name = read.stream or ""
    if fault := stream_fault(name):
        problems.error("invalid_value", fault, node.values["stream"], "name a stream of your own")
    subject = read.subject or ">"
    if not is_subject_pattern(subject):
        hint = "write tokens with dots between; * stands for one token, > for all that follow: orders.*.paid, orders.>"
        problems.error(
            "invalid_value", f"`subject`: `{subject}` is not a subject pattern", node.values["subject"], hint
        )
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
