"""Builds the result of ``kind: http`` from a response: status, headers, body (LANGUAGE §12)."""

from __future__ import annotations

import base64
import codecs
import datetime
import email.utils
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from noetl_stream.model.json import pieces
from noetl_stream.model.json.texts import (
    charset_of,
    decode_body,
    decode_decimals_as_text,
    digits_lost,
    digits_lost_text,
    header_text,
    is_json,
    is_text,
    media_type,
)
from noetl_stream.model.json.values import TOO_DEEP
from noetl_stream.model.outcome import ErrorInfo, RunWarning
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.convert import NotJson, to_json

RETRYABLE_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
MAX_RETRY_AFTER_S: Final = 86_400.0
"""The longest wait that a server can ask for, a day; `max_delay` of a policy bounds it further."""

_SHOWN_CHARACTERS: Final = 200
_MAY_BE_JSON: Final = frozenset(
    {"", "text/plain", "application/octet-stream", "text/javascript", "application/javascript"}
)
"""Types in which only an object or a list counts as JSON, so that ``007`` in plain text stays text."""

_LONE_SURROGATE: Final = re.compile(
    rb"(?i)(?<!\\)(?:\\\\)*(?:\\ud[89ab][0-9a-f]{2}(?!\\ud[c-f])|(?<!\\ud[89ab][0-9a-f]{2})\\ud[c-f][0-9a-f]{2})"
)
_REPLACED: Final = "U+FFFD stands for what cannot be read"
_KEEP_DIGITS: Final = "`spec: { numbers: text }` keeps them"


def header_mapping(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by lower-case name. The values of a repeated header are joined by ``", "``."""
    headers: dict[str, str] = {}
    for name, value in pairs:
        key, text = header_text(name).lower(), header_text(value)
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


class BodyRead(NamedTuple):
    """A body as ``data`` of the result.

    Attributes:
        fields: ``data``, and ``encoding`` if that is base64.
        error: The reason why the body does not match its content type; else none.
        warnings: Of the run.
    """

    fields: dict[str, Any]
    error: str = ""
    warnings: tuple[RunWarning, ...] = ()


def read_body(content_type: str, body: bytes, *, numbers_as_text: bool = False) -> BodyRead:
    """Reads a body: parsed JSON, else text; null for an empty body; base64 text, with ``encoding: base64``, else."""
    says_json = is_json(content_type)
    if not body or (says_json and not body.strip()):
        return BodyRead({"data": None})
    error = ""
    if says_json or (media_type(content_type) in _MAY_BE_JSON and body.lstrip()[:1] in (b"{", b"[")):
        try:
            return _json(body.removeprefix(codecs.BOM_UTF8), numbers_as_text=numbers_as_text)
        except NotJson as not_json:
            error = str(not_json)
        except (msgspec.DecodeError, ValueError) as unreadable:
            if says_json:
                error = f"the body is not JSON, as its content type says: {_reason(body, unreadable)}"
    return _text(content_type, body, error)


def _reason(body: bytes, error: Exception) -> str:
    """Why a body is not JSON: the parser's words, except where they mislead."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return "it is not UTF-8"
    return "a text has a lone surrogate" if _LONE_SURROGATE.search(body) else str(error)


def _json(body: bytes, *, numbers_as_text: bool) -> BodyRead:
    """
    Raises:
        NotJson: a result cannot hold it.
        ValueError, msgspec.DecodeError: it is not JSON.
    """
    try:
        data = pieces.parse(body) if not numbers_as_text else decode_decimals_as_text(body)
    except RecursionError:
        raise NotJson("data", TOO_DEEP) from None
    # Of parsed JSON, to_json could only reject NUL, which shows in the bytes, and of Python's parser lone surrogates;
    # walking every response would be slow.
    if b"\\u0000" in body or numbers_as_text:
        data = to_json(data, name="data")
    lost = [] if numbers_as_text else [f"/data{pointer}" for pointer in digits_lost(body)]
    warnings = (RunWarning("digits_lost", f"{digits_lost_text(lost)}; {_KEEP_DIGITS}"),) if lost else ()
    return BodyRead({"data": data}, warnings=warnings)


def _text(content_type: str, body: bytes, error: str) -> BodyRead:
    text = decode_body(body, content_type)
    warnings: tuple[RunWarning, ...] = ()
    if text is None and is_text(content_type):
        text = body.decode(errors="replace")
        warnings = (RunWarning("bytes_replaced", f"/data is not {charset_of(content_type)}: {_REPLACED}"),)
    if text is not None and "\0" not in text:
        return BodyRead({"data": text}, error, warnings)
    if text is not None and not error:
        error = "data: text must not contain a NUL character"
    return BodyRead({"data": base64.b64encode(body).decode(), "encoding": "base64"}, error)


def status_failure(
    method: str, url: str, result: Mapping[str, Any], warnings: tuple[RunWarning, ...] = ()
) -> ToolFailure:
    """The failure for a status of 400 or above, or below 200; keeps ``result``."""
    status, headers = result["status"], result["headers"]
    body = result["data"]
    if not isinstance(body, str):
        body = pieces.beginning(body, 4 * 10 * _SHOWN_CHARACTERS).decode(errors="ignore")
    words = body.lstrip()[: 10 * _SHOWN_CHARACTERS].split()  # of a large body, without reading the rest
    excerpt = "" if result["data"] is None else f": {' '.join(words)[:_SHOWN_CHARACTERS]}"
    error = ErrorInfo(
        kind="http_status",
        message=f"{method} {url} returned {status}{excerpt}",
        retryable=status in RETRYABLE_STATUSES,
        retry_after_s=retry_after_s(headers),
        code=str(status),
    )
    helper = {"status": status, "headers": headers}
    return ToolFailure(error, result=dict(result), helper=helper, warnings=warnings)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait from ``Retry-After``: a number, or a date relative to the response's ``Date``.

    Both dates are from the server's clock, so clock skew does not matter. ``None`` if the header is missing or invalid.
    At most :data:`MAX_RETRY_AFTER_S`.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdecimal():
        return min(float(value), MAX_RETRY_AFTER_S)
    until, sent = _date(value), _date(headers.get("date", ""))
    if until is None or sent is None:
        return None
    return min(max(0.0, (until - sent).total_seconds()), MAX_RETRY_AFTER_S)


def _date(text: str) -> datetime.datetime | None:
    try:
        date = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=datetime.UTC)
