"""The output and the answer of a job of ``kind: python``."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any, Final

from noetl_stream.tools.convert import encode_json
from noetl_stream.tools.python.job import JobFailed

MAX_OUTPUT_BYTES: Final = 64 * 1024
"""The most captured output of a job; the rest is dropped. The worker shows less, and so always marks the cut."""
MAX_WRITTEN_BYTES: Final = 16 * 1024 * 1024
"""The most bytes that a job may write: as much as an attempt's log keeps. Dropping the rest here is cheap."""
_STANDARD_OUTPUT: Final = 1


def _to_standard_output(data: memoryview) -> int:
    return os.write(_STANDARD_OUTPUT, data)


def text_output(write: Callable[[memoryview], int] = _to_standard_output) -> io.TextIOWrapper:
    """Makes a text stream of playbook code. ``write`` passes data on and returns how many bytes of it."""
    bounded = io.BufferedWriter(BoundedOutput(write))
    return io.TextIOWrapper(bounded, encoding="utf-8", errors="backslashreplace", line_buffering=True)


class BoundedOutput(io.RawIOBase):
    """Output of playbook code, limited to :data:`MAX_WRITTEN_BYTES`."""

    def __init__(self, write: Callable[[memoryview], int]) -> None:
        self._write = write
        self._left = MAX_WRITTEN_BYTES

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return _STANDARD_OUTPUT

    def write(self, data: Any) -> int:
        piece = memoryview(data).cast("B")
        passed = piece[: self._left]
        self._left -= len(passed)
        while passed:
            passed = passed[self._write(passed) :]
        return len(piece)


def result_answer(result: Any, limit: int) -> bytes:
    """Encodes the answer with a result of at most ``limit`` bytes.

    Raises:
        JobFailed: ``result_too_large``.
    """
    encoded = encode_json(result)
    if len(encoded) > limit:
        message = f"the result has {len(encoded):,} bytes of JSON; the limit is {limit:,} (max_result_bytes)"
        raise JobFailed("result_too_large", message)
    return b"[" + encoded + b",null]"


def error_answer(failed: JobFailed) -> bytes:
    """Encodes the answer with an error."""
    return encode_json([None, failed.error])
