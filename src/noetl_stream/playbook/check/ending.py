"""Checks of the end of an execution, by compensations and the step of ``finally`` (LANGUAGE §9), and of a step that
fails: arcs are taken then only if their guards ask for it (LANGUAGE §7 *Candidates*).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from noetl_stream.playbook.check.step_graph import arcs_of, reach
from noetl_stream.playbook.diagnostics import BareLocation, Position, Problems
from noetl_stream.playbook.model.document import ParsedPlaybook
from noetl_stream.playbook.model.policy import always_holds
from noetl_stream.playbook.model.step import ArcDraft, StepDraft
from noetl_stream.playbook.model.task import TaskDraft
from noetl_stream.playbook.plan import Plan, compensation_of
from noetl_stream.playbook.suggestions import did_you_mean, list_names
from noetl_stream.playbook.yaml.nodes import texts_of

KEY_READ_AS: Final[Mapping[str, str]] = {
    "python": "idempotency_key",
    "shell": "NOETL_IDEMPOTENCY_KEY",
    "postgres": "noetl.idempotency_key",
    "duckdb": "idempotency_key",
}
"""The way in which tasks of these kinds read their idempotency key; other kinds send it themselves or need none."""

_MINDS_ABSENCE: Final = re.compile(r"\bdefault\b|\bis (?:not )?(?:defined|none)\b")


def check_ending(document: ParsedPlaybook, steps: list[StepDraft], problems: Problems) -> None:
    """Reports settings of compensations and ``finally`` that have no effect (LANGUAGE §9 *Undoing*)."""
    ending = document.ending
    if ending.compensation is not None and not any(step.compensation or step.calls_playbooks for step in steps):
        message = "`compensation` has no effect: no step has one, or calls a playbook"
        hint = "write what undoes a step into its spec: { policy: { compensation: { tool: … } } }"
        problems.warn("no_effect", message, ending.compensation_at or BareLocation(Position(1, 1)), hint)
    at = ending.finally_at
    if ending.finally_step is None or at is None:
        return
    names = [step.name for step in steps if step.name]
    last = next((step for step in steps if step.name == ending.finally_step), None)
    if last is None:
        hint = did_you_mean(ending.finally_step, names) or f"steps: {list_names(names)}"
        problems.error("unknown_step", f"unknown step `{ending.finally_step}`", at, hint)
        return
    if document.entry_among(names) == last.name:
        message = f"`{last.name}` is the entry step: `finally` would run it twice"
        problems.error("conflicting_keys", message, at, "name a step that nothing else leads to")
    for arc in (arc for step in steps for arc in step.arcs if arc.step == last.name):
        message = f"`{last.name}` is the step of `finally`: it runs at every end, and nothing leads to it"
        problems.error("conflicting_keys", message, arc.target, "remove the arc, or make it lead to another step")
    unfit = {"`next`": last.arcs, "`join`": last.join, "`admit`": last.admit, "`compensation`": last.compensation}
    for key in (key for key, value in unfit.items() if value):
        message = f"{key} has no effect on the step of `finally`, which runs when nothing else does"
        problems.error("no_effect", message, last.at, "remove it")
    if not last.tasks:
        problems.error("missing_key", "the step of `finally` needs `tool`", last.at, "tool: { kind: noop }")


def warn_of_compensations(document: ParsedPlaybook, plan: Plan, steps: list[StepDraft], problems: Problems) -> None:
    """Warns of compensations that read possibly missing values, or whose effect may happen twice."""
    entry = document.entry_among([step.name for step in steps])
    for step in steps:
        if step.compensation is None or problems.has_errors or entry is None:
            continue
        arcs = arcs_of(steps)
        for other in sorted((plan.steps[compensation_of(step.name)].reads.steps or frozenset()) - {step.name}):
            around = {name: [target for target in targets if target != other] for name, targets in arcs.items()}
            may_lack = entry != other and step.name in reach([entry], around)
            if may_lack and not minds_absence_of(step.compensation, other):
                message = f"the compensation of `{step.name}` reads the result of `{other}`, which may not be there"
                hint = "a run of the step may end before it: write `default(…)`, or hand the value over in `args`"
                problems.warn("absent_result", message, step.compensation.at, hint)
        for task in step.compensation.tasks:
            _warn_of_repetition(task, problems)


def minds_absence(text: str) -> bool:
    """Whether a template handles a missing value."""
    return _MINDS_ABSENCE.search(text) is not None


def minds_absence_of(pipeline: StepDraft, other: str) -> bool:
    """Whether every text that names the other step handles its missing result."""
    texts = [text for task in pipeline.tasks for _, text in texts_of(task.inputs) if re.search(rf"\b{other}\b", text)]
    return bool(texts) and all(map(minds_absence, texts))


def _warn_of_repetition(task: TaskDraft, problems: Problems) -> None:
    """Warns of a task that does not read its idempotency key: after a crash it may run again. A function gets the key
    with its context, and is not read here.
    """
    kind = task.kind.kind if task.kind is not None else ""
    has_function = "function" in {*task.inputs.values, *task.verbatim}
    key = None if has_function else KEY_READ_AS.get(kind)
    written = [*texts_of(task.inputs), *(found for node in task.verbatim.values() for found in texts_of(node))]
    if key is not None and not any("idempotency" in text.lower() for _, text in written):
        message = f"`{task.name}` undoes something, and may run twice after a crash: it does not read `{key}`"
        hint = "let it do nothing the second time, and name the key, if only in a comment that says why not"
        problems.warn("not_idempotent", message, task.at, hint)


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
    forks = bool(joins) or any(step.forks for step in steps)
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
