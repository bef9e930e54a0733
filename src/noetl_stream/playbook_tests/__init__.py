"""Tests of playbooks: ``*.test.yaml`` beside a playbook, run on the engine in memory and in simulated time."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ENDING: Final = ".test.yaml"

_HEAD_BYTES: Final = 64 * 1024
_SIGNS: Final = (b"noetl.io/", b"PlaybookTest")


def is_test_document(file: Path) -> bool:
    """Whether a file with the suffix of a test document is one, and not of something else. It may have mistakes."""
    try:
        with file.open("rb") as opened:
            head = opened.read(_HEAD_BYTES)
    except OSError:
        return True  # its reader reports the reason
    return any(sign in head for sign in _SIGNS)
