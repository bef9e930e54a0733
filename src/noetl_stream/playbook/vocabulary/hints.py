"""Hints about keys: their replacements, with the names and values that the author wrote (LANGUAGE §0)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from noetl_stream.playbook.codes import Code
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.yaml.nodes import Mapping, MappingKey, Node, Scalar, child, written


class RejectedKey(msgspec.Struct, frozen=True):
    """A rejected key; ``hint`` is its replacement (LANGUAGE §3 *Rejected*).

    ``place`` is the path from its mapping at which its value is still checked; empty if nothing there fits.
    """

    message: str
    hint: str
    code: Code = "legacy_syntax"
    place: tuple[str, ...] = ()

    def report(self, key: MappingKey, node: Mapping, problems: Problems) -> None:
        problems.error(self.code, self.message, key, filled(self.hint, key.name, node))
        if (
            self.place
            and "{ " in self.hint
            and not {"…", "<"} & set(self.hint)
            and isinstance(node.values[key.name], Scalar)
        ):
            problems.mark_unreadable(key.pointer)  # the hint has another value


_UNITS: Final = {
    **dict.fromkeys(("ms", "millis", "milliseconds", "msec"), 0.001),
    **dict.fromkeys(("s", "sec", "secs", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minutes"), 60),
    **dict.fromkeys(("h", "hours"), 3_600),
}
_OTHER_FORM: Final = re.compile(r"(?<!\{)\$?\{\s*([A-Za-z_]\w*(?:\.\w+|\[[^\]{}]*\])*)\s*\}(?!\})")


def in_seconds(name: str, value: Any, known: Iterable[str]) -> str | None:
    """The hint for a time whose key names its unit, such as ``delay_ms``: the known key, and the value in seconds."""
    base, _, unit = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().rpartition("_")
    word = next((one for one in known if unit in _UNITS and one in (base, f"{base}_s")), None)
    if word is None or word == name:
        return None
    shown = f"{value * _UNITS[unit]:g}" if isinstance(value, int | float) else shown_value(value)
    return f"write {word}: {shown}, in seconds"


def with_braces(text: str) -> str | None:
    """A text with placeholders of another language as a template, such as ``${a}/b``; ``None`` for any other text."""
    is_f_string = text[:2] in ('f"', "f'", 'F"', "F'") and text[1] == text[-1] and len(text) > 2
    inner = text[2:-1] if is_f_string else text
    whole = _OTHER_FORM.sub(r"{{ \1 }}", inner)
    return whole if whole != text else None


VALUE: Final = "<value>"
GUARD: Final = "<guard>"
"""The placeholders in a hint for the author's own text: the value of the key, as it is or as a condition."""
_MOST_SHOWN: Final = 100


_SECONDS: Final = re.compile(r"\s*(\d+)\s*(s|m|h)(?:ec|ecs|econds?|in|ins|inutes?|rs?|ours?)?\s*\Z")


def filled(hint: str, name: str, node: Mapping) -> str:
    """A hint about a key of a mapping, with its value and the name of its step."""
    value = node.values[name].plain()
    found = _SECONDS.match(value) if isinstance(value, str) and ("time" in hint or "for_s" in hint) else None
    value = int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]] if found else value
    condition = value.strip().removeprefix("$") if isinstance(value, str) else value
    has_braces = isinstance(condition, str) and "{{" in condition
    guard = condition if has_braces or not isinstance(value, str) else f"{{{{ {condition} }}}}"
    step = node.get("step")
    names = {
        **_retry_of(value, node),
        "<follows>": follows(value),
        "<command>": _command(node.get("command"), value),
        VALUE: shown_value(value),
        GUARD: shown_value(guard),
        "<thousandth>": f"{value / 1000:g}" if isinstance(value, int | float) else "30",
        "<list>": shown_value(_first_list(value)),
        "<minutes>": shown_value(value * 60 if isinstance(value, int | float) else 600),
        "<inputs>": _inputs_of(value),
        "<path of this one>": shown_value(path.plain()) if (path := child(node.get("metadata"), "path")) else "…",
        "<target>": _first_target(node),
        "<named>": value if isinstance(value, str) and value.isidentifier() else "…",
        "<this step>": shown_value(step.plain()) if step is not None else "<this step>",
    }
    for token, text in names.items():
        hint = hint.replace(token, text)
    return hint


