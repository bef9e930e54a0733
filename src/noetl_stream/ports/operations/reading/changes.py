"""How ``ctx`` came to be what it is: each change of a key."""

from __future__ import annotations

from typing import Any

from noetl_stream.model.envelope import Time
from noetl_stream.ports.operations.documents import Document, DocumentPage


class KeyChangeDocument(Document, frozen=True):
    """A change of a key of ``ctx``, from outside with principal and reason, from within with step and task.

    ``had`` and ``has``: whether the key was there before and is after it; ``before`` and ``after`` its values, a large
    one ``{"$large": …}``.
    """

    key: str
    position: int
    at: Time
    event: str
    principal: str
    reason: str
    correlation_id: str
    step: str | None
    step_run_id: str | None
    task: str | None
    iteration: list[int] | None
    had: bool
    before: Any
    has: bool
    after: Any


class KeyChangePage(DocumentPage[KeyChangeDocument], frozen=True):
    """By position. A page may be short and not the last."""
