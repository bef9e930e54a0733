"""Worker facts: how they are checked, and how they change the state (PROTOCOL §3).

A worker is another process, possibly of another version, possibly broken: a bad report must not raise in the fold and
stop one server after the other (PROTOCOL §5 *Poison*). A *form* check returns the fault of the fact itself, or ``""``;
a *fit* check says whether the fact can belong to its command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from noetl_stream.engine.evolve import Value, with_assignment, with_run, with_warning, without
from noetl_stream.engine.evolve.ctx import check_shared, with_ctx
from noetl_stream.engine.evolve.loops import end_iteration, loop_at, loop_result, with_loop
from noetl_stream.engine.evolve.quotas import count
from noetl_stream.engine.evolve.step_runs import (
    bind,
    classify,
    contribute,
    drop_assignment,
    end_slots,
    end_step,
    ends_alone,
    step_value,
)
from noetl_stream.engine.evolve.suspensions import suspend
from noetl_stream.engine.pipeline import advance_progress, keep_result, share
from noetl_stream.engine.state import LATEST_MS, Assignment, Execution, LoopState, RecordedFact, StepRun
from noetl_stream.errors import PayloadRefused
from noetl_stream.model import events
from noetl_stream.model.aggregates import is_key
from noetl_stream.model.events import Path, Wait
from noetl_stream.model.events.composite import MAX_TASKS, StepRan
from noetl_stream.model.ids import is_valid_id
from noetl_stream.model.json import codec
from noetl_stream.model.labels import label_fault, with_labels
from noetl_stream.model.messages import Progress, path_key
from noetl_stream.model.outcome import MAX_WARNING_CHARACTERS, ErrorInfo, Page, Payload, Reference
from noetl_stream.model.search_terms import MAX_WORKERS
from noetl_stream.template import ExpressionError

MAX_STORED_BYTES: Final = 2**60
"""The bound of counted bytes: reported sizes must fit into a column."""


class WorkerRule(NamedTuple):
    """The handling of one kind of worker fact.

    Attributes:
        apply: The state after the fact.
        form: The fault of the fact itself, independent of its command; ``""`` without one.
        fits: Whether the fact can belong to this command.
        ends: Whether it ends the command in any state, so that no later event is expected.
    """

    apply: Callable[[Execution, Assignment, Any], Execution]
    form: Callable[[Any], str]
    fits: Callable[[Any, Assignment, StepRun], bool]
    ends: bool = False


def evolve_reported(state: Execution, recorded: RecordedFact) -> Execution:
    """The state after a worker's event; the same value unless it is the next event of the bound run.

    A kind that workers may not report changes nothing either.
    """
    fact, run = recorded.fact, recorded.run
    assert run is not None
    rule = RULES.get(type(fact))
    if rule is None or classify(state, recorded) != "next":
        return state
    assignment, named = state.assignments[run.command_id], _named_by(fact)
    if not _belongs(state, assignment, recorded, rule, named):
        return state
    after = rule.apply(state, assignment if rule.ends else bind(assignment, recorded), fact)
    if state.usage is not None:
        after = count(after, state.usage, fact)
    stored = max(0, fact.outcome.stored_bytes) if isinstance(fact, events.TaskProcessed) else 0
    for reference in named:
        if _is_own(state.execution_id, reference):
            stored += max(0, reference.size)
    return replace(after, stored_bytes=min(after.stored_bytes + stored, MAX_STORED_BYTES)) if stored else after


def _workers_with(workers: tuple[str, ...], name: str) -> tuple[str, ...]:
    """The same value unless this worker is a new one."""
    if name in workers or len(workers) == MAX_WORKERS or not is_valid_id(name):
        return workers
    return (*workers, name)


def misfit(state: Execution, recorded: RecordedFact) -> str:
    """The reason why a well-formed next fact of a run cannot belong to its command; ``""`` if it can."""
    fact, run_id = recorded.fact, recorded.run
    assert run_id is not None
    rule = RULES.get(type(fact))
    if rule is None:
        return form_fault(fact)
    assignment, named = state.assignments[run_id.command_id], _named_by(fact)
    if _belongs(state, assignment, recorded, rule, named):
        return ""
    if not _names(assignment.step_run_id, recorded):
        return f"{fact.event_name()} names a step run other than its command's"
    if named and not _may_name(state.execution_id, assignment, fact, named):
        return f"{fact.event_name()} refers to a result of another execution"
    return f"{fact.event_name()} names an iteration that command {run_id.command_id} does not run"


def form_fault(fact: events.Fact) -> str:
    rule = RULES.get(type(fact))
    if rule is None:
        return f"{fact.event_name()} cannot be reported by a worker"
    reason = rule.form(fact)
    return f"{fact.event_name()} {reason}" if reason else ""


def _belongs(
    state: Execution, assignment: Assignment, recorded: RecordedFact, rule: WorkerRule, named: Sequence[Reference]
) -> bool:
    """Whether a fact that names these objects can belong to its command."""
    run = state.runs.get(assignment.step_run_id)
    if run is None:
        return True  # the step run has ended; the fact changes nothing
    fact = recorded.fact
    return (
        _names(run.step_run_id, recorded)
        and rule.fits(fact, assignment, run)
        and (not named or _may_name(state.execution_id, assignment, fact, named))
    )


def _may_name(execution_id: str, assignment: Assignment, fact: events.Fact, named: Sequence[Reference]) -> bool:
    """Whether the results that a fact refers to belong to the execution, or were given to its command as an answer.

    A reference gives access to its object, so a worker must not be able to make one up.
    """
    if all(_is_own(execution_id, reference) for reference in named):
        return True
    answer = assignment.answers.get(path_key(fact.path)) if isinstance(fact, events.TaskProcessed) else None
    return answer is not None and [answer.result.reference] == named


def _named_by(fact: events.Fact) -> list[Reference]:
    """The objects that a worker's fact names: objects it has stored, or an answer it was given."""
    if isinstance(fact, StepRan):
        return [one.result.reference for one in fact.tasks if one.result.reference is not None]
    if isinstance(fact, events.TaskProcessed):
        reference = fact.outcome.result.reference
        return [] if reference is None else [reference]
    if isinstance(fact, events.LoopStarted | events.LoopPagedOut):
        return [page.reference for page in fact.pages]
    return []


