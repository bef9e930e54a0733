"""Expressions, texts and names of other languages and older dialects as templates, for hints (LANGUAGE §2)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_QUOTED: Final = re.compile(r"('[^']*'|\"[^\"]*\")")
_OPERATORS: Final = {
    r"!==": "!=",
    r"===": "==",
    r"\s*&&\s*": " and ",
    r"\s*\|\|\s*": " or ",
    r"!(?!=)\s*": "not ",
    r"\?\.(?=\[)": "",
    r"\?\.": ".",
    r"\bnull\b": "none",
    r"\.length\b(?!\s*\()": " | length",
}
_CALLS: Final = {
    **{name: name for name in ("int", "float", "round", "abs", "sum", "min", "max", "list", "lower", "upper")},
    "len": "length",
    "str": "string",
    "sorted": "sort",
    "toJSON": "tojson",
}
"""Functions of other languages, by the equivalent filters."""
_READ: Final = r"(?:[\w.]|\['[^'\]]*'\]|\[\"[^\"\]]*\"\]|\[\d+\])++"
_CALL: Final = re.compile(rf"(?<![\w.])({'|'.join(_CALLS)})\(\s*({_READ})\s*\)")
_NODE: Final = re.compile(r"\$node\[[\"'](\w+)[\"']\]\.json\b")
_ARROW: Final = re.compile(r"\.(map|filter)\(\s*+(\w++)\s*+=>\s*+\2\.(\w++)\s*+\)")
_COALESCED: Final = re.compile(r"\s*\?\?\s*")
_CURLY: Final = {0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"'}
_ROOT: Final = re.compile(r"\$\.([A-Za-z_]\w*)")
_OF_N8N: Final = re.compile(r"\$json\b(?=[.\[])")
_TERNARY: Final = re.compile(r"([^?:'\"]+)\?([^?:]+):([^?:]+)\Z")
_COMPREHENSION: Final = re.compile(
    r"\[\s*+(\w++)(?:\.(\w++))?\s++for\s++\1\s++in\s++((?:[\w.]|\['[^'\]]*'\])++)\s*+"
    r"(?:if\s++\1\.(\w++)\s*+(==|!=|>=|<=|>|<)\s*+([^\]\s]++)\s*+)?\]"
)
_TESTS: Final = {"==": "eq", "!=": "ne", ">": "gt", ">=": "ge", "<": "lt", "<=": "le"}
_WAY: Final = r"([^{%]*+(?:\{\{[^{}]*+\}\}[^{%]*+)*+)"
_IF: Final = re.compile(rf"\{{%-?\s*+if\s++([^%]++)%\}}{_WAY}\{{%-?\s*+else\s*+-?%\}}{_WAY}\{{%-?\s*+endif\s*+-?%\}}")
_PARTS: Final = re.compile(r"\{\{([^{}]*)\}\}")


def as_expression(text: str, names: Mapping[str, tuple[str, ...]], step: str) -> str:
    """An expression of JavaScript, Python or JSONPath as a template, as far as it is known.

    Args:
        names: The bare names that are visible, with their paths.
        step: The step whose template it is.
    """
    if (found := _COMPREHENSION.search(text)) is not None:
        _, key, rows, tested, operator, value = found.groups()
        chosen = f" | selectattr('{tested}', '{_TESTS[operator]}', {value})" if tested else ""
        mapped = f" | map(attribute='{key}')" if key else ""
        text = f"{text[: found.start()]}{rows}{chosen}{mapped} | list{text[found.end() :]}"
    text = text if "${" in text else text.replace("`", "'")
    text = _COALESCED.sub(" or ", _NODE.sub(r"\1.data", text.translate(_CURLY)))
    text = _ARROW.sub(_attribute_of, text)
    text = _CALL.sub(lambda found: f"{found[2]} | {_CALLS[found[1]]}", text)
    others = [name for name, path in names.items() if path == ("steps", name) and name != step]
    parts = enumerate(_QUOTED.split(text))
    whole = "".join(part if index % 2 else _outside_quotes(part, names, others) for index, part in parts)
    if (ternary := _TERNARY.match(whole)) is not None:
        condition, one, other = (part.strip() for part in ternary.groups())
        whole = f"{one} if {condition} else {other}"
    return whole.strip()


def _attribute_of(found: re.Match[str]) -> str:
    """The filter that is equivalent to a function of one attribute."""
    return f" | map(attribute='{found[3]}') | list" if found[1] == "map" else f" | selectattr('{found[3]}') | list"


def _outside_quotes(part: str, names: Mapping[str, tuple[str, ...]], others: list[str]) -> str:
    for pattern, word in _OPERATORS.items():
        part = re.sub(pattern, word, part)
    part = _ROOT.sub(lambda found: found[1] if found[1] in names else f"workload.{found[1]}", part)
    return _OF_N8N.sub(f"{others[0]}.data", part) if len(others) == 1 else part


def as_choice(text: str) -> str | None:
    """A text with ``{% if %}`` and ``{% else %}`` as one expression; ``None`` for any other statement."""
    found = _IF.fullmatch(text.strip())
    if found is None or any("'" in part for part in _PARTS.split(found[2] + found[3])[::2]):
        return None
    one, other = (_joined(part) for part in (found[2], found[3]))
    return f"{{{{ {one} if {found[1].rstrip('- ')} else {other} }}}}"


def _joined(text: str) -> str:
    pieces = [
        part.strip() if index % 2 else f"'{part}'" for index, part in enumerate(_PARTS.split(text)) if index % 2 or part
    ]
    return " ~ ".join(pieces) or "''"


def expression_around(text: str, offset: int) -> tuple[int, int] | None:
    """The offsets of the expression, without its braces, around a place of a text."""
    start, end = text.rfind("{{", 0, offset + 1), text.find("}}", offset)
    return (start + 2, end) if start >= 0 and end >= 0 and "}}" not in text[start:offset] else None


_ENVIRONMENT: Final = (
    "no environment is visible: pass it in as `workload.<name>`, or a secret as `keychain.<entry>`, declared as "
    "keychain: [ { name: <entry>, kind: env, variable: <entry> } ]"
)
DECLARE_SECRET: Final = (
    "write `keychain.<entry>`, declare it as keychain: [ { name: <entry>, kind: credential } ], and store it once: "
    "noetl-stream credential set <entry>"
)

BARE_NAMES: Final = {
    "outputs": "write `steps.<name>`",
    "inputs": "write `workload.<name>`",
    "params": "write `workload.<name>`",
    "parameters": "write `workload.<name>`",
    "secrets": DECLARE_SECRET,
    "secret": DECLARE_SECRET,
    "vault": DECLARE_SECRET,
    **dict.fromkeys(("env", "environ"), _ENVIRONMENT),
    **dict.fromkeys(("github", "runner", "dag_run", "flow", "workflow"), "write `workload.<name>`"),
    **dict.fromkeys(("needs", "tasks", "task", "ti", "nodes"), "write `steps.<name>` for the result of a step"),
    **dict.fromkeys(
        ("ds", "ds_nodash", "ts", "execution_date", "logical_date", "schedule", "due", "trigger"),
        "write `(execution.due or execution.started) | date_format('%Y-%m-%d')`, the day of its schedule, "
        "or else the day of the start; the workload of a schedule can read `schedule`",
    ),
    **dict.fromkeys(
        (
            "data_interval_start",
            "data_interval_end",
            "prev_ds",
            "next_ds",
            "prev_execution_date",
            "prev_data_interval_end",
        ),
        "in the workload of the schedule, write `schedule.interval.start` or `schedule.interval.end`, and here read "
        "that key of `workload`; the time of the occurrence itself is `execution.due`",
    ),
    **dict.fromkeys(("run_id", "workflow_id", "job_id"), "write `execution_id`"),
    **dict.fromkeys(
        ("macros", "dag", "task_instance", "var", "conn", "omit", "hostvars", "ansible_facts"),
        "there is nothing of that name here: pass a value in as `workload.<name>`; without a value, `default(none)`",
    ),
    "matrix": "write `iter.<iterator>`, by the iterator of the step's `loop`",
    "self": "write `_task`, or the name of the task",
    "response": "write `outcome.result` in a task's policy, `event.result` in an arc",
    "result": "write `outcome.result` in a task's policy, `event.result` in an arc, else the name of the task or step",
    "error": "write `outcome.error` in a task's policy, `event.error` in an arc",
    "context": "write `ctx`",
    "item": "write `iter.<iterator>`, by the iterator of the step's `loop`",
    "loop": "write `iter.index` or `iter.count`; in an arc, `event.loop` sums up the loop",
}
"""Template names of older dialects, with their replacements."""
