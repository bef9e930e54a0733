"""Hints about keys: what to write instead, with the names and values that the author wrote (LANGUAGE §0)."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from noetl_stream.playbook.codes import Code
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.yaml.nodes import Mapping, MappingKey, written


class RejectedKey(msgspec.Struct, frozen=True):
    """A key that is an error; ``hint`` says what to write instead (LANGUAGE §3 *Rejected*).

    ``place`` is the path from its mapping to where its value is checked all the same; empty if nothing there fits.
    """

    message: str
    hint: str
    code: Code = "legacy_syntax"
    place: tuple[str, ...] = ()

    def report(self, key: MappingKey, node: Mapping, problems: Problems) -> None:
        """Reports the key of a mapping."""
        problems.error(self.code, self.message, key, filled(self.hint, key.name, node))


VALUE: Final = "<value>"
GUARD: Final = "<guard>"
"""What stands in a hint for what the author wrote: the value of the key, as it is or as a condition."""
_MOST_SHOWN: Final = 100


_SECONDS: Final = re.compile(r"\s*(\d+)\s*(s|m|h)(?:ec|ecs|econds?|in|ins|inutes?|rs?|ours?)?\s*\Z")


def filled(hint: str, name: str, node: Mapping) -> str:
    """A hint about a key of a mapping, with its value and the name of its step."""
    value = node.values[name].plain()
    found = _SECONDS.match(value) if isinstance(value, str) and "time" in hint else None
    value = int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]] if found else value
    condition = value.strip().removeprefix("$") if isinstance(value, str) else value
    has_braces = isinstance(condition, str) and "{{" in condition
    guard = condition if has_braces or not isinstance(value, str) else f"{{{{ {condition} }}}}"
    step = node.get("step")
    names = {
        VALUE: shown_value(value),
        GUARD: shown_value(guard),
        "<thousandth>": f"{value / 1000:g}" if isinstance(value, int | float) else "30",
        "<list>": shown_value(_first_list(value)),
        "<minutes>": shown_value(value * 60 if isinstance(value, int | float) else 600),
        "<this step>": shown_value(step.plain()) if step is not None else "<this step>",
    }
    for token, text in names.items():
        hint = hint.replace(token, text)
    return hint


def _first_list(value: Any) -> Any:
    """The list in a value, or the template of one."""
    if isinstance(value, dict):
        return next((found for part in value.values() if (found := _first_list(part)) is not None), None)
    return value if isinstance(value, list) or (isinstance(value, str) and "{{" in value) else None


def shown_value(value: Any) -> str:
    """A value as a hint shows it; ``…`` if it is long."""
    text = written(value)
    return "…" if value is None or len(text) > _MOST_SHOWN or "\\n" in text else text


CRON_NAMES: Final = {
    "@hourly": "0 * * * *",
    **dict.fromkeys(("@daily", "@midnight"), "0 0 * * *"),
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    **dict.fromkeys(("@yearly", "@annually"), "0 0 1 1 *"),
}
"""Names of cron expressions in other tools."""