def _is_own(execution_id: str, reference: Reference) -> bool:
    return reference.store == "nats" and reference.execution_id == execution_id


def _names(step_run_id: str, recorded: RecordedFact) -> bool:
    """Whether neither the report nor the fact names another step run."""
    fact = recorded.fact
    named = getattr(fact, "step_run_id", None)
    if named == "" and isinstance(fact, events.LoopIterationFailed):
        named = None  # worker reports name no step run
    return named in (None, step_run_id) and recorded.step_run_id in ("", step_run_id)


def _on_progress(state: Execution, assignment: Assignment, fact: events.Fact) -> Execution:
    return with_assignment(state, assignment)


def _on_claimed(state: Execution, assignment: Assignment, fact: events.StepClaimed) -> Execution:
    if assignment.cancelling:
        return drop_assignment(state, assignment)
    state = with_assignment(state, assignment)
    if not fact.returned:
        return state
    alive = {command_id: count for command_id, count in state.returned.items() if command_id in state.assignments}
    times = alive.get(assignment.command_id, 0) + 1
    return replace(state, returned={**alive, assignment.command_id: times})


def _on_worker_began(
    state: Execution, assignment: Assignment, fact: events.StepStarted | events.LoopIterationStarted
) -> Execution:
    workers = _workers_with(state.workers, fact.worker)
    return _on_began(state if workers is state.workers else replace(state, workers=workers), assignment, fact)


def _on_began(state: Execution, assignment: Assignment, fact: events.Fact) -> Execution:
    state = with_assignment(state, assignment)
    run = state.runs[assignment.step_run_id]
    return state if run.started_ms else with_run(state, replace(run, started_ms=state.at_ms))


