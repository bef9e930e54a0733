"""The system identifier of a Postgres cluster: replication and restores of log files tell clusters apart by it.

``initdb`` draws one. An unpacked :mod:`~noetl_stream.local.cluster_archive` has that of the cluster that was packed,
and gets one of its own here, in the two places that hold it: the control file, and the first page of each log segment.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final

from noetl_stream.errors import LocalStackError

CONTROL_FILE: Final = "global/pg_control"
_LOG_FOLDER: Final = "pg_wal"
_LOG_HEADER: Final = 24
"""The bytes of a log page's header before the identifier."""
_CASTAGNOLI: Final = 0x82F63B78
_MAX_CONTROL_BYTES: Final = 512
"""Postgres keeps the control file below a sector, so that it is written whole."""


def draw_system_identifier(data: Path) -> None:
    """Gives a cluster that was shut down a new random system identifier.

    Raises:
        LocalStackError: The control file is not one, or is damaged.
        OSError: A file cannot be written.
    """
    control = data / CONTROL_FILE
    content = control.read_bytes() if control.exists() else b""
    before, end = content[:8], _checksum_offset(content)
    identifier = os.urandom(8)
    changed = identifier + content[8:end]
    for segment in sorted((data / _LOG_FOLDER).glob("[0-9A-F]" * 24)):
        with segment.open("r+b") as log:
            log.seek(_LOG_HEADER)
            if log.read(8) == before:
                log.seek(_LOG_HEADER)
                log.write(identifier)
    with control.open("r+b") as file:
        file.write(changed + struct.pack("=I", crc32c(changed)))


def _checksum_offset(content: bytes) -> int:
    """Returns where the control file has the checksum of all before it; the offset depends on Postgres' version."""
    value = ~0
    for offset, byte in enumerate(content[:_MAX_CONTROL_BYTES]):
        if offset >= 8 and offset % 4 == 0 and content[offset : offset + 4] == struct.pack("=I", ~value & 0xFFFFFFFF):
            return offset
        value = _next(value, byte)
    raise LocalStackError(f"a file of this installation is damaged: {CONTROL_FILE} has no valid checksum")


def crc32c(content: bytes) -> int:
    """Returns the CRC-32C (Castagnoli) of ``content``, which Postgres uses for its control file."""
    value = ~0
    for byte in content:
        value = _next(value, byte)
    return ~value & 0xFFFFFFFF


def _next(value: int, byte: int) -> int:
    value = (value & 0xFFFFFFFF) ^ byte
    for _ in range(8):
        value = (value >> 1) ^ (_CASTAGNOLI if value & 1 else 0)
    return value
