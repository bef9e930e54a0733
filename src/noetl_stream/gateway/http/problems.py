"""Errors as answers (RFC 9457), in one place: every refusal of the gateway is made here.

The kinds stand in :mod:`noetl_stream.ports.operations.problems`, which the command line reads the other way round.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from html import escape
from typing import Any, Final, NamedTuple

from noetl_stream.errors import NoetlError, PlaybookRefused, TooBusy
from noetl_stream.ports.operations.problems import PROBLEMS, TYPE_PREFIX, ProblemKind

log = logging.getLogger(__name__)

MEDIA: Final = "application/problem+json"
RETRY_S: Final = 1
"""When to come again after a 503: stores that were away are mostly back at once."""

KINDS: Final = {kind.name: kind for kind in PROBLEMS}


class Finding(NamedTuple):
    """One thing that is wrong with a request: at a JSON pointer into its body, or with a parameter."""

    detail: str
    pointer: str | None = None
    parameter: str | None = None

    def to_json(self) -> dict[str, str]:
        return {key: value for key, value in self._asdict().items() if value is not None}


class RequestRefused(NoetlError):
    """A request that the gateway itself refuses. ``kind`` is the name of the problem."""

    def __init__(
        self, kind: str, message: str, findings: Sequence[Finding] = (), *, hint: str | None = None, allow: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind = KINDS[kind]
        self.findings = findings
        self.allow = allow


class ProblemAnswer(NamedTuple):
    """An error answer."""

    status: int
    document: dict[str, Any]
    headers: dict[str, str]


def kind_of(error: BaseException) -> ProblemKind:
    """Which problem an error is; what nobody foresaw is ``internal``."""
    if isinstance(error, RequestRefused):
        return error.kind
    return next((kind for kind in PROBLEMS if isinstance(error, kind.error)), KINDS["internal"])


def problem_of(error: BaseException, instance: str) -> ProblemAnswer:
    """The answer for ``error``. An internal one says nothing of what is inside: the log does.

    Args:
        instance: The path of the request.
    """
    kind = kind_of(error)
    document: dict[str, Any] = {"type": TYPE_PREFIX + kind.name, "title": kind.meaning, "status": kind.status}
    headers: dict[str, str] = {}
    if kind.name == "internal" or not isinstance(error, NoetlError):
        log.error("%s failed: %s", instance, error, exc_info=error)
        document["detail"] = "The gateway has met a defect of its own; its log says more"
    else:
        document["detail"] = error.message
        if error.hint:
            document["hint"] = error.hint
    if isinstance(error, PlaybookRefused):
        document["diagnostics"] = error.diagnostics
    if isinstance(error, RequestRefused):
        if error.findings:
            document["errors"] = [finding.to_json() for finding in error.findings]
        if error.allow:
            headers["Allow"] = error.allow
    if kind.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if kind.status in (429, 503):
        headers["Retry-After"] = str(math.ceil(error.retry_after_s) if isinstance(error, TooBusy) else RETRY_S)
    document["instance"] = instance
    return ProblemAnswer(kind.status, document, headers)


def page_of(kind: ProblemKind) -> str:
    """What ``/problems/<name>`` shows to a person."""
    title, words = escape(kind.meaning), escape(kind.words)
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<h1>{title}</h1>\n<p>Status {kind.status}, <code>{TYPE_PREFIX}{kind.name}</code></p>\n"
        f"<p>{words}</p>\n</html>\n"
    )
