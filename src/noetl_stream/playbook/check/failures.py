"""Warnings of unhandled failures: arcs are taken after one only if their guards ask for it (LANGUAGE §7
*Candidates*).
"""

from __future__ import annotations

import re
from typing import Final

from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.policy import always_holds
from noetl_stream.playbook.model.step import ArcDraft, StepDraft
from noetl_stream.playbook.model.task import TaskDraft
from noetl_stream.playbook.plan import Plan
from noetl_stream.playbook.yaml.nodes import texts_of

_READS_ERROR: Final = re.compile(r"\bevent\.error\b")
_EITHER: Final = "when: \"{{ event.name in ['step.done', 'step.failed'] }}\" takes it after either"
_AFTER: Final = "when: \"{{ event.status == 'error' }}\" takes an arc after a failure"


def warn_of_failures(plan: Plan, steps: list[StepDraft], problems: Problems) -> None:
    """Warns of arcs that read the error of a failure after which they are not taken, and of steps whose failure ends
    their branch while nothing else continues.
    """
    if problems.has_errors:
        return
    joins = {step.name for step in steps if step.join is not None}
    forks = bool(joins) or any(step.router.routing == "inclusive" and len(step.arcs) > 1 for step in steps)
    for step in steps:
        arcs = list(zip(step.arcs, plan.steps[step.name].arcs, strict=True))
        for arc in (arc for arc, compiled in arcs if not compiled.handles_failure and _reads_error(arc)):
            message = "`event.error` is never there: this arc is not taken after a failure"
            problems.warn("failure_not_routed", message, arc.at, f"{_AFTER}; {_EITHER}")
        if any(compiled.handles_failure for _, compiled in arcs) or not _ends_alone(plan, step, forks):
            continue
        for arc in (arc for arc, _ in arcs if always_holds(arc.when) and arc.step not in joins):
            message = (
                f"after a failure of `{step.name}` this arc is not taken: the branch ends, and the run may complete"
            )
            problems.warn("failure_not_routed", message, arc.at, f"{_EITHER}; {_AFTER}")


def _reads_error(arc: ArcDraft) -> bool:
    return arc.args is not None and any(_READS_ERROR.search(text) for _, text in texts_of(arc.args))


def _ends_alone(plan: Plan, step: StepDraft, forks: bool) -> bool:
    """Whether a failure of the step ends only its branch, although its author may have meant it to continue."""
    if step.loop is not None or plan.steps[step.name].failure_mode != "best_effort":
        return False
    return not (forks and step.failure.mode is None) and any(_may_fail(task) for task in step.tasks)


def _may_fail(task: TaskDraft) -> bool:
    if task.kind is None or task.kind.kind == "noop":
        return False
    policy = task.policy
    return policy is None or policy.on_unmatched == "fail" or any(rule.do in ("fail", "retry") for rule in policy.rules)