def _inputs_of(value: Any) -> str:
    """The inputs of another tool, a list with ids or a mapping, as a workload."""
    listed = [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
    named = {str(one["id"]): one.get("defaults", one.get("default")) for one in listed if "id" in one}
    found = named or value
    return shown_value(found) if isinstance(found, dict) and found else "{ url: https://… }"


def _first_target(node: Mapping) -> str:
    """The step that the first arc of a step leads to."""
    arcs = child(node.get("next"), "arcs")
    step = child(child(arcs, 0), "step")
    return str(step.plain()) if step is not None else "…"


def _command(command: Node | None, args: Any) -> str:
    own = command.plain() if command is not None else "ls"
    words = own.split() if isinstance(own, str) else own
    given = args if isinstance(args, list) else str(args).split()
    return shown_value([*words, *given]) if isinstance(words, list) else "[ ls, -l ]"


def follows(before: Any) -> str:
    """The hint for a step that names its predecessors."""
    names = before if isinstance(before, list) else [before]
    shown = [name for name in names if isinstance(name, str) and name.isidentifier()]
    if len(shown) < 2 or len(shown) < len(names):
        step = f", `{shown[0]}`" if shown else ""
        return f"in the step before{step}, write next: {{ arcs: [ {{ step: <this step> }} ] }}"
    both = ", ".join(shown[:-1]) + f" and {shown[-1]}"
    arcs = ", ".join(f"{{ step: {name} }}" for name in shown)
    return (
        f"in each step before, {both}, write next: {{ arcs: [ {{ step: <this step> }} ] }}, and in <this step> "
        "spec: { join: all }; if they begin together, let a first step start them: "
        f"next: {{ spec: {{ mode: inclusive }}, arcs: [ {arcs} ] }}"
    )


_ATTEMPTS: Final = ("attempts", "maximumAttempts", "max_attempts", "maxAttempts", "limit", "count", "max", "times")
_RETRIES: Final = ("retries", "max_retries", "maxRetries", "retry")
"""Keys that count the attempts after the first."""
_DELAYS: Final = ("delay", "initialInterval", "retry_delay_seconds", "retry_delay", "retryDelay", "interval", "wait")
_NEITHER: Final = ("backoff", "backoffCoefficient", "exponential")


def _retry_of(value: Any, node: Mapping) -> dict[str, str]:
    """The numbers of a retry of another tool: in the value of its key, or in the keys beside it."""
    inner = value if isinstance(value, dict) else {}
    around = {**node.plain(), **inner}
    counts = _ATTEMPTS if inner else _ATTEMPTS[:4]
    counted = next((around[key] for key in counts if isinstance(around.get(key), int)), None)
    again = next((around[key] for key in _RETRIES if type(around.get(key)) is int), None)
    found = next((around[key] for key in _DELAYS if isinstance(around.get(key), int | float | str)), 1)
    text = _SECONDS.match(found) if isinstance(found, str) else None
    delay = int(text[1]) * {"s": 1, "m": 60, "h": 3600}[text[2]] if text else found
    attempts = counted if counted is not None else again + 1 if again is not None else 3
    is_fixed = any(key in around for key in _DELAYS) and not any(key in around for key in _NEITHER)
    is_fixed = is_fixed and "initialInterval" not in around  # Temporal doubles it by default
    backoff = "fixed" if is_fixed else "exponential"
    return {"<attempts>": str(attempts), "<delay>": shown_value(delay), "<backoff>": backoff}


def _first_list(value: Any) -> Any:
    """The list in a value, or the template of one."""
    if isinstance(value, dict):
        return next((found for part in value.values() if (found := _first_list(part)) is not None), None)
    return value if isinstance(value, list) or (isinstance(value, str) and "{{" in value) else None


def shown_value(value: Any) -> str:
    """A value in a hint; ``…`` if it is long."""
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