def _on_loop_started(state: Execution, assignment: Assignment, fact: events.LoopStarted) -> Execution:
    """Begins a level of a local loop: the outermost level's items are in the command, an inner level brings its own."""
    state = _on_began(state, assignment, fact)
    run = state.runs[assignment.step_run_id]
    around = loop_at(run.loop, fact.path[:-1])
    if not fact.path or around is None or loop_at(run.loop, fact.path) is not None:
        return state
    level = LoopState(fact.items, fact.count, True, fact.max_in_flight, pages=tuple(fact.pages))
    return with_run(state, replace(run, loop=with_loop(run.loop, fact.path, level)))


def _on_paged_out(state: Execution, assignment: Assignment, fact: events.LoopPagedOut) -> Execution:
    """Stores the pages of items that the command has paged out, so that the level may begin."""
    if not assignment.paging:
        return with_assignment(state, assignment)
    if assignment.cancelling:
        return drop_assignment(state, assignment)
    state = _on_began(state, assignment, fact)
    run = state.runs[assignment.step_run_id]
    level = LoopState([], fact.count, False, fact.max_in_flight, pages=tuple(fact.pages), begun=False)
    run = replace(run, loop=with_loop(run.loop, assignment.path, level), unattended=0)
    return replace(with_run(state, run), assignments=without(state.assignments, assignment.command_id))


MAX_DETAILS_BYTES: Final = 64 * 1024
"""The most bytes of JSON that a state keeps of a heartbeat. Details may grow where a secret is hidden."""


def _heartbeat_form(fact: events.TaskHeartbeat) -> str:
    return _path_form(fact) or ("has too large details" if len(codec.encode(fact.details)) > MAX_DETAILS_BYTES else "")


def _on_heartbeat(state: Execution, assignment: Assignment, fact: events.TaskHeartbeat) -> Execution:
    """Keeps the details for the next attempt, also if another worker makes it."""
    key = path_key(fact.path)
    before = assignment.progress.get(key) or Progress(vars=state.runs[assignment.step_run_id].vars)
    progress = replace(before, details=fact.details)
    return with_assignment(state, replace(assignment, progress={**assignment.progress, key: progress}))


def _on_task_processed(state: Execution, assignment: Assignment, fact: events.TaskProcessed) -> Execution:
    key = path_key(fact.path)
    if state.slots:
        state = end_slots(state, assignment.step_run_id, fact.path)
    run = state.runs[assignment.step_run_id]
    before = assignment.progress.get(key) or Progress(vars=run.vars)
    progress = advance_progress(before, fact)
    answers = without(assignment.answers, key)
    state = with_assignment(
        state, replace(assignment, progress={**assignment.progress, key: progress}, answers=answers)
    )
    for warning in fact.outcome.warnings:
        state = with_warning(state, events.TaskWarning(run.step, fact.task, warning))
    if assignment.discards_patches:
        keys = [*fact.set_ctx, *fact.set_shared]
        notice = events.CtxPatchDiscarded(run.step_run_id, keys) if keys else None
        return replace(state, ctx_notice=notice)
    if fact.set_label:
        state = replace(state, labels=with_labels(state.labels or {}, fact.set_label))
    if fact.set_vars or fact.set_ctx:
        state = with_run(state, replace(run, patches={**run.patches, **fact.set_ctx}, vars=progress.vars))
    if fact.set_ctx:
        state = with_ctx(state, {**state.ctx, **fact.set_ctx}, fact.set_ctx, run.step_run_id)
    return _apply_shared(state, state.runs[run.step_run_id], fact) if fact.set_shared else state


