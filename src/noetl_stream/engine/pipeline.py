"""Pipelines: the policy's decision about the outcome of a task, and the pipeline's next task (LANGUAGE §5).

Pure, like the rest of the engine. Evaluating a policy may raise :class:`~noetl_stream.template.ReferenceNeeded`; the
shell loads the value and calls again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from noetl_stream import template  # its functions need Jinja, which loads when a policy is evaluated
from noetl_stream.engine.evolve.ctx import check_shared, reduce_all
from noetl_stream.errors import PayloadRefused
from noetl_stream.model.events import EvaluatedGuard, Path, SharedValue, TaskProcessed
from noetl_stream.model.ids import derive
from noetl_stream.model.json import codec
from noetl_stream.model.labels import label_fault
from noetl_stream.model.limits import Limits
from noetl_stream.model.messages import Progress
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.playbook.vocabulary.names import result_name
from noetl_stream.template import ExpressionError, Scope

if TYPE_CHECKING:
    from noetl_stream.playbook.plan import Backoff, RulePlan, SharedPlan, StepPlan, TaskPlan

DEFAULT_RULE: Final = -1
"""The ``rule`` of a decision that no rule of the policy made."""

DEFAULT_DELAY_S: Final = 1.0
MAX_JITTER: Final = 0.1


def current_task(step: StepPlan, progress: Progress) -> TaskPlan:
    return step.tasks[0 if progress.task is None else step.task_index(progress.task)]


def visit_of(progress: Progress) -> int:
    """The number of a pipeline's visit to a task: the same for all attempts, a new one after each jump back.

    It counts the task runs before the visit, which the journal records, so a redelivery finds the same number.
    """
    return progress.runs - (progress.attempt - 1)


def decide_task(
    step: StepPlan, progress: Progress, outcome: Outcome, scope: Scope, *, seed: str, limits: Limits, path: Path = ()
) -> TaskProcessed:
    """Decides what follows from ``outcome`` of the current task.

    Args:
        progress: The progress of the pipeline before this run of the task.
        scope: The scope of the policy's templates: the state before any rule, with ``outcome``.
        seed: The seed of the jitter of retry delays: the command id with the iteration's path.
        path: The iteration, ``()`` outside loops.

    Raises:
        ReferenceNeeded: a template read a result that is kept by reference.
    """
    task = current_task(step, progress)
    ran = TaskProcessed(task.name, progress.attempt, outcome, "continue", path, origin=task.origin, guards=[])
    try:
        fact = _judge(task, ran, scope, seed)
        if fact.set_shared and not path:
            share(scope.namespaces.get("ctx", {}), fact.set_shared)
    except ExpressionError as error:
        fact = _fail(ran, "expression_error", f"the policy of task {task.label}: {error}{_own_error_text(outcome)}")
    if fact.rule != DEFAULT_RULE:
        fact = _refuse_patches(task, ran, fact, limits) or fact
    to = _next_task(step, task, fact)
    if to is not None and progress.runs + 1 >= limits.max_task_runs:
        message = f"the pipeline of step {step.name} ran {progress.runs + 1} tasks (limits.max_task_runs)"
        exceeded = ErrorInfo("limit_exceeded", message, task=task.name)
        return replace(fact, do="fail", error=exceeded, delay_s=0.0, to=None)
    return fact if to == fact.to else replace(fact, to=to)


def fail_task(task: TaskPlan, progress: Progress, outcome: Outcome, error: ErrorInfo, path: Path = ()) -> TaskProcessed:
    """The fact of a task whose policy cannot be evaluated: it fails, and no rule applies (LANGUAGE §2 *A guard*)."""
    return TaskProcessed(task.name, progress.attempt, outcome, "fail", path, error=error, origin=task.origin)


def share(ctx: Mapping[str, Any], contributions: Mapping[str, SharedValue]) -> dict[str, Any]:
    """The shared keys after the contributions of a rule outside loops, where they count at once (LANGUAGE §6).

    Raises:
        ExpressionError: a key holds a value the operation cannot be applied to.
    """
    return reduce_all({key: ctx[key] for key in contributions if key in ctx}, contributions.items())


def _judge(task: TaskPlan, ran: TaskProcessed, scope: Scope, seed: str) -> TaskProcessed:
    """Applies the task's policy to ``ran``, whose ``guards`` record the evaluated guards for people."""
    outcome, attempt = ran.outcome, ran.attempt
    if task.policy is None:
        return ran if outcome.status == "ok" else replace(ran, do="fail", error=_failure(task, outcome))
    exhausted: int | None = None
    for index, rule in enumerate(task.policy.rules):
        if rule.guard is None:
            # A page that was lost for good must not look like a success: `else` does not follow an exhausted retry.
            if exhausted is not None:
                continue
        else:
            value = template.holds(rule.guard, scope)
            ran.guards.append(EvaluatedGuard(rule.guard.source, value, index))
            if not value:
                continue
        if rule.do == "retry" and attempt >= _most_attempts(rule, scope):
            exhausted = index if exhausted is None else exhausted
            continue
        return _apply(task, rule, index, ran, scope, seed)
    if exhausted is not None:
        return replace(ran, do="fail", rule=exhausted, error=_exhaustion(task, attempt, outcome))
    if task.policy.on_unmatched == "continue":
        return replace(ran, unmatched=True)
    return replace(ran, do="fail", unmatched=True, error=_failure(task, outcome, "no rule of its policy matched"))


