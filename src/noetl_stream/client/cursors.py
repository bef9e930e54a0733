"""Cursors of pages: texts that mean something to whoever made them, and to nobody else."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from noetl_stream.errors import PayloadRefused, UsageError
from noetl_stream.model import codec


def cursor_of(value: Any) -> str:
    """A cursor that goes on after ``value``, any JSON."""
    return base64.urlsafe_b64encode(codec.encode(value)).decode().rstrip("=")


def read_cursor(cursor: str | None, kind: type[Any]) -> Any:
    """The value in a cursor, of this JSON type; ``None`` without a cursor.

    Raises:
        UsageError: it is none of this list.
    """
    if cursor is None:
        return None
    try:
        value = codec.decode_json(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, PayloadRefused):
        value = None
    if not isinstance(value, kind):
        raise UsageError(f"{cursor!r} is no cursor of this list", hint="take `next` of the page before as it is")
    return value
