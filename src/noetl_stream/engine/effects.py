"""Effects: the server's work after a decision. A closed union, one type per effect.

The engine returns them; the server collects them in the tick and acts once it is committed (PROTOCOL §2).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from noetl_stream.engine.decide.slots import held_keys, keys_for_child
from noetl_stream.engine.evolve.loops import loop_at, loop_progress
from noetl_stream.engine.scope import around, level_at
from noetl_stream.engine.state import Assignment, Execution, LoopState, Timer, changed_entries
from noetl_stream.model import events
from noetl_stream.model.aggregates import SlotAsked, SlotReturned, StartedEnded
from noetl_stream.model.events.composite import TokenPassed
from noetl_stream.model.ids import RunId, command_of, derive, partition_of, step_run_of
from noetl_stream.model.messages import (
    AGGREGATES_FORMAT,
    FORMAT,
    AggregateMessage,
    ClaimAnswer,
    Drop,
    Go,
    InboxMessage,
    StepCommand,
    Stop,
    path_key,
)
from noetl_stream.model.outcome import ErrorInfo, ItemPosition, Outcome, Reference
from noetl_stream.model.priorities import DEFAULT_PRIORITY
from noetl_stream.model.search_terms import (
    due_terms,
    error_terms,
    input_terms,
    key_terms,
    label_terms,
    step_terms,
    worker_terms,
)
from noetl_stream.model.status import EndStatus
from noetl_stream.playbook.check.reads import union_of
from noetl_stream.playbook.plan import Plan


class IssueCommand(msgspec.Struct, frozen=True, gc=False):
    command: StepCommand


class WithdrawCommand(msgspec.Struct, frozen=True, gc=False):
    """Remove a command no worker has started from the queue."""

    command_id: str


class StopWorkers(msgspec.Struct, frozen=True, gc=False):
    stop: Stop


class SendMessage(msgspec.Struct, frozen=True, gc=False):
    """Send a message to an execution or aggregate through the inbox. ``position`` is that of the sending decision,
    ``part`` distinguishes its messages.
    """

    position: int
    message: InboxMessage | AggregateMessage
    part: int = 0


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    timer_id: str
    timer: Timer


class DropTimer(msgspec.Struct, frozen=True, gc=False):
    timer_id: str


class AddTerms(msgspec.Struct, frozen=True, gc=False):
    """Make the execution searchable by these terms (:mod:`noetl_stream.model.search_terms`)."""

    terms: frozenset[str]


class DropTerms(msgspec.Struct, frozen=True, gc=False):
    """Stop the execution from being searchable by these terms."""

    terms: frozenset[str]


class UseObject(msgspec.Struct, frozen=True, gc=False):
    """Record that the journal references a result stored by another execution."""

    reference: Reference


class InheritSecrets(msgspec.Struct, frozen=True, gc=False):
    """Hide the secrets of ``giver``, an execution whose values this one receives, in this execution too."""

    giver: str


class TellOfEvent(msgspec.Struct, frozen=True, gc=False):
    """Notify the triggers for an event that a step of the execution has emitted, at ``position``."""

    fact: events.StepEmitted
    position: int


class AnswerStart(msgspec.Struct, frozen=True, gc=False):
    """Answer the client that the execution has started, or return the ``diagnostics``."""

    diagnostics: Sequence[dict[str, Any]]


Effect = (
    IssueCommand
    | WithdrawCommand
    | StopWorkers
    | SendMessage
    | SetTimer
    | DropTimer
    | AddTerms
    | DropTerms
    | UseObject
    | InheritSecrets
    | TellOfEvent
    | AnswerStart
)


QUARANTINED: Final = "the execution is quarantined"

Value = TypeVar("Value")
_Rule = Callable[[Plan | None, Execution, Any, int], Iterable[Effect]]


def effects_of(
    plan: Plan | None, before: Execution | None, after: Execution, facts: Sequence[events.Fact]
) -> Sequence[Effect]:
    """The effects of ``facts``, an input and its decisions, that led from ``before`` to ``after``.

    A command that is scheduled and cancelled by the same facts is never issued.

    Args:
        plan: ``None`` if the playbook cannot run.
    """
    effects: list[Effect] = []
    position = 0 if before is None else before.position
    for fact in facts:
        position += fact.width
        rule = _RULES.get(type(fact))
        if rule is not None:
            effects += rule(plan, after, fact, position)
    had_timers = before.timers if before is not None else _NO_TIMERS
    if had_timers is not after.timers and (had_timers or after.timers):
        effects += _timers(had_timers, after.timers)
    if before is not None and before.labels is not None and before.labels is not after.labels:
        effects += _terms(before.labels, after.labels or {})
    if before is not None and before.workers is not after.workers:
        effects.append(AddTerms(frozenset(worker_terms(after.workers[len(before.workers) :]))))
    if (before is None or before.request is not None) and after.request is None and after.parent is None:
        # A rerun is answered once it is known whether it can start.
        effects.append(AnswerStart(after.refused))
    return effects


def _terms(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Effect]:
    had, has = label_terms(before), label_terms(after)
    if had != has:
        yield from (DropTerms(frozenset(had - has)), AddTerms(frozenset(has - had)))


_NO_TIMERS: Final[Mapping[str, Timer]] = {}


def _timers(before: Mapping[str, Timer], after: Mapping[str, Timer]) -> Iterator[Effect]:
    yield from map(DropTimer, before.keys() - after.keys())
    yield from itertools.starmap(SetTimer, changed_entries(before, after))


def _on_step_scheduled(
    plan: Plan | None, state: Execution, fact: events.StepScheduled, _position: int
) -> Sequence[Effect]:
    assignment = state.assignments.get(fact.command_id)
    if plan is None or assignment is None or assignment.issue != fact.issue:
        return ()
    return (IssueCommand(build_command(plan, state, assignment)),)


def _on_token_passed(plan: Plan | None, state: Execution, fact: TokenPassed, _position: int) -> Sequence[Effect]:
    assignment = state.assignments.get(command_of(step_run_of(state.execution_id, fact.token_id)))
    return () if plan is None or assignment is None else (IssueCommand(build_command(plan, state, assignment)),)


def _on_step_cancelled(
    _plan: Plan | None, state: Execution, fact: events.StepCancelled, _position: int
) -> Iterator[Effect]:
    if fact.command_id not in state.assignments:
        yield WithdrawCommand(fact.command_id)
    yield StopWorkers(Stop(state.execution_id, [fact.command_id], fact.reason))


def _on_paused(_plan: Plan | None, state: Execution, _fact: events.ExecutionPaused, _position: int) -> Iterator[Effect]:
    if state.assignments:
        yield StopWorkers(Stop(state.execution_id, list(state.assignments), "paused", pausing=True))


def _on_quarantined(
    _plan: Plan | None, state: Execution, _fact: events.ExecutionQuarantined, _position: int
) -> Iterator[Effect]:
    for command_id, assignment in state.assignments.items():
        yield WithdrawCommand(command_id)
        if assignment.run is not None:  # by its nonce: a worker remembers stops, and may get another issue
            yield StopWorkers(Stop(state.execution_id, [command_id], QUARANTINED, assignment.run.nonce))


def _on_started(
    plan: Plan | None, state: Execution, _fact: events.ExecutionStarted, _position: int
) -> Iterator[Effect]:
    labels = state.labels if state.labels is not None else plan.labels if plan is not None else {}
    if labels or state.key or state.inputs or state.due:
        terms = label_terms(labels) | key_terms(state.key) | input_terms(state.inputs) | due_terms(state.due)
        if terms:  # labels may all be null
            yield AddTerms(frozenset(terms))
    if state.parent is not None:
        yield InheritSecrets(state.parent.execution_id)


def _on_finished(
    plan: Plan | None, state: Execution, fact: events.ExecutionFinished, position: int
) -> Sequence[Effect]:
    effects: list[Effect] = []
    if fact.outcome.error is not None:
        words = error_terms(msgspec.structs.asdict(fact.outcome.error))
        effects.append(AddTerms(frozenset(words | step_terms(state.failed_step))))
    if state.parent is not None or state.origin is not None:
        effects += _on_message(plan, state, fact, position)
    of_limits = [(holder, slot) for holder, slot in state.slots.items() if not slot.partition] if state.slots else ()
    for part, (holder, slot) in enumerate(of_limits, start=1):
        slot_id = holder if slot.task else ""
        returned = SlotReturned(slot.key, state.execution_id, slot.step_run_id, slot_id, slot.namespace)
        effects.append(_limit_message(returned, position, part))
    return effects


def _on_slot_requested(
    plan: Plan | None, state: Execution, fact: events.SlotRequested, position: int
) -> Iterator[Effect]:
    if fact.partition:
        return
    run = state.runs.get(fact.step_run_id)
    asked = SlotAsked(
        key=fact.key,
        execution_id=state.execution_id,
        step_run_id=fact.step_run_id,
        slot_id=fact.slot_id,
        namespace=fact.namespace,
        step=run.step if run is not None else "",
        task=fact.task,
        path=state.path,
        concurrency=fact.concurrency,
        rate=fact.rate,
        on_limit=fact.on_limit,
    )
    yield _limit_message(asked, position)


def _limit_message(fact: SlotAsked | SlotReturned, position: int, part: int = 0) -> Effect:
    return SendMessage(position, AggregateMessage(fact.limit_id, fact, AGGREGATES_FORMAT), part)


def _on_slot_released(
    _plan: Plan | None, state: Execution, fact: events.SlotReleased, position: int
) -> Iterator[Effect]:
    if fact.partition:
        return
    returned = SlotReturned(fact.key, state.execution_id, fact.step_run_id, fact.slot_id, fact.namespace)
    yield _limit_message(returned, position)


def _on_message(_plan: Plan | None, state: Execution, fact: events.Fact, position: int) -> Iterator[Effect]:
    message = child_message(state, fact, position)
    if message is not None:
        yield SendMessage(position, message)
    origin = state.origin
    if origin is not None and isinstance(fact, events.ExecutionFinished):
        yield SendMessage(position, ended_message(state.execution_id, origin, fact.status, fact.outcome.error))


def ended_message(
    execution_id: str, origin: events.Origin, status: EndStatus, error: ErrorInfo | None
) -> AggregateMessage:
    """The notice of an execution's end to the aggregate that started it."""
    # Without the message, which only readers of the execution may see.
    ended = StartedEnded(execution_id, origin.number, status, "" if error is None else error.kind)
    return AggregateMessage(origin.aggregate_id, ended, AGGREGATES_FORMAT)