def _apply_shared(state: Execution, run: StepRun, fact: events.TaskProcessed) -> Execution:
    """Applies contributions to shared keys: at once outside a loop, in index order at a loop's end (LANGUAGE §6)."""
    if run.loop is None:
        state = with_run(state, replace(run, patches={**run.patches, **_own_shared(run, fact)}))
        return contribute(state, fact.set_shared.items())
    link = run.shared
    for key, value in fact.set_shared.items():
        link = (fact.path, state.position + 1, key, value, link)
    size = run.shared_bytes + len(codec.encode(fact.set_shared))
    state = with_run(state, replace(run, shared=link, shared_bytes=size))
    if size <= state.limits.max_shared_bytes:
        return state
    text = f"set_shared of step {run.step} has {size} bytes; limits.max_shared_bytes is {state.limits.max_shared_bytes}"
    return replace(state, broken=ErrorInfo("limit_exceeded", text, task=fact.task))


def _own_shared(run: StepRun, fact: events.TaskProcessed) -> dict[str, Any]:
    """The contributed keys as the pipeline itself reads them."""
    try:
        return share({**run.ctx, **run.patches}, fact.set_shared)
    except ExpressionError:
        return {}  # the fold applies the same values and reports the error


def _on_iteration_done(state: Execution, assignment: Assignment, fact: events.LoopIterationDone) -> Execution:
    payload = step_value(assignment.progress.get(path_key(fact.path))).outcome.result
    return _end_iteration(state, assignment, fact.path, "ok", payload)


def _on_iteration_failed(state: Execution, assignment: Assignment, fact: events.LoopIterationFailed) -> Execution:
    skipped = bool(assignment.cancelling) and fact.error.kind == "cancelled"
    error = replace(fact.error, index=fact.path[-1] if fact.path else None)
    return _end_iteration(state, assignment, fact.path, "skipped" if skipped else "failed", Payload(), error)


def _end_iteration(
    state: Execution,
    assignment: Assignment,
    path: events.Path,
    ending: Any,
    payload: Payload,
    error: ErrorInfo | None = None,
) -> Execution:
    run = state.runs[assignment.step_run_id]
    if state.slots:
        state = end_slots(state, assignment.step_run_id, path)
    if not path or loop_at(run.loop, path[:-1]) is None:
        return with_assignment(state, assignment)
    if assignment.path == path:
        state = replace(state, assignments=without(state.assignments, assignment.command_id))
    else:
        progress, answers = _without_iteration(assignment.progress, path), _without_iteration(assignment.answers, path)
        state = with_assignment(state, replace(assignment, progress=progress, answers=answers))
    return end_iteration(state, run, path, ending, payload, error)


def _without_iteration(passes: dict[str, Value], path: events.Path) -> dict[str, Value]:
    """``passes`` without those of the iteration ``path`` and of the level inside it."""
    key = path_key(path)
    return without(passes, key, *(one for one in passes if one.startswith(f"{key}.")))


def _on_loop_done(state: Execution, assignment: Assignment, fact: events.LoopDone) -> Execution:
    if not fact.path:
        return _on_step_ended(state, assignment, fact)
    run = state.runs[assignment.step_run_id]
    level = loop_at(run.loop, fact.path)
    result = loop_result(level, state.execution_id, run.step_run_id) if level is not None else Payload()
    return _end_iteration(state, assignment, fact.path, "ok", result)


def _on_step_ended(
    state: Execution, assignment: Assignment, fact: events.StepDone | events.StepFailed | events.LoopDone
) -> Execution:
    progress = assignment.progress.get("") if isinstance(fact, events.StepDone | events.StepFailed) else None
    state = replace(state, assignments=without(state.assignments, assignment.command_id))
    return end_step(state, fact, progress)


_NO_PROGRESS: Final = Progress()


