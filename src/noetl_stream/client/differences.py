"""The differences between two playbooks."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.yaml.nodes import Mapping
from noetl_stream.playbook.yaml.source import read_source

NO_NEWLINE = "\n\\ No newline at end of file\n"


def unified_diff(before: str, after: str, before_name: str, after_name: str) -> Iterator[str]:
    """The lines of a unified diff, each with its line end; empty if the texts are equal."""
    return difflib.unified_diff(_lines(before), _lines(after), before_name, after_name)


def changed_steps(before: str, after: str) -> dict[str, list[str]]:
    """The names of the steps ``added``, ``removed`` and ``changed``. Layout and comments do not count."""
    old, new = _steps(before), _steps(after)
    return {
        "added": [name for name in new if name not in old],
        "removed": [name for name in old if name not in new],
        "changed": [name for name in new if name in old and new[name] != old[name]],
    }


def _lines(text: str) -> list[str]:
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest + NO_NEWLINE] if rest else [])


def _steps(text: str) -> dict[str, Any]:
    """The steps by name as plain values; empty for a text that is not a playbook."""
    source = read_source(text, Problems(""))
    workflow = source.root.get("workflow") if source and isinstance(source.root, Mapping) else None
    steps = workflow.plain() if workflow else None
    named = [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    return {str(step["step"]): step for step in named if "step" in step}
