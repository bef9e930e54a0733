"""The fold: messages in, a pending tick out. One fact at a time, in stream order, nothing awaited."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from noetl_stream.engine.advance import Refusal, advance
from noetl_stream.engine.asked import is_so_already, refusal
from noetl_stream.engine.evolve import takes
from noetl_stream.engine.orders import command_for
from noetl_stream.engine.reportable import malformed, misfit
from noetl_stream.engine.state import Assignment, Execution, Occurrence
from noetl_stream.errors import PayloadRefused
from noetl_stream.model import codec
from noetl_stream.model.events import (
    Asked,
    ChildFinished,
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
from noetl_stream.model.refusal import Objection
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.command_queue import QueuedCommand
from noetl_stream.ports.event_log import ReportedMessage
from noetl_stream.ports.store import EventRow, RequestRow
from noetl_stream.server.dead_letters import command_letter, message_letter
from noetl_stream.server.living import Living, LivingExecutions
from noetl_stream.server.requests import IN_NO_JOURNAL, refused
from noetl_stream.server.tick import PendingTick, input_entry, name_of

log = logging.getLogger(__name__)

MAX_COMMAND_BYTES = 3 * 1024 * 1024
"""A command above this is not sent: NATS must take messages of 4 MiB (``max_payload``), and headers need room too."""


class Fold:
    """Folds decoded messages into the living executions and collects what a tick must write and send."""

    def __init__(self, living: LivingExecutions) -> None:
        self._living = living

    def message(self, message: ReportedMessage, body: Request | Report, tick: PendingTick) -> None:
        """Folds one reported message; what it changes stands in ``tick`` afterwards."""
        living = self._living.get(message.execution_id)
        if living is not None:
            living.through = message.sequence
        if isinstance(body, Request):
            self._request(message, body, tick)
        else:
            self._report(message, body, tick)

    def order_again(self, execution_id: str, command_id: str, reason: str, tick: PendingTick) -> None:
        """The shell's own input: a command is owed that the queue lacks (PROTOCOL §2 *Reconcile*)."""
        living = self._living.get(execution_id)
        if living is None or living.state is None or (owed := living.state.assignments.get(command_id)) is None:
            return
        fact: Fact = StepScheduled(owed.step_run_id, command_id, owed.path, owed.issue + 1, reason)
        taken_up = owed.run is not None and owed.run.issue == owed.issue
        if taken_up and owed.issue >= (most := living.state.limits.max_deliveries):
            # Workers take it and acknowledge it, and no end of it can be folded: that is not to go on for ever.
            text = f"issued {owed.issue} times without an end (limits.max_deliveries is {most}); last: {reason}"
            self._write_off(living, owed, text, tick)
            fact = StepFailed(owed.step_run_id, ErrorInfo("lease_exhausted", text))
        self.own_input(execution_id, Occurrence(fact), tick)

    def refuse_oversized(self, tick: PendingTick) -> None:
        """Commands too large to be sent fail their step, with the limit named, instead of sticking in the pipeline."""
        while large := [command for command in tick.commands if len(command.body) > MAX_COMMAND_BYTES]:
            tick.commands = [command for command in tick.commands if len(command.body) <= MAX_COMMAND_BYTES]
            self._refuse(large, tick)

    def _refuse(self, large: Sequence[QueuedCommand], tick: PendingTick) -> None:
        for command in large:
            living = self._living.get(command.execution_id)
            if living is None or living.state is None:
                continue
            owed = living.state.assignments.get(command.command_id)
            if owed is None:
                continue
            text = (
                f"the command for this step has {len(command.body)} bytes, more than {MAX_COMMAND_BYTES}: "
                "its templates read too much of ctx, workload and step results at once"
            )
            fact = StepFailed(owed.step_run_id, ErrorInfo("limit_exceeded", text))
            self.own_input(command.execution_id, Occurrence(fact), tick)

    def own_input(self, execution_id: str, occurrence: Occurrence, tick: PendingTick) -> None:
        """An input that did not come through EVENTS (timer, inbox, reference, reconcile): recorded in full."""
        living = self._living.get(execution_id)
        if living is None:
            return
        before, partition = living.state, partition_of(execution_id)
        at_ms = max(living.at_ms, occurrence.at_ms)
        advanced = advance(living.plan, before, occurrence._replace(at_ms=at_ms), execution_id)
        after = advanced.state
        if not advanced.taken or after is None:
            return
        living.state, living.at_ms = after, at_ms
        living.started_ms = living.started_ms or at_ms
        plan = living.plan if isinstance(living.plan, Plan) else None
        facts = [occurrence.fact, *advanced.journal]
        tick.record_decisions(plan, after, facts, partition, living.through, at_ms, with_input=True)
        for reference in taken_over(occurrence.fact):
            if reference.execution_id != execution_id:
                tick.use_object(execution_id, reference)
        self._note(living, before, after, partition, tick)

    def _request(self, message: ReportedMessage, request: Request, tick: PendingTick) -> None:
        living = self._living.get(message.execution_id)
        if living is None:
            return
        if isinstance(request.fact, Asked):
            if living.state is not None and isinstance(living.plan, Plan):
                self._asked(living, living.plan, living.state, message, request.fact, tick)
            return
        if living.state is not None:
            return  # folded before: a request is never evaluated again (PROTOCOL §1)
        data = codec.encode(request.fact)
        entry = input_entry(request.request_id, 0)
        row_ids = (None, None)
        living.started_ms = message.at_ms
        occurrence = Occurrence(request.fact, at_ms=message.at_ms)
        self._take(living, message, occurrence, "client", data, entry, row_ids, tick)

    def _asked(
        self,
        living: Living,
        plan: Plan,
        state: Execution,
        message: ReportedMessage,
        fact: Asked,
        tick: PendingTick,
    ) -> None:
        """Someone asks something of an execution that lives: done, done already, or refused; answered in any case."""
        answer: dict[str, Any] = {"ok": True, "execution_id": message.execution_id}
        position = IN_NO_JOURNAL
        if objection := refusal(plan, state, fact):
            answer = refused(message.execution_id, objection)
        elif is_so_already(state, fact):
            answer = answer | {"already": True}
        else:
            data = codec.encode(fact)
            entry = input_entry(fact.request_id, 0)
            occurrence = Occurrence(fact, at_ms=message.at_ms)
            self._take(living, message, occurrence, "client", data, entry, (None, None), tick)
            position = state.position + 1
            answer = answer | {"position": position}
        tick.requests.append(RequestRow(fact.request_id, message.execution_id, codec.encode(answer), position))

    def _report(self, message: ReportedMessage, report: Report, tick: PendingTick) -> None:
        living = self._living.get(message.execution_id)
        state = living.state if living is not None else None
        run = report.run
        try:
            facts = _facts_of(report)
        except PayloadRefused as error:
            tick.dead_letters.append(message_letter(message, str(error)))
            return
        for index, (fact, raw) in enumerate(zip(facts, report.events, strict=True)):
            occurrence = Occurrence(fact, run, report.first + index, message.at_ms)
            stands = takes(state, occurrence)
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
            if stands == "next" and living is not None and state is not None:
                if reason := misfit(state, run.command_id, report.step_run_id, fact):
                    tick.dead_letters.append(message_letter(message, reason))
                    self._begin_anew(message.execution_id, state, run, reason, tick)
                    return
                self._note_given_up(living, run, fact, tick)
                identity = report_id(run, report.number)
                entry = input_entry(identity, index)
                ids = (report.step_run_id, identity)
                self._take(living, message, occurrence, "worker", bytes(raw), entry, ids, tick)
                state = living.state
        if state is not None and run.command_id in state.assignments:
            _tell_again(state, state.assignments[run.command_id], tick)

    def _note(
        self, living: Living, before: Execution | None, after: Execution, partition: int, tick: PendingTick
    ) -> None:
        """What stands beside the journal: the row people read, timers, and the answer to who asked for the execution.

        A rerun is answered when it is known whether it can be.
        """
        had = before.timers if before is not None else {}
        if had is not after.timers:
            tick.note_timers(after.execution_id, partition, had, after.timers)
        is_awaited = before is None or before.request is not None
        if is_awaited and after.request is None and after.parent is None:
            _note_answer(living, after, tick)
        tick.touch(after, partition, living.at_ms)

    def _begin_anew(
        self, execution_id: str, state: Execution | None, run: RunId, reason: str, tick: PendingTick
    ) -> None:
        """Nothing more is folded of this run: it ends, and its command is issued again, once."""
        log.warning("a run ends: %s", reason, extra={"execution": execution_id, "command": run.command_id})
        tick.stops.append(Stop(execution_id, [run.command_id], reason, run.nonce))
        if state is not None and state.assignments[run.command_id].issue == run.issue:
            self.order_again(execution_id, run.command_id, reason, tick)

    def _note_given_up(self, living: Living, run: RunId, fact: Fact, tick: PendingTick) -> None:
        """The receiver of one delivery too many does not run the command, but says so (PROTOCOL §3)."""
        state = living.state
        if state is None or not isinstance(fact, StepFailed | LoopIterationFailed):
            return
        owed = state.assignments[run.command_id]
        is_its_end = isinstance(fact, StepFailed) or fact.path == owed.path
        if is_its_end and fact.error.kind == "lease_exhausted" and run.num_delivered > state.limits.max_deliveries:
            self._write_off(living, owed, fact.error.message, tick)

    def _write_off(self, living: Living, owed: Assignment, reason: str, tick: PendingTick) -> None:
        if living.state is not None and isinstance(living.plan, Plan):
            command = command_for(living.plan, living.state, owed, partition_of(living.state.execution_id))
            tick.dead_letters.append(command_letter(command, living.at_ms, reason))

    def _take(
        self,
        living: Living,
        message: ReportedMessage,
        occurrence: Occurrence,
        source: str,
        data: bytes,
        entry: bytes,
        ids: tuple[str | None, str | None],
        tick: PendingTick,
    ) -> None:
        execution_id, before = message.execution_id, living.state
        advanced = advance(living.plan, before, occurrence, execution_id)
        after = advanced.state
        if not advanced.taken or after is None:
            return
        living.at_ms = at_ms = max(living.at_ms, message.at_ms)
        position = after.position - len(advanced.journal)
        number = occurrence.number if occurrence.run is not None else None
        row = EventRow(
            execution_id,
            position,
            name_of(occurrence.fact),
            source,
            at_ms,
            ids[0],
            ids[1],
            number,
            message.sequence,
            data,
        )
        tick.record_input(row, message.partition, entry, message.sequence)
        plan = living.plan if isinstance(living.plan, Plan) else None
        tick.record_decisions(plan, after, advanced.journal, message.partition, message.sequence, at_ms)
        living.state = after
        self._note(living, before, after, message.partition, tick)


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


def _note_answer(living: Living, state: Execution, tick: PendingTick) -> None:
    """The answer to the request that began the execution."""
    answer: dict[str, Any] = {"ok": True, "execution_id": state.execution_id}
    if isinstance(living.plan, Refusal):
        answer = refused(state.execution_id, Objection("invalid_playbook", living.plan.reason))
        answer["diagnostics"] = living.plan.diagnostics
    elif state.refused:
        first = state.refused[0]
        answer = refused(state.execution_id, Objection(first["code"], first["message"]))
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
