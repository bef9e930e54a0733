"""Playbooks that `run` has checked before, in ``checked.json`` of the home.

A server checks every playbook again. The cache therefore only saves the check before anything starts, and only for
texts without diagnostics, which are shown each time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from noetl_stream.cli.playbook.playbook_source import judged
from noetl_stream.errors import LocalStackError
from noetl_stream.local.home import Home, read_private, write_private
from noetl_stream.operations.executions.prepare import CheckedText
from noetl_stream.settings.sources.environment import Settings, kinds_off, limit_settings

KEPT: Final = 64
"""The number of last texts that are remembered."""

MOST_BYTES: Final = 16 * 1024
"""A text with larger defaults of its workload is not remembered."""

CHECKING: Final = ("playbook", "template", "tools")
"""The packages that decide the result of a check."""


class TextCheck(msgspec.Struct, frozen=True):
    """A checked text. ``remember`` lets the next `run` skip its check, once the home exists."""

    playbook: CheckedText
    remember: Callable[[], None]


def check_text(name: str, source: str, settings: Settings) -> TextCheck:
    """Checks a playbook, unless it is known to have neither errors nor warnings; with errors, the command ends."""
    home = None if settings.nats_url is not None else Home(settings.home)
    key = _key(source)
    known = _read(home).get(key) if home is not None else None
    if known is not None:
        return TextCheck(known, _nothing)
    plan, is_clean = judged(name, source)
    schema = None if plan.workload_schema is None else plan.workload_schema.content
    checked = CheckedText(plan.digest, plan.path, dict(plan.workload), schema)
    return TextCheck(checked, partial(_remember, home, key, checked) if is_clean and home is not None else _nothing)


def _nothing() -> None:
    """Returns no remembered texts."""


def _remember(home: Home, key: str, checked: CheckedText) -> None:
    if len(msgspec.json.encode(checked)) <= MOST_BYTES:
        known = [*_read(home).items(), (key, checked)]
        with suppress(OSError):
            write_private(home.checked, msgspec.json.encode(dict(known[-KEPT:])).decode())


def _read(home: Home) -> dict[str, CheckedText]:
    try:
        return msgspec.json.decode(read_private(home.checked), type=dict[str, CheckedText])
    except (OSError, msgspec.MsgspecError, LocalStackError):
        return {}


def _key(source: str) -> str:
    """The key of a text, which changes with the text, the settings, and the installed or edited modules."""
    made_from = (sorted(kinds_off()), sorted(limit_settings().items()), _program())
    return sha256(repr(made_from).encode() + source.encode()).hexdigest()


def _program() -> list[int]:
    """The last changes of the folders of installed packages, and of the modules that check."""
    package = Path(__file__).parents[2]
    modules = [one for name in CHECKING for one in (package / name).rglob("*.py")]
    installed = [Path(folder) for folder in sys.path if folder.endswith("-packages")]
    return [*map(_changed, installed), max(map(_changed, modules))]


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
