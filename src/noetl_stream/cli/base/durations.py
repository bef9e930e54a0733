"""Times as people write them: ``90s``, ``15m``, ``12h``, ``30d``."""

from __future__ import annotations

import re
from typing import Final

import click

SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_FORM: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhdw])")


def seconds(context: click.Context, option: click.Parameter, given: str | None) -> float | None:
    """The callback of an option that is a time."""
    if given is None:
        return None
    found = _FORM.fullmatch(given)
    if found is None or not float(found[1]):
        raise click.BadParameter(f"{given!r} is no time: write one such as 90s, 15m, 12h or 30d")
    return float(found[1]) * SECONDS[found[2]]
