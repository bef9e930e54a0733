"""Builds the result of ``kind: http`` from a response: status, headers, body (LANGUAGE §12)."""

from __future__ import annotations

import base64
import datetime
import email.utils
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.convert import NotJson, to_json

RETRYABLE_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_SHOWN_CHARACTERS: Final = 200


def header_mapping(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers by lower-case name. The values of a repeated header are joined by ``", "``."""
    headers: dict[str, str] = {}
    for name, value in pairs:
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers


def result_of(status: int, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """``{status, headers, data}``. ``data`` is parsed JSON, else text; null for an empty body.

    Any other body is base64 text, and the result has ``encoding: base64``.

    Raises:
        ToolFailure: ``result_not_json`` for JSON or text with a NUL character or nested too deeply.
    """
    result: dict[str, Any] = {"status": status, "headers": dict(headers)}
    content_type, _, rest = headers.get("content-type", "").partition(";")
    kind = content_type.strip().lower()
    if not body:
        return {**result, "data": None}
    try:
        parsed, data = _parsed(kind, body)
        if not parsed:
            text = _decoded(kind, _charset(rest), body)
            if text is None:
                return {**result, "data": base64.b64encode(body).decode(), "encoding": "base64"}
            data = to_json(text, name="data") if "\0" in text else text
    except NotJson as error:
        raise ToolFailure.of("result_not_json", str(error)) from None
    return {**result, "data": data}


def status_failure(method: str, url: str, result: Mapping[str, Any]) -> ToolFailure:
    """The failure for a status of 400 or above; keeps ``result``."""
    status, headers = result["status"], result["headers"]
    body = result["data"] if isinstance(result["data"], str) else msgspec.json.encode(result["data"]).decode()
    excerpt = "" if result["data"] is None else f": {' '.join(body.split())[:_SHOWN_CHARACTERS]}"
    error = ErrorInfo(
        kind="http_status",
        message=f"{method} {url} returned {status}{excerpt}",
        retryable=status in RETRYABLE_STATUSES,
        retry_after_s=retry_after_s(headers),
        code=str(status),
    )
    return ToolFailure(error, result=dict(result), helper={"status": status, "headers": headers})


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait from ``Retry-After``: a number, or a date relative to the response's ``Date``.

    Both dates are from the server's clock, so clock skew does not matter. ``None`` if the header is missing or invalid.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdecimal():
        return float(value)
    until, sent = _date(value), _date(headers.get("date", ""))
    if until is None or sent is None:
        return None
    return max(0.0, (until - sent).total_seconds())


def _date(text: str) -> datetime.datetime | None:
    try:
        date = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=datetime.UTC)


def _parsed(kind: str, body: bytes) -> tuple[bool, Any]:
    """Whether the body is JSON, and its value.

    Without a JSON content type only an object or a list counts, so that ``007`` in plain text stays text.
    """
    says_json = kind.endswith(("/json", "+json"))
    may_be_json = kind in ("", "text/plain", "application/octet-stream", "text/javascript", "application/javascript")
    if not says_json and not (may_be_json and body.lstrip()[:1] in (b"{", b"[")):
        return False, None
    try:
        data = msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf"))
    except RecursionError:
        raise NotJson("data", "nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False, None
    # Of parsed JSON, to_json could only reject NUL, which shows in the bytes; walking every response would be slow.
    if b"\\u0000" in body:
        data = to_json(data, name="data")
    return True, data


def _decoded(kind: str, charset: str | None, body: bytes) -> str | None:
    try:
        return body.decode(charset or "utf-8")
    except (LookupError, UnicodeError):
        is_text = kind.startswith("text/") or kind.endswith(("+xml", "/xml"))
        return body.decode("utf-8", errors="replace") if is_text else None


def _charset(parameters: str) -> str | None:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip('"') or None
    return None
