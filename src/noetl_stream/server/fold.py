"""The fold: messages in, a pending tick out. One fact at a time, in stream order, nothing awaited."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from noetl_stream.engine.advance import InvalidPlan, advance
from noetl_stream.engine.decide.client_requests import is_redundant, rejection_of
from noetl_stream.engine.effects.commands import build_command
from noetl_stream.engine.evolve.run_lease import classify
from noetl_stream.engine.report_validation import malformed, misfit
from noetl_stream.engine.state import Assignment, Execution, RecordedFact
from noetl_stream.errors import PayloadRefused
from noetl_stream.model import codec
from noetl_stream.model.events import (
    ChildFinished,
    ClientRequest,
    ExecutionRequested,
    ExecutionReused,
    Fact,
    LoopIterationFailed,
    StepClaimed,
    StepFailed,
    StepReused,
    StepScheduled,
)
from noetl_stream.model.ids import RunId, is_valid_id, partition_of, report_id
from noetl_stream.model.messages import Report, Request, Stop
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.model.reference import Reference
from noetl_stream.model.rejection import Rejection
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.command_queue import QueuedCommand
from noetl_stream.ports.event_log import ReportedMessage
from noetl_stream.ports.store import EventRow, RequestRow
from noetl_stream.server.client_requests import IN_NO_JOURNAL, refused
from noetl_stream.server.dead_letters import command_letter, message_letter
from noetl_stream.server.execution_cache import CachedExecution, ExecutionCache
from noetl_stream.server.tick import PendingTick, input_entry, name_of

log = logging.getLogger(__name__)

MAX_COMMAND_BYTES = 3 * 1024 * 1024
"""A command above this is not sent: NATS must take messages of 4 MiB (``max_payload``), and headers need room too."""


class Fold:
    """Folds decoded messages into the living executions and collects what a tick must write and send."""

    def __init__(self, executions: ExecutionCache) -> None:
        self._executions = executions

    def message(self, message: ReportedMessage, body: Request | Report, tick: PendingTick) -> None:
        """Folds one reported message; what it changes stands in ``tick`` afterwards."""
        executions = self._executions.get(message.execution_id)
        if executions is not None:
            executions.through = message.sequence
        if isinstance(body, Request):
            self._request(message, body, tick)
        else:
            self._report(message, body, tick)

    def order_again(self, execution_id: str, command_id: str, reason: str, tick: PendingTick) -> None:
        """The shell's own input: a command is owed that the queue lacks (PROTOCOL §2 *Reconcile*)."""
        executions = self._executions.get(execution_id)
        if (
            executions is None
            or executions.state is None
            or (owed := executions.state.assignments.get(command_id)) is None
        ):
            return
        fact: Fact = StepScheduled(owed.step_run_id, command_id, owed.path, owed.issue + 1, reason)
        taken_up = owed.run is not None and owed.run.issue == owed.issue
        if taken_up and owed.issue >= (most := executions.state.limits.max_deliveries):
            # Workers take it and acknowledge it, and no end of it can be folded: that is not to go on for ever.
            text = f"issued {owed.issue} times without an end (limits.max_deliveries is {most}); last: {reason}"
            self._write_off(executions, owed, text, tick)
            fact = StepFailed(owed.step_run_id, ErrorInfo("lease_exhausted", text))
        self.own_input(execution_id, RecordedFact(fact), tick)

    def refuse_oversized(self, tick: PendingTick) -> None:
        """Commands too large to be sent fail their step, with the limit named, instead of sticking in the pipeline."""
        while large := [command for command in tick.commands if len(command.body) > MAX_COMMAND_BYTES]:
            tick.commands = [command for command in tick.commands if len(command.body) <= MAX_COMMAND_BYTES]
            self._refuse(large, tick)

    def _refuse(self, large: Sequence[QueuedCommand], tick: PendingTick) -> None:
        for command in large:
            executions = self._executions.get(command.execution_id)
            if executions is None or executions.state is None:
                continue
            owed = executions.state.assignments.get(command.command_id)
            if owed is None:
                continue
            text = (
                f"the command for this step has {len(command.body)} bytes, more than {MAX_COMMAND_BYTES}: "
                "its templates read too much of ctx, workload and step results at once"
            )
            fact = StepFailed(owed.step_run_id, ErrorInfo("limit_exceeded", text))
            self.own_input(command.execution_id, RecordedFact(fact), tick)

    def own_input(self, execution_id: str, recorded: RecordedFact, tick: PendingTick) -> None:
        """An input that did not come through EVENTS (timer, inbox, reference, reconcile): recorded in full."""
        executions = self._executions.get(execution_id)
        if executions is None:
            return
        before, partition = executions.state, partition_of(execution_id)
        at_ms = max(executions.at_ms, recorded.at_ms)
        advanced = advance(executions.plan, before, recorded._replace(at_ms=at_ms), execution_id)
        after = advanced.state
        if not advanced.taken or after is None:
            return
        executions.state, executions.at_ms = after, at_ms
        executions.started_ms = executions.started_ms or at_ms
        plan = executions.plan if isinstance(executions.plan, Plan) else None
        facts = [recorded.fact, *advanced.journal]
        tick.record_decisions(plan, after, facts, partition, executions.through, at_ms, with_input=True)
        for reference in taken_over(recorded.fact):
            if reference.execution_id != execution_id:
                tick.use_object(execution_id, reference)
        self._note(executions, before, after, partition, tick)

    def _request(self, message: ReportedMessage, request: Request, tick: PendingTick) -> None:
        executions = self._executions.get(message.execution_id)
        if executions is None:
            return
        if isinstance(request.fact, ClientRequest):
            if executions.state is not None and isinstance(executions.plan, Plan):
                self._asked(executions, executions.plan, executions.state, message, request.fact, tick)
            return
        if executions.state is not None:
            return  # folded before: a request is never evaluated again (PROTOCOL §1)
        data = codec.encode(request.fact)
        entry = input_entry(request.request_id, 0)
        row_ids = (None, None)
        executions.started_ms = message.at_ms
        recorded = RecordedFact(request.fact, at_ms=message.at_ms)
        self._take(executions, message, recorded, "client", data, entry, row_ids, tick)

    def _asked(
        self,
        executions: CachedExecution,
        plan: Plan,
        state: Execution,
        message: ReportedMessage,
        fact: ClientRequest,
        tick: PendingTick,
    ) -> None:
        """Someone asks something of an execution that lives: done, done already, or refused; answered in any case."""
        answer: dict[str, Any] = {"ok": True, "execution_id": message.execution_id}
        position = IN_NO_JOURNAL
        if objection := rejection_of(plan, state, fact):
            answer = refused(message.execution_id, objection)
        elif is_redundant(state, fact):
            answer = answer | {"already": True}
        else:
            data = codec.encode(fact)
            entry = input_entry(fact.request_id, 0)
            recorded = RecordedFact(fact, at_ms=message.at_ms)
            self._take(executions, message, recorded, "client", data, entry, (None, None), tick)
            position = state.position + 1
            answer = answer | {"position": position}
        tick.requests.append(RequestRow(fact.request_id, message.execution_id, codec.encode(answer), position))

    def _report(self, message: ReportedMessage, report: Report, tick: PendingTick) -> None:
        executions = self._executions.get(message.execution_id)
        state = executions.state if executions is not None else None
        run = report.run
        try:
            facts = _facts_of(report)
        except PayloadRefused as error:
            tick.dead_letters.append(message_letter(message, str(error)))
            return
        for index, (fact, raw) in enumerate(zip(facts, report.events, strict=True)):
            recorded = RecordedFact(fact, run, report.first + index, message.at_ms)
            stands = classify(state, recorded)
            if isinstance(fact, StepClaimed):
                tick.claims.append((fact.reply, message.execution_id, run))
            elif stands in ("stale", "unknown"):
                tick.stops.append(
                    Stop(message.execution_id, [run.command_id], "the fold refused its report", run.nonce)
                )
                return
            if stands == "gap":
                self._begin_anew(message.execution_id, state, run, "a report before it is missing", tick)
                return
            if stands == "next" and executions is not None and state is not None:
                if reason := misfit(state, run.command_id, report.step_run_id, fact):
                    tick.dead_letters.append(message_letter(message, reason))
                    self._begin_anew(message.execution_id, state, run, reason, tick)
                    return
                self._note_given_up(executions, run, fact, tick)
                identity = report_id(run, report.number)
                entry = input_entry(identity, index)
                ids = (report.step_run_id, identity)
                self._take(executions, message, recorded, "worker", bytes(raw), entry, ids, tick)
                state = executions.state
        if state is not None and run.command_id in state.assignments:
            _tell_again(state, state.assignments[run.command_id], tick)

    def _note(
        self, executions: CachedExecution, before: Execution | None, after: Execution, partition: int, tick: PendingTick
    ) -> None:
        """What stands beside the journal: the row people read, timers, and the answer to who asked for the execution.

        A rerun is answered when it is known whether it can be.
        """
        had = before.timers if before is not None else {}
        if had is not after.timers:
            tick.note_timers(after.execution_id, partition, had, after.timers)
        is_awaited = before is None or before.request is not None
        if is_awaited and after.request is None and after.parent is None:
            _note_answer(executions, after, tick)
        tick.touch(after, partition, executions.at_ms)

    def _begin_anew(
        self, execution_id: str, state: Execution | None, run: RunId, reason: str, tick: PendingTick
    ) -> None:
        """Nothing more is folded of this run: it ends, and its command is issued again, once."""
        log.warning("a run ends: %s", reason, extra={"execution": execution_id, "command": run.command_id})
        tick.stops.append(Stop(execution_id, [run.command_id], reason, run.nonce))
        if state is not None and state.assignments[run.command_id].issue == run.issue:
            self.order_again(execution_id, run.command_id, reason, tick)

    def _note_given_up(self, executions: CachedExecution, run: RunId, fact: Fact, tick: PendingTick) -> None:
        """The receiver of one delivery too many does not run the command, but says so (PROTOCOL §3)."""
        state = executions.state
        if state is None or not isinstance(fact, StepFailed | LoopIterationFailed):
            return
        owed = state.assignments[run.command_id]
        is_its_end = isinstance(fact, StepFailed) or fact.path == owed.path
        if is_its_end and fact.error.kind == "lease_exhausted" and run.num_delivered > state.limits.max_deliveries:
            self._write_off(executions, owed, fact.error.message, tick)

    def _write_off(self, executions: CachedExecution, owed: Assignment, reason: str, tick: PendingTick) -> None:
        if executions.state is not None and isinstance(executions.plan, Plan):
            command = build_command(
                executions.plan, executions.state, owed, partition_of(executions.state.execution_id)
            )
            tick.dead_letters.append(command_letter(command, executions.at_ms, reason))

    def _take(
        self,
        executions: CachedExecution,
        message: ReportedMessage,
        recorded: RecordedFact,
        source: str,
        data: bytes,
        entry: bytes,
        ids: tuple[str | None, str | None],
        tick: PendingTick,
    ) -> None:
        execution_id, before = message.execution_id, executions.state
        advanced = advance(executions.plan, before, recorded, execution_id)
        after = advanced.state
        if not advanced.taken or after is None:
            return
        executions.at_ms = at_ms = max(executions.at_ms, message.at_ms)
        position = after.position - len(advanced.journal)
        number = recorded.number if recorded.run is not None else None
        row = EventRow(
            execution_id,
            position,
            name_of(recorded.fact),
            source,
            at_ms,
            ids[0],
            ids[1],
            number,
            message.sequence,
            data,
        )
        tick.record_input(row, message.partition, entry, message.sequence)
        plan = executions.plan if isinstance(executions.plan, Plan) else None
        tick.record_decisions(plan, after, advanced.journal, message.partition, message.sequence, at_ms)
        executions.state = after
        self._note(executions, before, after, message.partition, tick)