def _on_step_ran(state: Execution, assignment: Assignment, fact: StepRan) -> Execution:
    """Applies the facts of a composite fact, one after the other."""
    run = state.runs[assignment.step_run_id]
    progress = assignment.progress.get("") or _NO_PROGRESS
    for task in fact.tasks:
        progress = keep_result(progress, task.task, task.outcome(fact.worker, fact.trace_id))
    if not run.started_ms:
        run = replace(run, started_ms=state.at_ms)
    assignments = without(state.assignments, assignment.command_id)
    workers = _workers_with(state.workers, fact.worker)
    if ends_alone(state, run):
        value = step_value(progress)
        runs = {**state.runs, run.step_run_id: replace(run, ended="step.done", value=value)}
        steps = {**state.steps, run.step: value}
        return replace(state, assignments=assignments, runs=runs, steps=steps, workers=workers)
    state = replace(state, assignments=assignments, runs={**state.runs, run.step_run_id: run}, workers=workers)
    return end_step(state, fact, progress)


_MOST: Final = 2**31 - 1
"""The largest index, count or number a worker may report."""


def _any_form(_fact: events.Fact) -> str:
    return ""


def _path_form(fact: Any) -> str:
    return "" if _has_indexes(fact.path) else "has an invalid path"


def _has_indexes(path: Path) -> bool:
    return all(0 <= index <= _MOST for index in path)


def _result_form(fact: events.TaskProcessed) -> str:
    try:
        codec.decode_json(fact.outcome.result.value)  # these bytes have not been parsed before
        for contribution in fact.set_shared.values():
            check_shared(contribution)
    except PayloadRefused as error:
        return f"has an invalid result: {error}"
    except ExpressionError as error:
        return f"cannot be folded: {error}"
    if any(len(one.kind) + len(one.message) > 2 * MAX_WARNING_CHARACTERS for one in fact.outcome.warnings):
        return "has a warning that is too long"
    if fact.set_label and (fault := label_fault(fact.set_label)):
        return f"sets something that is not a label: {fault}"
    return _path_form(fact)


def _ran_form(fact: StepRan) -> str:
    if not 1 <= len(fact.tasks) <= MAX_TASKS:
        return f"has {len(fact.tasks)} tasks"
    try:
        for one in fact.tasks:
            if not 0 <= one.started_ms <= LATEST_MS >= one.ended_ms >= 0:
                return "has a time out of range"
            codec.decode_json(one.result.value)
    except PayloadRefused as error:
        return f"has an invalid result: {error}"
    return ""


def _items_form(fact: events.LoopStarted | events.LoopPagedOut) -> str:
    if isinstance(fact, events.LoopStarted) and fact.source:
        return "names its items: only the server does"
    if fact.max_in_flight < 1 or not 0 <= fact.count <= _MOST:
        return "has invalid counts"
    if fact.pages and not _adds_up(fact.pages, fact.count):
        return "has a count that differs from the items in its pages"
    return _path_form(fact)


def _adds_up(pages: Sequence[Page], count: int) -> bool:
    following = 0
    for page in pages:
        if page.first != following or page.count < 1:
            return False
        following += page.count
    return following == count


def _waits_form(fact: events.StepSuspended) -> str:
    return "" if all(map(_is_wait, fact.waits)) else "has a wait without an end"


def _is_wait(wait: Wait) -> bool:
    """Whether the wait is well formed: every wait must end (LANGUAGE §8); a wait for a child ends with the child."""
    kinds = (wait.delay_s, wait.for_s, wait.until_ms, wait.signal, wait.child, wait.key)
    child = wait.child
    times = (wait.delay_s, wait.for_s, wait.timeout_s)
    return (
        sum(kind is not None for kind in kinds) == 1
        and all(time is None or time >= 0 for time in times)  # negative times are before any date that Postgres stores
        and _has_indexes(wait.path)
        and (wait.signal is None or wait.timeout_s is not None)
        and (child is None or is_valid_id(child.digest))
        and (wait.key is None or is_key(wait.key))
    )


def _fits_anywhere(_fact: events.Fact, _assignment: Assignment, _run: StepRun) -> bool:
    return True


def _is_local(assignment: Assignment, run: StepRun) -> bool:
    level = loop_at(run.loop, assignment.path)
    return level is not None and level.local


