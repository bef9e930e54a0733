"""Pipelines: what the policy of a task makes of its outcome, and how that moves the pipeline on (LANGUAGE §5).

Pure, like the rest of the engine. Evaluating a policy may raise :class:`~noetl_stream.template.ReferenceNeeded`; the
shell loads the value and calls again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from noetl_stream.engine.evolve.ctx import check_shared, reduce_all
from noetl_stream.errors import PayloadRefused
from noetl_stream.model import codec
from noetl_stream.model.events import EvaluatedGuard, Path, SharedValue, TaskProcessed
from noetl_stream.model.ids import derive
from noetl_stream.model.limits import Limits
from noetl_stream.model.messages import Progress
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.playbook.plan import Backoff, Directive, PolicyPlan, RulePlan, SharedPlan, StepPlan, TaskPlan
from noetl_stream.playbook.vocabulary.names import result_name
from noetl_stream.template import ExpressionError, Scope, Template, holds, render

DEFAULT_RULE: Final = -1
"""The ``rule`` of a decision that no rule of the policy made."""

DEFAULT_DELAY_S: Final = 1.0
MAX_JITTER: Final = 0.1


class _Verdict(msgspec.Struct, frozen=True):
    do: Directive
    rule: int = DEFAULT_RULE
    unmatched: bool = False
    to: str | None = None
    delay_s: float = 0.0
    error: ErrorInfo | None = None
    set_ctx: dict[str, Any] = {}
    set_iter: dict[str, Any] = {}
    set_vars: dict[str, Any] = {}
    set_shared: dict[str, SharedValue] = {}


def current_task(step: StepPlan, progress: Progress) -> TaskPlan:
    """The task that ``progress`` says runs next; the first one at the beginning."""
    return step.tasks[0 if progress.task is None else step.task_index(progress.task)]


def visit_of(progress: Progress) -> int:
    """Which visit of the pipeline to a task this is: the same for all its attempts, another after each jump back.

    It counts the task runs before the visit, which the journal records, so a redelivery finds the same number.
    """
    return progress.runs - (progress.attempt - 1)


def decide_task(
    step: StepPlan, progress: Progress, outcome: Outcome, scope: Scope, *, seed: str, limits: Limits, path: Path = ()
) -> TaskProcessed:
    """What follows from ``outcome`` of the current task.

    Args:
        progress: Where the pipeline stood before this run of the task.
        scope: What the policy's templates read: the state before any rule, with ``outcome``.
        seed: What the jitter of retry delays derives from; the command id with the iteration's path.
        path: The iteration, ``()`` outside loops.

    Raises:
        ReferenceNeeded: a template read a result that is kept by reference.
    """
    task = current_task(step, progress)
    guards: list[EvaluatedGuard] = []
    try:
        verdict = _judge(task, progress.attempt, outcome, scope, seed, guards)
        if verdict.set_shared and not path:
            share(scope.namespaces.get("ctx", {}), verdict.set_shared)
    except ExpressionError as error:
        verdict = _failing("expression_error", f"the policy of task {task.label}: {error}{_aside(outcome)}", task)
    refusal = None if verdict.rule == DEFAULT_RULE else _refusal(task, verdict, limits)
    if refusal is not None:
        verdict = refusal
    to = _next_task(step, task, verdict)
    if to is not None and progress.runs + 1 >= limits.max_task_runs:
        message = f"the pipeline of step {step.name} ran {progress.runs + 1} tasks (limits.max_task_runs)"
        exceeded = ErrorInfo("limit_exceeded", message, task=task.name)
        verdict = replace(verdict, do="fail", error=exceeded, delay_s=0.0)
        to = None
    return TaskProcessed(
        task=task.name,
        attempt=progress.attempt,
        outcome=outcome,
        do=verdict.do,
        path=path,
        to=to,
        delay_s=verdict.delay_s,
        rule=verdict.rule,
        unmatched=verdict.unmatched,
        error=verdict.error,
        set_ctx=verdict.set_ctx,
        set_iter=verdict.set_iter,
        set_vars=verdict.set_vars,
        set_shared=verdict.set_shared,
        origin=task.origin,
        guards=guards,
    )


def fail_task(task: TaskPlan, progress: Progress, outcome: Outcome, error: ErrorInfo, path: Path = ()) -> TaskProcessed:
    """The fact for a task whose policy cannot be evaluated: the task fails, no rule applies (LANGUAGE §2 *A guard*)."""
    return TaskProcessed(task.name, progress.attempt, outcome, "fail", path, error=error, origin=task.origin)


def share(ctx: Mapping[str, Any], contributions: Mapping[str, SharedValue]) -> dict[str, Any]:
    """The shared keys after what a rule outside loops contributes: there it counts at once (LANGUAGE §6).

    Raises:
        ExpressionError: a key holds what the operation cannot go on from.
    """
    return reduce_all({key: ctx[key] for key in contributions if key in ctx}, contributions.items())


def _judge(
    task: TaskPlan, attempt: int, outcome: Outcome, scope: Scope, seed: str, guards: list[EvaluatedGuard]
) -> _Verdict:
    """The verdict of the task's policy; ``guards`` collects what was evaluated on the way, for people."""
    if task.policy is None:
        return _Verdict("continue") if outcome.status == "ok" else _Verdict("fail", error=_failure(task, outcome))
    exhausted: int | None = None
    for index, rule in enumerate(task.policy.rules):
        if rule.guard is None:
            # A page that was lost for good must not look like success: `else` does not follow an exhausted retry.
            if exhausted is not None:
                continue
        else:
            value = holds(rule.guard, scope)
            guards.append(EvaluatedGuard(rule.guard.source, value, index))
            if not value:
                continue
        if rule.do == "retry" and attempt >= (rule.attempts or 1):
            exhausted = index if exhausted is None else exhausted
            continue
        return _apply(task, rule, index, attempt=attempt, outcome=outcome, scope=scope, seed=seed)
    if exhausted is not None:
        return _Verdict("fail", exhausted, error=_exhaustion(task, attempt, outcome))
    return _without_match(task, task.policy, outcome)


