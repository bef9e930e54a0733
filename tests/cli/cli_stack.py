"""The gateway of a stack that is up."""

from __future__ import annotations

import re
from pathlib import Path


def gateway_of(home: Path) -> str:
    """Its address, as the stack's log has it."""
    found = re.search(r"listening on (http://127\.0\.0\.1:\d+)", (home / "dev.log").read_text())
    assert found is not None
    return found[1]
