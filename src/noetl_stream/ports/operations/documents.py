"""What operations answer with."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

Document: TypeAlias = dict[str, Any]
"""A JSON object. Its keys are described where it is made; ``gateway/documents/common.py`` has their schema."""


class Page(NamedTuple):
    """One page of a list. ``next`` is the cursor of the page after it, ``None`` at the end."""

    items: list[Document]
    next: str | None