def _without_match(task: TaskPlan, policy: PolicyPlan, outcome: Outcome) -> _Verdict:
    if policy.on_unmatched == "continue":
        return _Verdict("continue", unmatched=True)
    return _Verdict("fail", unmatched=True, error=_failure(task, outcome, "no rule of its policy matched"))


def _apply(
    task: TaskPlan, rule: RulePlan, index: int, attempt: int, outcome: Outcome, scope: Scope, seed: str
) -> _Verdict:
    verdict = _Verdict(
        rule.do,
        index,
        to=rule.to if rule.do == "jump" else None,
        set_ctx=_rendered(rule.set_ctx, scope),
        set_iter=_rendered(rule.set_iter, scope),
        set_vars=_rendered(rule.set_vars, scope),
        set_shared=_contributions(rule.set_shared, scope),
    )
    if rule.do == "retry":
        retry_after_s = outcome.error.retry_after_s if outcome.error else None
        delay_s = retry_delay_s(
            rule.backoff,
            _base_delay_s(rule.delay_s, scope),
            attempt,
            max_delay_s=rule.max_delay_s,
            retry_after_s=retry_after_s,
            seed=seed,
        )
        return replace(verdict, delay_s=delay_s)
    if rule.do == "fail":
        return replace(verdict, error=_failure(task, outcome, f"rule {index + 1} of its policy says fail"))
    return verdict


def _rendered(templates: Mapping[str, Template], scope: Scope) -> dict[str, Any]:
    return {key: render(template, scope) for key, template in templates.items()}


def _contributions(plans: Mapping[str, SharedPlan], scope: Scope) -> dict[str, SharedValue]:
    """What the rule shares, checked here: a value of the wrong type fails its task, never the fold."""
    shared = {}
    for key, plan in plans.items():
        value = None if plan.value is None else render(plan.value, scope)
        shared[key] = SharedValue(plan.op, value)
        check_shared(shared[key])
    return shared


def _base_delay_s(template: Template | None, scope: Scope) -> float:
    if template is None:
        return DEFAULT_DELAY_S
    value = render(template, scope)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ExpressionError(f"delay is {value!r}, which is no number of seconds")
    return float(value)


def _next_task(step: StepPlan, task: TaskPlan, verdict: _Verdict) -> str | None:
    if verdict.do == "retry":
        return task.name
    if verdict.do != "continue":
        return verdict.to
    return None if task is step.tasks[-1] else step.tasks[step.task_index(task.name) + 1].name


