"""Names that a playbook may define, namespaces of its templates, and generated names (LANGUAGE §1, §2, §12 *Sugar*).

Sugar compiles to tasks with generated labels: the construct's name, ``__`` and a part. A construct ``pick`` begins with
``pick__choose``, ``pick__while`` or ``pick__until`` and ends with ``pick__end`` (``choose``: one per branch,
``pick__end_0`` …). ``__`` is reserved, so authors' names cannot collide with these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from noetl_stream.template.runtime.scope import NAMESPACES

if TYPE_CHECKING:  # the engine, which names results, reports no problems
    from noetl_stream.playbook.diagnostics import Location, Problems


_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
MAX_NAME_CHARS: Final = 128
ROWS: Final = "rows"
"""The name of a task that makes the rows of a loop, if it has none of its own."""

_GENERATED: Final = re.compile(r"(?P<construct>.+)__(?P<part>choose|while|until|end(?:_\d+)?)\Z")


def check_name(name: str, what: str, at: Location, problems: Problems) -> bool:
    """Whether a step, task or iterator may be called ``name``; reports the problem otherwise.

    Args:
        what: The named thing, as in ``a step's name``.
    """
    if not check_identifier(name, what, at, problems):
        return False
    if name in NAMESPACES:
        problems.error("reserved_name", f"{what} cannot be `{name}`: it is a template namespace", at)
        return False
    if "__" in name:
        hint = "use a single `_`: `__` is reserved for generated names"
        problems.error("reserved_name", f"{what} cannot contain `__`, as `{name}` does", at, hint)
        return False
    return True


def check_identifier(name: str, what: str, at: Location, problems: Problems) -> bool:
    """Whether ``name`` can follow a dot in a template; reports the problem otherwise."""
    if not _IDENTIFIER.match(name):
        suggestion = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
        fits = suggestion and not suggestion[0].isdigit()
        hint = f"write `{suggestion}`" if fits else "start with a letter or `_`, then use letters, digits and `_`"
        problems.error("invalid_name", f"{what} must match [A-Za-z_][A-Za-z0-9_]*, not `{name}`", at, hint)
        return False
    if len(name) > MAX_NAME_CHARS:
        problems.error("invalid_name", f"{what} has {len(name)} characters; the limit is {MAX_NAME_CHARS}", at)
        return False
    return True


def report_duplicate(named: str, first: int, at: Location, rule: str, problems: Problems) -> None:
    """Reports a name that is taken: ``step `a` ``, first on line ``first``."""
    problems.error("duplicate_name", f"duplicate {named}, first on line {first}", at, f"rename one: {rule}")


def begin_label(construct: str, word: str) -> str:
    """The label of the first task of a construct; ``word`` is ``choose``, ``while`` or ``until``."""
    return f"{construct}__{word}"


def end_label(construct: str, branch: int | None = None) -> str:
    """The label of the task that ends a construct's body, or one of its branches."""
    return f"{construct}__end" if branch is None else f"{construct}__end_{branch}"


def is_generated(label: str) -> bool:
    return _GENERATED.match(label) is not None


def name_in_file(label: str) -> str | None:
    """The name in the file of a task, or of the construct a label begins; ``None`` for a label that ends one."""
    found = _GENERATED.match(label)
    if found is None:
        return label
    return None if found["part"].startswith("end") else found["construct"]


def result_name(label: str) -> str | None:
    """The name under which a task's result is kept: its own, or that of the construct it ends. ``None`` for a label
    that begins a construct."""
    found = _GENERATED.match(label) if "__" in label else None
    if found is None:
        return label
    return found["construct"] if found["part"].startswith("end") else None


def first_labels(labels: Iterable[str]) -> dict[str, str]:
    """The target of a jump by name: the first label of a construct, else the task itself."""
    return {name: label for label in labels if (name := name_in_file(label)) is not None}


NAMESPACE_WORDS: Final[Mapping[str, str]] = {
    "workload": "What the execution was started with, over the defaults of the playbook.",
    "ctx": "The state of the execution, which `set_ctx` and `set_shared` change.",
    "vars": "The state of this run of the step, which `set_vars` changes.",
    "iter": "The state of this iteration: the loop's item, `index`, `count`, and what `set_iter` sets.",
    "args": "What the arc into this step passes.",
    "keychain": "Secrets, by entry; in tool inputs only.",
    "execution_id": "The id of the execution.",
    "execution": "When and by what the execution was started: `due`, `started`, `origin`.",
    "steps": "Results of steps.",
    "results": "Results of the tasks of this pipeline.",
    "_prev": "The result of the task before.",
    "_task": "The name of this task.",
    "_attempt": "Which attempt of the task this is, from 1.",
    "outcome": "How the task ended; in its policy only.",
    "event": "How the step ended; in its arcs only.",
    "token": "The token that asks to enter; in admission rules only.",
}
