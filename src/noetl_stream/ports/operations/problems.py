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
    PayloadRefused,
    PlaybookRefused,
    TooBusy,
    Unauthenticated,
    Unreachable,
    UsageError,
    VersionMismatch,
)

TYPE_PREFIX: Final = "/problems/"
"""A problem's ``type`` is this and the kind's name; the gateway serves a page of words there."""


class ProblemKind(NamedTuple):
    """``meaning`` is the ``title``: the same for every problem of the kind."""

    name: str
    status: int
    error: type[NoetlError]
    meaning: str


PROBLEMS: Final = (
    ProblemKind("playbook-refused", 422, PlaybookRefused, "The playbook has errors"),
    ProblemKind("not-found", 404, NotFound, "There is no such thing"),
    ProblemKind("version-mismatch", 412, VersionMismatch, "It has another version by now"),
    ProblemKind("conflict", 409, Conflict, "Its present state does not allow this"),
    ProblemKind("too-busy", 429, TooBusy, "Too much at once"),
    ProblemKind("unauthenticated", 401, Unauthenticated, "Who are you?"),
    ProblemKind("forbidden", 403, Forbidden, "You may not do this"),
    ProblemKind("not-ready", 503, NotReady, "A store is not prepared"),
    ProblemKind("unreachable", 503, Unreachable, "A store does not answer"),
    ProblemKind("payload-refused", 422, PayloadRefused, "The payload cannot be taken in"),
    ProblemKind("invalid", 422, UsageError, "This cannot be"),
)
"""In this order: the first whose class an error is an instance of."""