def _refusal(task: TaskPlan, verdict: _Verdict, limits: Limits) -> _Verdict | None:
    all_patches = (verdict.set_ctx, verdict.set_iter, verdict.set_vars, verdict.set_shared)
    patches = [patch for patch in all_patches if patch]
    if not patches:
        return None
    try:
        size = sum(len(codec.encode(patch)) for patch in patches)
    except PayloadRefused as error:
        return _failing("expression_error", f"the patches of task {task.label}: {error.message}", task)
    if size <= limits.max_ctx_bytes:
        return None
    limit = f"more than limits.max_ctx_bytes ({limits.max_ctx_bytes})"
    return _failing("limit_exceeded", f"the patches of task {task.label} are {size} bytes, {limit}", task)


def _aside(outcome: Outcome) -> str:
    """The task's own error, so that a policy that cannot handle it does not hide it."""
    return f" (the task itself ended with {outcome.error.kind}: {outcome.error.message})" if outcome.error else ""


def _failing(kind: str, message: str, task: TaskPlan) -> _Verdict:
    return _Verdict("fail", error=ErrorInfo(kind, message, task=task.name))


def _failure(task: TaskPlan, outcome: Outcome, reason: str = "") -> ErrorInfo:
    """The outcome's own error where it has one; else the policy's decision is the error."""
    if outcome.error is not None:
        return replace(outcome.error, task=task.name)
    return ErrorInfo("policy_fail", f"task {task.label} went well, but {reason}", task=task.name)


def _exhaustion(task: TaskPlan, attempt: int, outcome: Outcome) -> ErrorInfo:
    last = f"last error {outcome.error.kind}: {outcome.error.message}" if outcome.error else "its last outcome was ok"
    code = outcome.error.code if outcome.error else None
    message = f"task {task.label} used up its {attempt} attempts, {last}"
    return ErrorInfo("retries_exhausted", message, task=task.name, code=code)


def retry_delay_s(
    backoff: Backoff, delay_s: float, attempt: int, *, max_delay_s: float, retry_after_s: float | None, seed: str
) -> float:
    """Seconds between the attempt that just finished and the next (LANGUAGE §5 *retry*).

    The jitter of 0–10 %, which derives from the command and not from chance, comes on top of the backoff.
    ``max_delay_s`` bounds both; ``retry_after_s``, which the other side asked for, is the least whatever the rule says.

    Args:
        attempt: The attempt that just finished, from 1.
        seed: What the jitter derives from: the same seed and attempt always wait alike.
    """
    grown_s = delay_s
    if backoff == "linear":
        grown_s = delay_s * attempt
    elif backoff == "exponential":
        grown_s = delay_s * 2.0 ** min(attempt - 1, 60)
    chosen_s = min(grown_s * (1.0 + jitter(seed, attempt)), max_delay_s)
    return max(chosen_s, retry_after_s or 0.0)


def jitter(seed: str, attempt: int) -> float:
    """A share from 0 up to :data:`MAX_JITTER`, a function of its arguments."""
    drawn = int(derive(seed, "jitter", attempt)[:8], 16)
    return MAX_JITTER * drawn / 16**8


def advance_progress(progress: Progress, fact: TaskProcessed) -> Progress:
    """``progress`` after ``fact``: patches applied, outcome stored, directive followed (LANGUAGE §5).

    ``task`` is the next task, ``None`` once the pipeline has ended; ``runs`` counts all task runs, with retries.
    """
    return Progress(
        task=fact.to,
        attempt=fact.attempt + 1 if fact.do == "retry" else 1,
        delay_s=fact.delay_s,
        runs=progress.runs + 1,
        previous=fact.task if result_name(fact.task) == fact.task else progress.previous,
        iter={**progress.iter, **fact.set_iter} if fact.set_iter else progress.iter,
        vars={**progress.vars, **fact.set_vars} if fact.set_vars else progress.vars,
        ctx={**progress.ctx, **fact.set_ctx} if fact.set_ctx else progress.ctx,
        results=results_after(progress, fact.task, fact.outcome),
    )


def results_after(progress: Progress, task: str, outcome: Outcome) -> dict[str, Outcome]:
    """The results by name after a run of ``task``.

    A generated task stores no result of its own: where a branch or round of a construct ends, the construct takes the
    result of the task that ran before (LANGUAGE §12 *Sugar*).
    """
    name = result_name(task)
    kept = outcome if name == task else progress.results.get(progress.previous or "")
    return progress.results if name is None or kept is None else {**progress.results, name: kept}
