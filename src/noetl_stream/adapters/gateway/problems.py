"""Problems as errors again: the table of :mod:`noetl_stream.ports.operations.problems`, read from right to left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetl_stream.errors import NoetlError, PlaybookRefused, TooBusy
from noetl_stream.ports.operations.problems import PROBLEMS, TYPE_PREFIX, ProblemKind

MEDIA: Final = "application/problem+json"
_KINDS: Final = {kind.name: kind for kind in PROBLEMS}


def error_of(problem: Mapping[str, Any], retry_after_s: float) -> NoetlError:
    """The error that a gateway has made this problem of.

    One of a type that is not known here, as a newer gateway may have, counts as the first with its status.
    """
    kind = _KINDS.get(str(problem.get("type", "")).rpartition(TYPE_PREFIX)[2]) or _by_status(problem.get("status"))
    message = "; ".join((str(problem.get("detail") or problem.get("title") or "refused"), *_faults(problem)))
    hint = problem.get("hint")
    if kind is None:
        return NoetlError(message, hint=hint)
    if issubclass(kind.error, PlaybookRefused):
        return kind.error(message, problem.get("diagnostics") or [], hint=hint)
    if issubclass(kind.error, TooBusy):
        return kind.error(message, retry_after_s, hint=hint)
    return kind.error(message, hint=hint)


def _by_status(status: object) -> ProblemKind | None:
    return next((kind for kind in PROBLEMS if kind.status == status), None)


def _faults(problem: Mapping[str, Any]) -> list[str]:
    found = problem.get("errors") or []
    return [f"{fault.get('parameter') or fault.get('pointer') or 'the body'}: {fault['detail']}" for fault in found]