def _on_child_finished(
    _plan: Plan | None, state: Execution, fact: events.ChildFinished, _position: int
) -> Iterator[Effect]:
    yield InheritSecrets(fact.execution_id)
    yield from _use_objects(state, (fact.outcome,))


def _on_reused(_plan: Plan | None, state: Execution, fact: events.ExecutionReused, _position: int) -> Iterator[Effect]:
    yield InheritSecrets(state.rerun_of)
    for entry in fact.entries:
        if isinstance(entry, events.StepReused):
            yield from _use_objects(state, (entry.outcome, *entry.others.values()))


def _use_objects(state: Execution, outcomes: Iterable[Outcome | None]) -> Iterator[Effect]:
    """Records the references of ``outcomes`` to results of other executions. They enter the journal only here:
    workloads, patches and args are plain values, and workers store their own results.
    """
    for outcome in outcomes:
        reference = outcome.result.reference if outcome is not None else None
        if reference is not None and reference.execution_id != state.execution_id:
            yield UseObject(reference)


_Order = type[events.CancelRequested | events.PauseRequested | events.ResumeRequested]
_ORDERS: Final[Mapping[events.ChildOrder, _Order]] = {
    "cancel": events.CancelRequested,
    "pause": events.PauseRequested,
    "resume": events.ResumeRequested,
}


