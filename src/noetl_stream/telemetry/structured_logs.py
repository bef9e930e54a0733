"""Structured logs with the standard library: one line per record, as text or JSON.

Fields are passed as ``extra``: ``logger.info("lease taken", extra={"partition": 7})`` becomes
``… lease taken partition=7``, or a JSON object with ``partition``. Messages and exceptions stay on one line.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from noetl_stream.telemetry.terminal import shown, shown_json

ROOT_NAME = "noetl_stream"
LIBRARY_LEVEL = logging.WARNING
"""The level of logs of libraries (nats, asyncpg, aiohttp), independent of the program's own level."""

TRACE_ID: ContextVar[str] = ContextVar("trace_id", default="")
"""The trace of the current asyncio task, a field of each record; else empty."""

RECORD_ATTRIBUTES = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
"""The attributes of every log record; any others are from ``extra``."""

RESERVED_KEYS = frozenset({"time", "level", "logger", "message", "exception"})
PLAIN_PUNCTUATION = frozenset("_-.:/+@%,")


def configure(level: str, format: Literal["text", "json"], stream: TextIO | None = None) -> None:
    """Configures logs to ``stream`` (default: stderr), replacing any earlier configuration.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``, for the program's own loggers. Libraries log warnings and
            errors.
        format: ``text`` or ``json``.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(LineFormatter(json_line if format == "json" else text_line))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(LIBRARY_LEVEL)
    logging.getLogger(ROOT_NAME).setLevel(level.upper())


class LineFormatter(logging.Formatter):
    """Formats each record's fields, in order, with ``to_line``."""

    def __init__(self, to_line: Callable[[dict[str, Any]], str]) -> None:
        super().__init__()
        self._to_line = to_line

    def format(self, record: logging.LogRecord) -> str:
        return self._to_line(self._fields(record))

    def _fields(self, record: logging.LogRecord) -> dict[str, Any]:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, Any] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for key, value in record.__dict__.items():
            if key not in RECORD_ATTRIBUTES:
                fields[f"{key}_" if key in RESERVED_KEYS else key] = value
        if trace_id := TRACE_ID.get():
            fields.setdefault("trace_id", trace_id)
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return fields


def json_line(fields: dict[str, Any]) -> str:
    return shown_json(json.dumps(fields, default=str, ensure_ascii=False, separators=(",", ":")))


def text_line(fields: dict[str, Any]) -> str:
    rest = dict(fields)
    head = [rest.pop("time"), rest.pop("level").upper(), rest.pop("logger"), _one_line(rest.pop("message"))]
    return shown(" ".join([*head, *(f"{key}={_text_value(value)}" for key, value in rest.items())]))


def _text_value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    if not isinstance(value, str) or (text and all(each.isalnum() or each in PLAIN_PUNCTUATION for each in text)):
        return text
    return json.dumps(text, ensure_ascii=False)


def _one_line(text: str) -> str:
    return " ".join(text.splitlines()) if len(text.splitlines()) > 1 else text
