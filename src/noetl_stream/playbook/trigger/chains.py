"""Triggers on ends of executions that start one another in a circle (LANGUAGE §15 *Trigger*)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from noetl_stream.model.aggregates import TriggerTerms
from noetl_stream.playbook.check.calls import PlaybookCall
from noetl_stream.playbook.codes import Code
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.playbook.trigger.matching import concerns

CIRCLE: Final[Code] = "trigger_circle"
"""The code of the warning about a circle of triggers."""


def circle_of(path: str, triggers: Mapping[str, TriggerTerms]) -> list[str]:
    """The shortest circle of triggers, by path, from ``path`` on: each waits for the end of what the one before starts,
    and the first for what the last starts. Empty if there is none. A trigger never sees the end of an execution it has
    started itself.

    Labels, status and ``when`` are not looked at: they may break the circle.
    """
    ways = [[path]]
    seen = {path}
    while ways:
        way = ways.pop(0)
        for found in _triggers_on_end(triggers[way[-1]].playbook, triggers):
            if found == path and len(way) > 1:
                return way
            if found not in seen:
                seen.add(found)
                ways.append([*way, found])
    return []


def warning_of(circle: Sequence[str], call: PlaybookCall, file: str) -> Diagnostic:
    """The warning about a circle, at the playbook that the first trigger starts."""
    return Diagnostic(
        severity="warning",
        code=CIRCLE,
        message=f"the end of `{call.path}` may start it again through {', '.join(circle[1:])}, without end",
        hint="let `labels`, `status` or `when` break the circle; ten triggers in a row are the most",
        file=file,
        line=call.at.mark.line,
        column=call.at.mark.column,
        pointer=call.at.pointer,
    )


def _triggers_on_end(playbook: str, triggers: Mapping[str, TriggerTerms]) -> list[str]:
    """The triggers that may wait for the end of an execution of this playbook."""
    waiting = {path: terms.execution for path, terms in triggers.items() if terms.execution is not None}
    anyhow = {path: replace(wanted, labels={}, status=()) for path, wanted in waiting.items()}
    return [path for path, wanted in anyhow.items() if concerns(wanted, playbook, {}, "")]