def child_message(state: Execution, fact: events.Fact, position: int) -> InboxMessage | None:
    """The message that a decision at ``position`` sends to a child or the parent; ``None`` if it sends none."""
    execution_id, parent = state.execution_id, state.parent
    if isinstance(fact, events.ChildRequested):
        call, depth = fact.call, 1 + (parent.depth if parent is not None else 0)
        caller = events.Parent(execution_id, fact.step_run_id, fact.command_id, fact.path, depth, call.return_step)
        request_id, trace_id = derive(fact.execution_id, "request"), state.trace_id
        rerun = None if fact.command_id else events.Rerun(call.execution_id, undoes=True)
        shared_keys, caller_keys = keys_for_child(state, fact.step_run_id, fact.path)
        priority = state.priority_of(fact.step_run_id)
        request = events.ExecutionRequested(
            request_id,
            call.digest,
            call.path,
            call.workload,
            principal=state.principal,
            trace_id=trace_id,
            parent=caller,
            rerun=rerun,
            caller_span=state.caller_span,
            priority=None if priority == DEFAULT_PRIORITY else priority,
            shared_keys=shared_keys,
            caller_keys=caller_keys,
            due=state.due,
        )
        return InboxMessage(fact.execution_id, request, FORMAT if rerun is None else AGGREGATES_FORMAT)
    if isinstance(fact, events.ChildOrdered):
        order = _ORDERS[fact.order](derive(execution_id, "order", position), "", fact.reason)
        if fact.now:
            order = events.CancelRequested(order.request_id, reason=fact.reason, now=True)
        return InboxMessage(fact.execution_id, order, FORMAT)
    if isinstance(fact, events.ExecutionFinished) and parent is not None:
        outcome, error = Outcome("ok", fact.outcome.result), fact.outcome.error
        if error is not None:
            message = f"playbook {state.path} ({execution_id}) {fact.status}: {error.message}"
            outcome = Outcome("error", error=ErrorInfo("child_failed", message, code=error.kind))
        finished = events.ChildFinished(execution_id, parent.command_id, outcome, parent.path)
        return InboxMessage(parent.execution_id, finished, FORMAT)
    return None


