"""Errors as answers (RFC 9457), in one place: every refusal of the gateway is made here.

The kinds are in :mod:`noetl_stream.ports.operations.problems`, with which the command line converts problems to errors.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

import msgspec

from noetl_stream.errors import NoetlError, PlaybookRefused, TooBusy, TooDeep, WorkloadRefused, fault_text
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.ports.operations import problems as kinds

log = logging.getLogger(__name__)

MEDIA: Final = "application/problem+json"
RETRY_S: Final = 1
"""The seconds after which to retry a 503: stores are mostly back at once."""

MAX_FAULTS: Final = 100
"""The most faults of a request that one answer lists; it states the number of further ones."""

KINDS: Final = {kind.name: kind for kind in kinds.PROBLEMS}


class HttpProblem(NoetlError):
    """A request that the gateway itself rejects.

    Args:
        kind: The name of the problem.
        faults: The faults of the request; the answer lists the first :data:`MAX_FAULTS`.
        left_out: The number of further faults.
        allow: The methods of the address.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        faults: Sequence[kinds.FaultDocument] = (),
        *,
        left_out: int = 0,
        hint: str | None = None,
        allow: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind = KINDS[kind]
        self.faults = faults[:MAX_FAULTS]
        self.left_out = len(faults) - len(self.faults) + left_out
        self.allow = allow


class ProblemAnswer(NamedTuple):
    status: int
    document: kinds.ProblemDocument
    headers: dict[str, str]


def kind_of(error: BaseException) -> kinds.ProblemKind:
    """The kind of an error, including errors that only a gateway has."""
    return error.kind if isinstance(error, HttpProblem) else kinds.problem_kind(error)


def problem_of(error: BaseException, instance: str) -> ProblemAnswer:
    """The answer for ``error``. An internal error reveals nothing: the details are in the log.

    Args:
        instance: The path of the request.
    """
    if isinstance(error, RecursionError):
        error = TooDeep(f"it cannot be shown: {fault_text(error)}")
    kind = kind_of(error)
    headers: dict[str, str] = {}
    detail, hint = "The gateway failed; its log has the details", None
    if kind.name == "internal" or not isinstance(error, NoetlError):
        log.error("%s failed: %s", instance, error, exc_info=error)
    else:
        detail, hint = error.message, error.hint
    refused = error if isinstance(error, HttpProblem) else None
    diagnostics = error.diagnostics if isinstance(error, PlaybookRefused) else None
    faults = list(refused.faults) if refused is not None else []
    if isinstance(error, WorkloadRefused):
        faults = [kinds.FaultDocument(error.reason, pointer=f"/workload{error.pointer}")]
    document = kinds.ProblemDocument(
        type=kinds.TYPE_PREFIX + kind.name,
        title=kind.meaning,
        status=kind.status,
        detail=detail,
        hint=hint or None,
        diagnostics=msgspec.convert(diagnostics, list[Diagnostic] | None),
        errors=faults or None,
        left_out=refused.left_out if refused is not None else 0,
        instance=instance,
    )
    if refused is not None and refused.allow:
        headers["Allow"] = refused.allow
    if kind.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if kind.status in (429, 503):
        headers["Retry-After"] = str(math.ceil(error.retry_after_s) if isinstance(error, TooBusy) else RETRY_S)
    return ProblemAnswer(kind.status, document, headers)


def page_of(kind: kinds.ProblemKind) -> str:
    """The text of ``/problems/<name>`` for people."""
    title, words = escape(kind.meaning), escape(kind.words)
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<h1>{title}</h1>\n<p>Status {kind.status}, <code>{kinds.TYPE_PREFIX}{kind.name}</code></p>\n"
        f"<p>{words}</p>\n</html>\n"
    )
