"""Pages of lists and their cursors: opaque texts that only the list that made them understands."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from noetl_stream.errors import PayloadRefused, UsageError
from noetl_stream.model.json import codec

Row = TypeVar("Row")

MAX_PAGE: Final = 1_000


def page_size(limit: int) -> int:
    """The most items of a page."""
    return max(1, min(limit, MAX_PAGE))


def page_of(rows: Sequence[Row], size: int, key: Callable[[Row], Any]) -> tuple[Sequence[Row], str | None]:
    """The rows of a page, and the cursor of the next one, if any.

    Args:
        rows: One more than ``size`` if another page follows.
        key: Returns the value after which the next page begins: any JSON.
    """
    return rows[:size], cursor_of(key(rows[size - 1])) if len(rows) > size else None


def cursor_of(value: Any) -> str:
    """A cursor for what follows ``value``, any JSON."""
    return base64.urlsafe_b64encode(codec.encode(value)).decode().rstrip("=")


def read_cursor(cursor: str | None, kind: type[Any]) -> Any:
    """The value in a cursor, of this JSON type; ``None`` without a cursor.

    Raises:
        UsageError: the cursor is invalid.
    """
    if cursor is None:
        return None
    try:
        value = codec.decode_json(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, PayloadRefused):
        value = None
    if not isinstance(value, kind):
        raise UsageError(f"{cursor!r} is not a cursor of this list", hint="use `next` of the previous page unchanged")
    return value