def _tell_again(state: Execution, owed: Assignment, tick: PendingTick) -> None:
    """Whoever reports for a command that is not wanted any more, or is to pause, may not have heard of it."""
    if owed.cancelling:
        tick.stops.append(Stop(state.execution_id, [owed.command_id], owed.cancelling))
    elif state.paused_at_ms:
        tick.stops.append(Stop(state.execution_id, [owed.command_id], "paused", pausing=True))


def taken_over(fact: Fact) -> Iterator[Reference]:
    """The only ways in for results that other executions keep: workloads, patches and args are values by now, and
    workers keep results of their own.
    """
    if isinstance(fact, ChildFinished) and fact.outcome.result.reference is not None:
        yield fact.outcome.result.reference
    if isinstance(fact, ExecutionReused):
        for entry in fact.entries:
            outcomes = (entry.outcome, *entry.others.values()) if isinstance(entry, StepReused) else ()
            results = [outcome.result for outcome in outcomes if outcome is not None]
            yield from (result.reference for result in results if result.reference is not None)


def _note_answer(executions: CachedExecution, state: Execution, tick: PendingTick) -> None:
    """The answer to the request that began the execution."""
    answer: dict[str, Any] = {"ok": True, "execution_id": state.execution_id}
    if isinstance(executions.plan, InvalidPlan):
        answer = refused(state.execution_id, Rejection("invalid_playbook", executions.plan.reason))
        answer["diagnostics"] = executions.plan.diagnostics
    elif state.refused:
        first = state.refused[0]
        answer = refused(state.execution_id, Rejection(first["code"], first["message"]))
    tick.requests.append(RequestRow(state.request_id, state.execution_id, codec.encode(answer), 1))


