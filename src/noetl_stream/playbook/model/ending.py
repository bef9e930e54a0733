"""The end of an execution as read: compensations, and the step of ``finally`` (LANGUAGE §9 *Undoing*)."""

from __future__ import annotations

from typing import Annotated, Final, get_args

import msgspec

from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.layering import read_seconds
from noetl_stream.playbook.model.sections import (
    SECONDS,
    Part,
    Required,
    Section,
    described,
    entries,
    is_empty,
    is_null,
    or_null,
    ref,
    report_wrong_type,
)
from noetl_stream.playbook.plan import CompensationPlan, UndoneEnd
from noetl_stream.playbook.suggestions import did_you_mean, list_names
from noetl_stream.playbook.yaml.nodes import Node, Scalar

ENDS: Final[tuple[UndoneEnd, ...]] = get_args(UndoneEnd)
DEFAULT_COMPENSATION: Final = CompensationPlan(frozenset(ENDS), 3600.0)
"""The default for a playbook with compensations."""

FINALLY_DEADLINE_S: Final = 600.0
"""The default deadline of the step of ``finally``."""


class StepCompensation(Section):
    title = "a step's `compensation`"
    example = "write compensation: { tool: { kind: …, … } }"

    tool: Annotated[Part, Required("compensation: { tool: { kind: …, … } }")] = described(
        "The task, or the list of tasks, that undoes what a run of the step has done.",
        {"anyOf": [ref("entry"), ref("tasks")]},
    )


class ExecutorCompensation(Section):
    title = "`compensation`"
    example = "write compensation: { on: [failed, cancelled, timeout], timeout_s: 3600 }"

    on: Part = described(
        "The ends at which steps are undone. Default: all three.",
        or_null({"type": "array", "items": {"enum": list(ENDS)}}),
    )
    timeout_s: Part = described("Seconds for undoing all of them. Default: 3600.", or_null(SECONDS))


class EndingDraft(msgspec.Struct, frozen=True):
    """The end of a playbook's executions as read. ``compensation`` and ``finally_step`` are ``None`` by default."""

    compensation: CompensationPlan | None = None
    compensation_at: Node | None = None
    finally_step: str | None = None
    finally_at: Node | None = None


def read_executor_compensation(node: Node | None, problems: Problems) -> CompensationPlan | None:
    """Reads ``executor.spec.policy.compensation``, if present."""
    if is_empty(node):
        return None
    section = ExecutorCompensation.from_node(node, problems)
    ends: list[UndoneEnd] = list(ENDS) if is_null(section.on) else []
    for item in [] if is_null(section.on) else entries(section.on, "`on`", problems, "write on: [failed, cancelled]"):
        word = item.plain()
        if word in ENDS:
            ends.append(word)
        else:
            hint = (did_you_mean(word, ENDS) if isinstance(word, str) else None) or f"ends: {list_names(ENDS)}"
            problems.error("invalid_value", f"`on` has `{word}`, which is not an end", item, hint)
    timeout_s = read_seconds(section.timeout_s, "`timeout_s`", problems) or DEFAULT_COMPENSATION.timeout_s
    return CompensationPlan(frozenset(ends), timeout_s)


def read_finally(node: Node | None, problems: Problems) -> str | None:
    """Reads ``executor.spec.policy.finally``, if present: the name of a step."""
    if node is None or is_empty(node):
        return None
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return node.value
    report_wrong_type(node, "`finally`", "the name of a step", problems, "write finally: <step>")
    return None
