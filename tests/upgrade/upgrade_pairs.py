"""Pairs of a playbook before and after one rule: the files of ``pairs``, named after the rule.

A file holds ``# before`` and ``# after``. What has no ``workflow`` is a list of steps; what does not begin with
``# whole`` is put under a head.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any

from ruamel.yaml import YAML

from noetl_stream.model.limits import Limits
from noetl_stream.playbook.upgrade.rules import RULES
from noetl_stream.playbook.upgrade.upgrade import Upgraded, upgrade
from noetl_testkit.scenario.scenario import installed_kinds

FOLDER = Path(__file__).with_name("pairs")
LEGACY = sorted(Path(__file__).with_name("legacy").glob("*.yaml"))
"""The examples of older dialects."""
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: a, path: tests/a }\n"
WHOLE = "# whole\n"


@dataclass(frozen=True, slots=True)
class Pair:
    """A case of a rule, as whole playbooks."""

    name: str
    rule: str
    before: str
    after: str


@cache
def pairs() -> tuple[Pair, ...]:
    """All pairs, by name."""
    rules = sorted((rule.__name__ for rule in RULES), key=len, reverse=True)
    return tuple(_pair(path, rules) for path in sorted(FOLDER.glob("*.yaml")))


def upgraded(text: str) -> Upgraded:
    """The playbook upgraded with the kinds of this environment."""
    return upgrade(text, installed_kinds(), file="playbook.yaml", limits=Limits())


def whole(part: str) -> str:
    """A part of a pair as a playbook."""
    if part.startswith(WHOLE):
        return part.removeprefix(WHOLE)
    if any(line.startswith(("workflow:", "steps:")) for line in part.splitlines()):
        return HEAD + part
    return f"{HEAD}workflow:\n{indent(part, '  ')}"


def _pair(path: Path, rules: list[str]) -> Pair:
    before, _, after = path.read_text(encoding="utf-8").removeprefix("# before\n").partition("\n# after\n")
    rule = next(rule for rule in rules if path.stem.startswith(rule))
    return Pair(path.stem, rule, whole(before + "\n" if not before.endswith("\n") else before), whole(after))


def dumped(tree: Any) -> str:
    """The text of plain values."""
    text = io.StringIO()
    YAML(typ="safe", pure=True).dump(tree, text)
    return text.getvalue()
