"""Problems: errors in HTTP (RFC 9457). Each kind has a stable ``type``, a status, and an error class.

By this table the gateway converts errors to problems, and the command line converts problems to errors.
"""

from __future__ import annotations

from typing import Final

import msgspec

from noetl_stream.errors import (
    Conflict,
    Forbidden,
    NoetlError,
    NotFound,
    NotReady,
    OutcomeUnknown,
    PayloadRefused,
    PlaybookRefused,
    QueryTooLong,
    TooBusy,
    Unauthenticated,
    Unreachable,
    UsageError,
    VersionMismatch,
)
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.ports.operations.verbs import Document

TYPE_PREFIX: Final = "/problems/"
"""The prefix of a problem's ``type``, before the kind's name; the gateway serves a page about it there."""


class ProblemKind(msgspec.Struct, frozen=True, gc=False):
    """A kind of problem. ``meaning`` is the ``title`` of every such problem; ``words`` say what to do about it."""

    name: str
    status: int
    error: type[NoetlError]
    meaning: str
    words: str


class FaultDocument(Document, frozen=True, omit_defaults=True):
    """One fault of a request: in a parameter, or at a JSON pointer into its body."""

    detail: str
    pointer: str | None = None
    parameter: str | None = None


class ProblemDocument(Document, frozen=True, omit_defaults=True, kw_only=True):
    """An error (RFC 9457). ``type`` is stable: branch on it. The address in ``type`` has a page about it. ``left_out``
    is how many more faults there are than ``errors`` lists.
    """

    type: str
    title: str
    status: int
    detail: str
    hint: str | None = None
    diagnostics: list[Diagnostic] | None = None
    errors: list[FaultDocument] | None = None
    left_out: int = 0
    instance: str


PROBLEMS: Final = (
    ProblemKind(
        "playbook-refused",
        422,
        PlaybookRefused,
        "The playbook has errors",
        "`diagnostics` has each with its line and column. Nothing was stored or started.",
    ),
    ProblemKind(
        "not-found",
        404,
        NotFound,
        "Not found",
        "What the address or the body names does not exist, or this token may not see it.",
    ),
    ProblemKind(
        "version-mismatch",
        412,
        VersionMismatch,
        "It has another version now",
        "It was changed after you read it. Read it again, then decide.",
    ),
    ProblemKind(
        "conflict",
        409,
        Conflict,
        "Its present state does not allow this",
        "It has ended, has not ended yet, or is registered with another text. The detail says which.",
    ),
    ProblemKind(
        "too-busy", 429, TooBusy, "Too many requests", "Nothing was done. Try again after the seconds in Retry-After."
    ),
    ProblemKind(
        "unauthenticated",
        401,
        Unauthenticated,
        "Authentication required",
        "Send `Authorization: Bearer` with a valid token.",
    ),
    ProblemKind(
        "forbidden", 403, Forbidden, "Not allowed", "The token is valid, but its role or its paths do not allow this."
    ),
    ProblemKind(
        "not-ready", 503, NotReady, "A store is not prepared", "The detail names the command that prepares it."
    ),
    ProblemKind(
        "unreachable",
        503,
        Unreachable,
        "A store does not answer",
        "NATS, Postgres or every server is down. Try again; with an Idempotency-Key nothing is done twice.",
    ),
    ProblemKind(
        "outcome-unknown",
        503,
        OutcomeUnknown,
        "The outcome is unknown",
        "A store did not answer in time. Ask again, with the same Idempotency-Key if you sent one.",
    ),
    ProblemKind(
        "query-too-long",
        504,
        QueryTooLong,
        "A query took too long",
        "Postgres did not find the answer within NOETL_GATEWAY_MAX_QUERY_S. Ask for less: the hint says how.",
    ),
    ProblemKind(
        "payload-refused",
        422,
        PayloadRefused,
        "The payload is not accepted",
        "It exceeds a limit, is nested too deeply, or holds what JSON and Postgres cannot represent.",
    ),
    ProblemKind("invalid", 422, UsageError, "Invalid value", "The detail says what is wrong with it."),
    ProblemKind(
        "invalid-request",
        400,
        UsageError,
        "Malformed request",
        "`errors` has each fault: at a JSON pointer into the body, or with a parameter.",
    ),
    ProblemKind(
        "too-large", 413, PayloadRefused, "The body is too large", "The detail names the setting that limits it."
    ),
    ProblemKind(
        "overloaded",
        503,
        TooBusy,
        "The gateway holds as much as it may",
        "Nothing was done. Try again after the seconds in Retry-After, or ask another gateway.",
    ),
    ProblemKind(
        "unsupported-media-type",
        415,
        UsageError,
        "Unsupported media type",
        "Send one of the types that the detail names, in Content-Type.",
    ),
    ProblemKind(
        "method-not-allowed", 405, UsageError, "Method not allowed", "Allow lists the methods of this address."
    ),
    ProblemKind(
        "key-reused",
        422,
        UsageError,
        "The Idempotency-Key was used for another request",
        "Use a new key for each request, and keep it for retries of that request.",
    ),
    ProblemKind(
        "internal", 500, NoetlError, "Internal error", "The log of the gateway has the details. Please report it."
    ),
)
"""The kinds in order: an error has the first whose class fits. Those after ``invalid`` occur at gateways only."""

_INTERNAL: Final = next(kind for kind in PROBLEMS if kind.name == "internal")


def problem_kind(error: BaseException) -> ProblemKind:
    """The kind of an error; ``internal`` for one that was not foreseen."""
    return next((kind for kind in PROBLEMS if isinstance(error, kind.error)), _INTERNAL)