def _apply(task: TaskPlan, rule: RulePlan, index: int, ran: TaskProcessed, scope: Scope, seed: str) -> TaskProcessed:
    applied = replace(
        ran,
        do=rule.do,
        rule=index,
        to=rule.to if rule.do == "jump" else None,
        set_ctx=template.render_each(rule.set_ctx, scope),
        set_iter=template.render_each(rule.set_iter, scope),
        set_vars=template.render_each(rule.set_vars, scope),
        set_shared=_contributions(rule.set_shared, scope),
        set_label=_labels(rule.set_label, scope),
    )
    if rule.do == "retry":
        return replace(applied, delay_s=_delay_s(rule, ran, scope, seed))
    if rule.do == "fail":
        return replace(applied, error=_failure(task, ran.outcome, f"rule {index + 1} of its policy says fail"))
    return applied


def _contributions(plans: Mapping[str, SharedPlan], scope: Scope) -> dict[str, SharedValue]:
    """The rule's contributions to shared keys, validated here: a wrong type fails its task, never the fold."""
    if not plans:
        return {}
    values = template.render_each({key: plan.value for key, plan in plans.items() if plan.value is not None}, scope)
    shared = {key: SharedValue(plan.op, values.get(key)) for key, plan in plans.items()}
    for one in shared.values():
        check_shared(one)
    return shared


def _labels(templates: Mapping[str, template.Template], scope: Scope) -> dict[str, Any]:
    """The labels set by the rule, validated here: one that is too long fails its task, never the fold."""
    if not templates:
        return {}
    labels = template.render_each(templates, scope)
    if fault := label_fault(labels):
        raise ExpressionError(f"set_label: {fault}")
    return labels


def _most_attempts(rule: RulePlan, scope: Scope) -> int:
    most = 1 if rule.attempts is None else template.render_number(rule.attempts, scope)
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ExpressionError(f"attempts is {most!r}, not a whole number of at least 1")
    return most


def _delay_s(rule: RulePlan, ran: TaskProcessed, scope: Scope, seed: str) -> float:
    base_s = DEFAULT_DELAY_S if rule.delay_s is None else template.render_number(rule.delay_s, scope)
    if isinstance(base_s, bool) or not isinstance(base_s, int | float) or not 0 <= base_s < float("inf"):
        raise ExpressionError(f"delay is {base_s!r}, not a number of seconds")
    after_s = ran.outcome.error.retry_after_s if ran.outcome.error else None
    return retry_delay_s(
        rule.backoff, float(base_s), ran.attempt, max_delay_s=rule.max_delay_s, retry_after_s=after_s, seed=seed
    )