def _on_emitted(_plan: Plan | None, state: Execution, fact: events.StepEmitted, position: int) -> Iterator[Effect]:
    yield TellOfEvent(fact, position)


_RULES: Final[dict[type[events.Fact], _Rule]] = {
    events.StepEmitted: _on_emitted,
    events.StepScheduled: _on_step_scheduled,
    TokenPassed: _on_token_passed,
    events.StepCancelled: _on_step_cancelled,
    events.ExecutionPaused: _on_paused,
    events.ExecutionQuarantined: _on_quarantined,
    events.ExecutionStarted: _on_started,
    events.ExecutionFinished: _on_finished,
    events.ChildRequested: _on_message,
    events.ChildOrdered: _on_message,
    events.ChildFinished: _on_child_finished,
    events.ExecutionReused: _on_reused,
    events.SlotRequested: _on_slot_requested,
    events.SlotReleased: _on_slot_released,
}


def build_command(plan: Plan, state: Execution, assignment: Assignment) -> StepCommand:
    """The command for ``assignment``, with the snapshot its templates read (LANGUAGE §5)."""
    run = state.runs[assignment.step_run_id]
    step = plan.steps[run.step]
    reads = step.reads
    is_newer = plan.has_newer_commands or step.has_newer_commands or bool(state.pools)
    if assignment.paging and (level := level_at(step, len(assignment.path))).batch is None:
        reads = union_of(level.items.reads | level.max_in_flight.reads, ())
    command = StepCommand(
        command_id=assignment.command_id,
        execution_id=state.execution_id,
        partition=partition_of(state.execution_id),
        step_run_id=run.step_run_id,
        step=run.step,
        digest=state.digest,
        pool=state.pools.get(run.step, step.pool) if state.pools else step.pool,
        issue=assignment.issue,
        paging=assignment.paging,
        args=run.token.args,
        workload=_select(state.workload, reads.workload),
        ctx=_select({**run.ctx, **run.patches} if run.patches else run.ctx, reads.ctx),
        steps=_select(run.steps, reads.steps),
        execution={**state.execution, **state.held_end} if reads.execution else {},
        vars=run.vars,
        limits=state.limits,
        schemas=_select(state.schemas, step.schemas),
        trace_id=state.trace_id,
        principal=state.principal,
        segment=assignment.segment,
        resume=build_continuation(state, assignment) if assignment.segment else None,
        caller_span=state.caller_span,
        priority=state.priority if run.token.priority is None else run.token.priority,
        stored_bytes=state.stored_bytes,
        held_keys=held_keys(state, run.step_run_id) if step.has_limited_tasks else [],
        token=run.token_seen if step.sets_token else None,
        bundle=plan.bundle if plan.bundle and any(task.kind == "python" for task in step.tasks) else "",
        format=AGGREGATES_FORMAT if is_newer else FORMAT,
    )
    return command if run.loop is None else _place_in_loop(command, run.loop, assignment)


