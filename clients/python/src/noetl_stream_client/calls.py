"""Calls of verbs, converted to requests by the table of routes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from noetl_stream_client.requests import JSON, Request, new_id

PLAIN: Final = " !#$&'()*+,-./:;<=>?@[]^_`{|}~\""
"""The characters that a header holds unencoded, apart from letters and digits; all others are percent-encoded."""

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Route(NamedTuple):
    """The route of a verb in the HTTP API, and the places of its arguments.

    Attributes:
        path: Below ``/api/v1``, with arguments in braces.
        whole: The argument that is the entire body.
        pairs: Arguments that are sent as ``name=value``.
        media: The media type of the body, unless it is JSON.
        reads: Whether it is read-only, although not a GET.
        next: The argument that leads to the next page.
    """

    method: str
    path: str
    query: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    whole: str = ""
    pairs: tuple[str, ...] = ()
    media: str = ""
    takes_key: bool = False
    reads: bool = False
    next: str = ""

    def request(self, given: Mapping[str, Any], headers: Mapping[str, str]) -> Request:
        """The request of a call with these arguments, of which some are ``headers``.

        Raises:
            ValueError: a time has no zone.
        """
        names = [part[1:-1] if part.startswith("{") else "" for part in self.path.split("/")[1:]]
        plain = self.path.split("/")[1:]
        parts = tuple(str(given[name]) if name else part for name, part in zip(names, plain, strict=True))
        body: Mapping[str, Any] | bytes | None = None
        if self.whole:
            whole = given[self.whole]
            body = whole.encode() if isinstance(whole, str) else whole
        elif self.body:
            body = self._sent(self.body, given)
        return Request(
            self.method,
            parts,
            query=self._sent(self.query, given),
            headers={header: _header(given.get(name)) for name, header in headers.items()},
            body=body,
            media=given.get("media") or self.media or JSON,
            request_id=(given["request_id"] or new_id()) if self.takes_key else None,
            is_repeatable=self.method == "GET" or self.takes_key or self.reads,
            wait_s=_seconds_of(given.get("wait")) if "wait" in self.query else 0.0,
        )

    def _sent(self, names: tuple[str, ...], given: Mapping[str, Any]) -> dict[str, Any]:
        """Values by their names in the HTTP API."""
        return {
            name.removesuffix("_"): _pairs(given[name]) if name in self.pairs else text_of(given[name])
            for name in names
        }


def text_of(value: Any) -> Any:
    """A time in ISO 8601, or a duration such as ``90s``; any other value unchanged.

    Raises:
        ValueError: a time has no zone.
    """
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.3f}s"
    if isinstance(value, datetime):
        if value.tzinfo is None:
            text = f"{value.isoformat()} has no time zone: use datetime.now(timezone.utc), for example"
            raise ValueError(text)
        return value.isoformat()
    return value


def _seconds_of(wait: Any) -> float:
    """The seconds of a duration as :func:`text_of` writes one; 0 for one that the gateway will refuse."""
    if isinstance(wait, timedelta):
        return wait.total_seconds()
    found = _DURATION.fullmatch(wait) if isinstance(wait, str) else None
    return float(found[1]) * _UNITS[found[2]] if found is not None else 0.0


def _pairs(given: Any) -> Any:
    if isinstance(given, Mapping):
        return [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in given.items()]
    return given


def _header(given: str | None) -> str | None:
    return quote(given, safe=PLAIN) if given else None
