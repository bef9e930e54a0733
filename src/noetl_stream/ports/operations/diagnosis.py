"""Whether the system is well, check by check."""

from __future__ import annotations

from typing import Literal, Protocol

from noetl_stream.ports.operations.documents import Document
from noetl_stream.ports.operations.http import http

Verdict = Literal["ok", "warning", "wrong", "skipped"]


class CheckDocument(Document, frozen=True):
    """``says`` is a sentence: what was found; of a skipped check, why nobody could look. ``mend`` is the command that
    mends it, or what to do; empty if there is nothing to do.
    """

    check: str
    verdict: Verdict
    says: str
    mend: str = ""


class ChecksDocument(Document, frozen=True):
    items: list[CheckDocument]


class Diagnosis(Protocol):
    @http("GET", "/doctor")
    async def examine(self) -> list[CheckDocument]:
        """All checks, in a fixed order. What the caller may not see, or does not answer, is skipped and says why."""
        ...