def _place_in_loop(command: StepCommand, outermost: LoopState, assignment: Assignment) -> StepCommand:
    """Adds to ``command`` its place in the loop, and the items of the level that its worker runs."""
    chain, counts = around(outermost, assignment.path)
    local = loop_at(outermost, assignment.path)
    placed = replace(
        command,
        path=assignment.path,
        chain=[None if isinstance(item, ItemPosition) else item for item in chain],
        counts=counts,
        places={depth: item for depth, item in enumerate(chain) if isinstance(item, ItemPosition)},
    )
    if local is None:
        return placed
    return replace(placed, items=local.items, pages=list(local.pages), max_in_flight=local.max_in_flight)


def build_continuation(state: Execution, assignment: Assignment) -> Go:
    """The continuation of a run of this command: the answer to a claim, and the start of a later segment."""
    run = state.runs[assignment.step_run_id]
    local = loop_at(run.loop, assignment.path)
    return Go(
        next_number=assignment.next_number,
        progress=assignment.progress,
        loop=loop_progress(local) if local is not None else None,
        ctx=run.patches,
        vars=run.vars,
        answers=assignment.answers,
        waits=assignment.waits,
        slots=[path_key(slot.path) for _, slot in state.slots_in(run.step_run_id, assignment.path) if slot.is_held],
        returned=state.returned.get(assignment.command_id, 0),
    )


def _select(mapping: Mapping[str, Value], keys: frozenset[str] | None) -> dict[str, Value]:
    if keys is None:
        return dict(mapping)
    return {key: mapping[key] for key in sorted(keys) if key in mapping} if keys else {}


def answer_claim(state: Execution | None, run: RunId) -> ClaimAnswer:
    """The answer to a claim, by the state after the claim was folded (PROTOCOL §3 *Claim*)."""
    if state is None:
        return Drop("unknown execution")
    if state.ended:
        return Drop(f"the execution is {state.status}")
    if state.quarantined:
        return Drop(QUARANTINED)
    assignment = state.assignments.get(run.command_id)
    if assignment is None:
        return Drop("the step run has ended")
    if run.issue > assignment.issue:
        return Drop("this issue of the command was never ordered")
    if assignment.run != run:
        return Drop("another worker has it")
    return build_continuation(state, assignment)
