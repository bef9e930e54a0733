"""Operations that are put on record: in the audit, or by whoever calls them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol


class OnRecord(Protocol):
    """Puts an operation on record."""

    def __call__(self, operation: str, target: str, by: str, reason: str = "") -> AbstractAsyncContextManager[None]:
        """A context to run an operation in, given its id in the OpenAPI document, its target, who acts and why."""
        ...


@asynccontextmanager
async def unrecorded(operation: str, target: str, by: str, reason: str = "") -> AsyncIterator[None]:
    """For a gateway, which records its calls itself."""
    yield