def _is_pipeline_path(path: Path, assignment: Assignment, run: StepRun) -> bool:
    """Whether tasks run at ``path``: the command's own iteration, or one of its local loop."""
    return _is_inside(path, assignment, run) if _is_local(assignment, run) else path == assignment.path


def _is_inside(path: Path, assignment: Assignment, run: StepRun) -> bool:
    """Whether ``path`` is an iteration of the command's local loop, at any running level."""
    depth = len(assignment.path)
    around = loop_at(run.loop, path[:-1]) if len(path) > depth and path[:depth] == assignment.path else None
    return around is not None and around.local and path[-1] < around.count


def _fits_task(fact: Any, assignment: Assignment, run: StepRun) -> bool:
    return _is_pipeline_path(fact.path, assignment, run)


def _fits_iteration(fact: Any, assignment: Assignment, run: StepRun) -> bool:
    own = bool(fact.path) and fact.path == assignment.path
    return own or (_is_local(assignment, run) and _is_inside(fact.path, assignment, run))


def _fits_step(_fact: Any, assignment: Assignment, _run: StepRun) -> bool:
    return not assignment.path


def _fits_loopless_step(_fact: Any, assignment: Assignment, run: StepRun) -> bool:
    return not assignment.path and not assignment.paging and run.loop is None


def _fits_new_level(fact: events.LoopStarted, assignment: Assignment, run: StepRun) -> bool:
    """Whether the fact can begin a new level: items of the command's own level are in the command, others here."""
    if fact.path == assignment.path:
        return _is_local(assignment, run)
    return _is_inside(fact.path, assignment, run) and (bool(fact.pages) or len(fact.items) == fact.count)


def _fits_running_level(fact: events.LoopDone, assignment: Assignment, run: StepRun) -> bool:
    if fact.path == assignment.path:
        return _is_local(assignment, run)
    return _is_inside(fact.path, assignment, run) and loop_at(run.loop, fact.path) is not None


def _fits_paging(fact: events.LoopPagedOut, assignment: Assignment, _run: StepRun) -> bool:
    return assignment.paging and fact.path == assignment.path and (bool(fact.pages) or not fact.count)


def _fits_waits(fact: events.StepSuspended, assignment: Assignment, run: StepRun) -> bool:
    return all(_is_pipeline_path(wait.path, assignment, run) for wait in fact.waits)


RULES: Final[dict[type[events.Fact], WorkerRule]] = {
    events.StepClaimed: WorkerRule(_on_claimed, _any_form, _fits_anywhere),
    events.StepStarted: WorkerRule(_on_worker_began, _any_form, _fits_anywhere),
    events.TaskStarted: WorkerRule(_on_progress, _path_form, _fits_task),
    events.TaskHeartbeat: WorkerRule(_on_heartbeat, _heartbeat_form, _fits_task),
    events.LoopStarted: WorkerRule(_on_loop_started, _items_form, _fits_new_level),
    events.LoopPagedOut: WorkerRule(_on_paged_out, _items_form, _fits_paging),
    events.LoopIterationStarted: WorkerRule(_on_worker_began, _path_form, _fits_iteration),
    events.TaskProcessed: WorkerRule(_on_task_processed, _result_form, _fits_task),
    events.StepSuspended: WorkerRule(suspend, _waits_form, _fits_waits),
    events.LoopIterationDone: WorkerRule(_on_iteration_done, _path_form, _fits_iteration),
    events.LoopIterationFailed: WorkerRule(_on_iteration_failed, _path_form, _fits_iteration),
    events.StepDone: WorkerRule(_on_step_ended, _any_form, _fits_loopless_step, ends=True),
    StepRan: WorkerRule(_on_step_ran, _ran_form, _fits_loopless_step, ends=True),
    events.StepFailed: WorkerRule(_on_step_ended, _any_form, _fits_step, ends=True),
    events.LoopDone: WorkerRule(_on_loop_done, _path_form, _fits_running_level),
}
"""The rules for facts that a worker may report; a report with anything else is rejected."""
