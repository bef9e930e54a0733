"""Times as people write them: ``90s``, ``15m``, ``12h``, ``30d``."""

from __future__ import annotations

import re
from typing import Any, Final

import click

SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_FORM: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhdw])")


class Duration(click.ParamType):
    """Seconds, from a number with its unit."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = _FORM.fullmatch(str(value))
        if found is None or not float(found[1]):
            self.fail(f"{value!r} is no time: write one such as 90s, 15m, 12h or 30d", param, ctx)
        return float(found[1]) * SECONDS[found[2]]


DURATION: Final = Duration()
