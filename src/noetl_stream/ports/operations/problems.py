"""Errors as HTTP carries them (RFC 9457): each kind has a stable ``type``, a status, and the class it is here.

The gateway makes problems of errors by this table, the command line errors of problems.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from noetl_stream.errors import (
    Conflict,
    Forbidden,
    NoetlError,
    NotFound,
    NotReady,
    OutcomeUnknown,
    PayloadRefused,
    PlaybookRefused,
    TooBusy,
    Unauthenticated,
    Unreachable,
    UsageError,
    VersionMismatch,
)
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.ports.operations.documents import Document

TYPE_PREFIX: Final = "/problems/"
"""A problem's ``type`` is this and the kind's name; the gateway serves a page of words there."""


class ProblemKind(NamedTuple):
    """``meaning`` is the ``title``, the same for every problem of the kind; ``words`` say what to do about it."""

    name: str
    status: int
    error: type[NoetlError]
    meaning: str
    words: str


class FaultDocument(Document, frozen=True, omit_defaults=True):
    """One thing that is wrong with a request: with a parameter, or at a JSON pointer into its body."""

    detail: str
    pointer: str | None = None
    parameter: str | None = None


class ProblemDocument(Document, frozen=True, omit_defaults=True, kw_only=True):
    """An error (RFC 9457). ``type`` is stable: branch on it. The address ``type`` names has words about it."""

    type: str
    title: str
    status: int
    detail: str
    hint: str | None = None
    diagnostics: list[Diagnostic] | None = None
    errors: list[FaultDocument] | None = None
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
        "There is no such thing",
        "What the address or the body names is not there, or not for you to see.",
    ),
    ProblemKind(
        "version-mismatch",
        412,
        VersionMismatch,
        "It has another version by now",
        "Somebody changed it since you read it. Read it again, and decide again.",
    ),
    ProblemKind(
        "conflict",
        409,
        Conflict,
        "Its present state does not allow this",
        "It has ended, or has not ended yet, or is registered otherwise. The detail says which.",
    ),
    ProblemKind(
        "too-busy",
        429,
        TooBusy,
        "Too much at once",
        "Nothing was done. Come again after as many seconds as Retry-After says.",
    ),
    ProblemKind(
        "unauthenticated",
        401,
        Unauthenticated,
        "Who are you?",
        "Send `Authorization: Bearer` with a token that holds.",
    ),
    ProblemKind(
        "forbidden",
        403,
        Forbidden,
        "You may not do this",
        "The token is good, and its role or its paths are not enough.",
    ),
    ProblemKind(
        "not-ready",
        503,
        NotReady,
        "A store is not prepared",
        "The detail says which command prepares it.",
    ),
    ProblemKind(
        "unreachable",
        503,
        Unreachable,
        "A store does not answer",
        "NATS, Postgres or every server is away. Try again; with an Idempotency-Key nothing is done twice.",
    ),
    ProblemKind(
        "outcome-unknown",
        503,
        OutcomeUnknown,
        "It is not known whether this was done",
        "The answer of a store did not come. Ask again, with the same Idempotency-Key if you gave one.",
    ),
    ProblemKind(
        "payload-refused",
        422,
        PayloadRefused,
        "The payload cannot be taken in",
        "It is larger than a limit allows, too deep, or holds what JSON and Postgres have no form for.",
    ),
    ProblemKind("invalid", 422, UsageError, "This cannot be", "The detail says what is wrong with it."),
    ProblemKind(
        "invalid-request",
        400,
        UsageError,
        "The request is not well formed",
        "`errors` has each fault: at a JSON pointer into the body, or with a parameter.",
    ),
    ProblemKind(
        "too-large",
        413,
        PayloadRefused,
        "The body is too large",
        "The detail names the setting that bounds it.",
    ),
    ProblemKind(
        "unsupported-media-type",
        415,
        UsageError,
        "The body has a type that is not taken here",
        "Send one of those that the detail names, in Content-Type.",
    ),
    ProblemKind(
        "method-not-allowed",
        405,
        UsageError,
        "There is no such method here",
        "Allow has those there are.",
    ),
    ProblemKind(
        "key-reused",
        422,
        UsageError,
        "The Idempotency-Key was used for something else",
        "Draw a new key for each thing that is to be done, and keep it for repeats of that very request.",
    ),
    ProblemKind("internal", 500, NoetlError, "A defect of the gateway", "Its log says more. Please report it."),
)
"""In this order: the first whose class an error is an instance of. Behind ``invalid`` are those that only the gateway
itself finds.
"""

_INTERNAL: Final = next(kind for kind in PROBLEMS if kind.name == "internal")


def problem_kind(error: BaseException) -> ProblemKind:
    """Which problem an error is; what nobody foresaw is ``internal``."""
    return next((kind for kind in PROBLEMS if isinstance(error, kind.error)), _INTERNAL)