def _facts_of(report: Report) -> list[Fact]:
    """What it reports.

    Raises:
        PayloadRefused: some of it is no fact, or none that a worker can mean.
    """
    facts = [codec.decode_fact(raw) for raw in report.events]
    if reason := next(filter(None, map(malformed, facts)), ""):
        raise PayloadRefused(reason)
    return facts


def decode(message: ReportedMessage, tick: PendingTick) -> Request | Report | None:
    """The message, or ``None`` for one that cannot be folded: ``tick`` passes it over as a dead letter."""
    try:
        codec.check_text(message.body)  # facts are kept as they came, with parts that nobody decodes
        body = codec.decode_reported(message.body)
    except PayloadRefused as error:
        reason = str(error)
    else:
        reason = _reason_to_refuse(message, body)
        if not reason:
            return body
    tick.dead_letters.append(message_letter(message, reason))
    return None


def _reason_to_refuse(message: ReportedMessage, body: Request | Report) -> str:
    if message.partition != partition_of(message.execution_id):
        return "its subject names another partition than its execution's"
    if body.execution_id != message.execution_id:
        return "its subject names another execution than its body"
    return "" if _ids_valid(body) else "it holds an id that cannot stand in a subject"


def _ids_valid(body: Request | Report) -> bool:
    ids: Sequence[str]
    if isinstance(body, Request):
        fact = body.fact
        ids = (body.execution_id, body.request_id)
        if isinstance(fact, ExecutionRequested):
            ids = (*ids, fact.digest, *([fact.rerun.of] if fact.rerun is not None else ()))
    else:
        ids = (body.execution_id, body.command_id, body.step_run_id, body.nonce)
    return all(map(is_valid_id, ids))