def _next_task(step: StepPlan, task: TaskPlan, fact: TaskProcessed) -> str | None:
    if fact.do == "retry":
        return task.name
    if fact.do != "continue":
        return fact.to
    return None if task is step.tasks[-1] else step.tasks[step.task_index(task.name) + 1].name


def _refuse_patches(task: TaskPlan, ran: TaskProcessed, fact: TaskProcessed, limits: Limits) -> TaskProcessed | None:
    patches = [patch for patch in (fact.set_ctx, fact.set_iter, fact.set_vars, fact.set_shared) if patch]
    if not patches:
        return None
    try:
        size = sum(len(codec.encode(patch)) for patch in patches)
    except PayloadRefused as error:
        return _fail(ran, "expression_error", f"the patches of task {task.label}: {error.message}")
    if size <= limits.max_ctx_bytes:
        return None
    limit = f"more than limits.max_ctx_bytes ({limits.max_ctx_bytes})"
    return _fail(ran, "limit_exceeded", f"the patches of task {task.label} are {size} bytes, {limit}")


def _own_error_text(outcome: Outcome) -> str:
    """The task's own error in words, shown so that a policy that cannot handle it does not hide it."""
    return f" (the task itself ended with {outcome.error.kind}: {outcome.error.message})" if outcome.error else ""


def _fail(ran: TaskProcessed, kind: str, message: str) -> TaskProcessed:
    return replace(ran, do="fail", error=ErrorInfo(kind, message, task=ran.task))


def _failure(task: TaskPlan, outcome: Outcome, reason: str = "") -> ErrorInfo:
    """The failure of a task: the outcome's own error, or else the policy's decision."""
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

    A jitter of 0–10 %, derived from the command instead of chance, is added to the backoff. ``retry_after_s``, as
    requested by
    the other side, is the minimum under any rule; ``max_delay_s`` bounds all.

    Args:
        attempt: The attempt that just finished, from 1.
        seed: The seed of the jitter: the same seed and attempt give the same delay.
    """
    grown_s = delay_s
    if backoff == "linear":
        grown_s = delay_s * attempt
    elif backoff == "exponential":
        grown_s = delay_s * 2.0 ** min(attempt - 1, 60)
    return min(max(grown_s * (1.0 + jitter(seed, attempt)), retry_after_s or 0.0), max_delay_s)


def jitter(seed: str, attempt: int) -> float:
    """The jitter of a retry: a share from 0 up to :data:`MAX_JITTER`, a function of its arguments."""
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
        previous=_previous_after(progress, fact.task),
        iter={**progress.iter, **fact.set_iter} if fact.set_iter else progress.iter,
        vars={**progress.vars, **fact.set_vars} if fact.set_vars else progress.vars,
        ctx={**progress.ctx, **fact.set_ctx} if fact.set_ctx else progress.ctx,
        results=results_after(progress, fact.task, fact.outcome),
        before=outcome_before(progress) if fact.do == "retry" else None,
        details=progress.details if fact.do == "retry" else None,
    )


def outcome_before(progress: Progress) -> Outcome | None:
    """The outcome of the previous task, which all attempts of this visit read as ``_prev``."""
    return progress.before if progress.attempt > 1 else progress.results.get(progress.previous or "")


def keep_result(progress: Progress, task: str, outcome: Outcome) -> Progress:
    """``progress`` with only its results updated, after a run of ``task`` whose outcome no policy has judged."""
    if result_name(task) == task:
        return Progress(previous=task, results={**progress.results, task: outcome})
    return Progress(previous=progress.previous, results=results_after(progress, task, outcome))


def _previous_after(progress: Progress, task: str) -> str | None:
    return task if result_name(task) == task else progress.previous


def results_after(progress: Progress, task: str, outcome: Outcome) -> dict[str, Outcome]:
    """The results by name after a run of ``task``.

    A generated task stores no result of its own: at the end of a branch or round, the construct takes the result of the
    task
    that ran before (LANGUAGE §12 *Sugar*).
    """
    name = result_name(task)
    kept = outcome if name == task else progress.results.get(progress.previous or "")
    return progress.results if name is None or kept is None else {**progress.results, name: kept}
