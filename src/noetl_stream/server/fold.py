"""The fold: inputs in, a pending tick out. One fact at a time, in the order of the stream, nothing awaited.

Every input takes one way: decoded, advanced by the engine, recorded with its decisions, its effects collected. What
is not taken is answered here: a request with its rejection, a worker with an order to stop or to begin anew.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from noetl_stream.engine.advance import Advanced, InvalidPlan, NotTaken, advance
from noetl_stream.engine.effects import AnswerStart
from noetl_stream.engine.effects.commands import build_command
from noetl_stream.engine.evolve.worker_facts import malformed
from noetl_stream.engine.state import Assignment, Execution, RecordedFact
from noetl_stream.errors import PayloadRefused
from noetl_stream.model import codec
from noetl_stream.model.events import (
    ClientRequest,
    ExecutionRequested,
    Fact,
    LoopIterationFailed,
    StepClaimed,
    StepFailed,
    StepScheduled,
)
from noetl_stream.model.ids import RunId, is_valid_id, partition_of, report_id
from noetl_stream.model.messages import InboxMessage, Report, Request, Stop
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.model.rejection import Rejection
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.command_queue import QueuedCommand
from noetl_stream.ports.event_log import ReportedMessage
from noetl_stream.ports.store import InboxItem
from noetl_stream.server.dead_letters import command_letter, inbox_letter, message_letter
from noetl_stream.server.execution_cache import CachedExecution, ExecutionCache
from noetl_stream.server.tick import Input, PendingTick, input_entry, refused

log = logging.getLogger(__name__)

MAX_COMMAND_BYTES = 3 * 1024 * 1024
"""A command above this is not sent: NATS must take messages of 4 MiB (``max_payload``), and headers need room too."""

IN_NO_JOURNAL = 0
"""The position of a request that changed nothing."""


class Fold:
    """The fold of one tick: changes cached executions, and collects in ``tick`` what is to be written and sent."""

    def __init__(self, executions: ExecutionCache) -> None:
        self._executions = executions
        self.tick = PendingTick()

    def decode(self, message: ReportedMessage) -> Request | Report | None:
        """The message, or ``None`` for one that cannot be folded: it is passed over as a dead letter."""
        try:
            codec.check_text(message.body)  # facts are kept as they came, with parts that nobody decodes
            body = codec.decode_reported(message.body)
        except PayloadRefused as error:
            reason = str(error)
        else:
            reason = _reason_to_refuse(message, body)
            if not reason:
                return body
        self.tick.dead_letters.append(message_letter(message, reason))
        return None

    def decode_inbox(self, item: InboxItem, at_ms: int) -> InboxMessage | None:
        """The message between executions, or ``None``: it is passed over as a dead letter. It is deleted either way."""
        self.tick.inbox_folded.append(item.seq)
        try:
            return codec.decode_inbox(item.body)
        except PayloadRefused as error:
            self.tick.dead_letters.append(inbox_letter(item, at_ms, str(error)))
            return None

    def message(self, message: ReportedMessage, body: Request | Report) -> None:
        """Folds one reported message."""
        cached = self._executions.get(message.execution_id)
        if cached is not None:
            cached.through = message.sequence
        if isinstance(body, Report):
            self._report(cached, message, body)
        elif cached is not None:
            self._request(cached, message, body)

    def own_input(self, execution_id: str, recorded: RecordedFact) -> None:
        """Folds an input that did not come through EVENTS: timer, inbox, reference, reconcile."""
        cached = self._executions.get(execution_id)
        if cached is not None:
            self._apply(cached, execution_id, Input.by_server(recorded))

    def issue_again(self, execution_id: str, command_id: str, reason: str) -> None:
        """A command that is owed an end goes out once more, unless that has been tried too often (PROTOCOL §2, §3)."""
        cached = self._executions.get(execution_id)
        state = cached.state if cached is not None else None
        assignment = state.assignments.get(command_id) if state is not None else None
        if cached is None or state is None or assignment is None:
            return
        fact: Fact = StepScheduled(assignment.step_run_id, command_id, assignment.path, assignment.issue + 1, reason)
        taken_up = assignment.run is not None and assignment.run.issue == assignment.issue
        if taken_up and assignment.issue >= (most := state.limits.max_deliveries):
            # Workers take it and acknowledge it, and no end of it can be folded: that is not to go on for ever.
            text = f"issued {assignment.issue} times without an end (limits.max_deliveries is {most}); last: {reason}"
            self._write_off(cached, state, assignment, text)
            fact = StepFailed(assignment.step_run_id, ErrorInfo("lease_exhausted", text))
        self.own_input(execution_id, RecordedFact(fact))

    def refuse_oversized(self) -> None:
        """Commands too large to be sent fail their step, with the limit named, instead of sticking in the pipeline."""
        tick = self.tick
        while large := [command for command in tick.commands if len(command.body) > MAX_COMMAND_BYTES]:
            tick.commands = [command for command in tick.commands if len(command.body) <= MAX_COMMAND_BYTES]
            for command in large:
                self._refuse(command)

    def _refuse(self, command: QueuedCommand) -> None:
        cached = self._executions.get(command.execution_id)
        state = cached.state if cached is not None else None
        assignment = state.assignments.get(command.command_id) if state is not None else None
        if assignment is None:
            return
        text = (
            f"the command for this step has {len(command.body)} bytes, more than {MAX_COMMAND_BYTES}: "
            "its templates read too much of ctx, workload and step results at once"
        )
        fact = StepFailed(assignment.step_run_id, ErrorInfo("limit_exceeded", text))
        self.own_input(command.execution_id, RecordedFact(fact))

    # --- what comes through EVENTS ------------------------------------------------------------------------------------

    def _request(self, cached: CachedExecution, message: ReportedMessage, request: Request) -> None:
        fact = request.fact
        given = Input(
            RecordedFact(fact, at_ms=message.at_ms),
            source="client",
            data=codec.encode(fact),
            sequence=message.sequence,
            entry=input_entry(request.request_id, 0),
        )
        if not isinstance(fact, ClientRequest):
            if cached.state is None:  # else folded before: a request is never evaluated again (PROTOCOL §1)
                self._apply(cached, message.execution_id, given)
        elif cached.state is not None and isinstance(cached.plan, Plan):
            position = cached.state.position + 1
            advanced = self._apply(cached, message.execution_id, given)
            self._answer(fact.request_id, message.execution_id, advanced, position)

    def _answer(self, request_id: str, execution_id: str, advanced: Advanced, position: int) -> None:
        """To whoever asks something of an execution that lives: done, done already, or refused."""
        refusal = advanced.refusal
        if isinstance(refusal, Rejection):
            self.tick.answer(request_id, execution_id, refused(execution_id, refusal), IN_NO_JOURNAL)
            return
        answer: dict[str, Any] = {"ok": True, "execution_id": execution_id}
        if refusal is not None:
            self.tick.answer(request_id, execution_id, answer | {"already": True}, IN_NO_JOURNAL)
        else:
            self.tick.answer(request_id, execution_id, answer | {"position": position}, position)

    def _report(self, cached: CachedExecution | None, message: ReportedMessage, report: Report) -> None:
        try:
            facts = _facts_of(report)
        except PayloadRefused as error:
            self.tick.dead_letters.append(message_letter(message, str(error)))
            return
        identity = report_id(report.run, report.number)
        for index, fact in enumerate(facts):
            if isinstance(fact, StepClaimed):
                self.tick.claims.append((fact.reply, message.execution_id, report.run))
            before = cached.state if cached is not None else None
            given = Input(
                RecordedFact(fact, report.run, report.first + index, message.at_ms, step_run_id=report.step_run_id),
                source="worker",
                data=bytes(report.events[index]),
                sequence=message.sequence,
                report_id=identity,
                entry=input_entry(identity, index),
            )
            refusal = _UNKNOWN if cached is None else self._apply(cached, message.execution_id, given).refusal
            if isinstance(refusal, NotTaken) and not self._goes_on(message, report.run, fact, refusal):
                return
            if cached is not None and before is not None and refusal is None:
                self._note_given_up(cached, before, report.run, fact)
        if cached is not None and cached.state is not None:
            self._remind(cached.state, report.run.command_id)

    def _goes_on(self, message: ReportedMessage, run: RunId, fact: Fact, refusal: NotTaken) -> bool:
        """What a worker hears of a fact that was not taken; whether the rest of its report is looked at."""
        if refusal.code in ("stale", "unknown") and not isinstance(fact, StepClaimed):
            reason = "the fold refused its report"
            self.tick.stops.append(Stop(message.execution_id, [run.command_id], reason, run.nonce))
            return False
        if refusal.code == "gap":
            self._begin_anew(message.execution_id, run, "a report before it is missing")
            return False
        if refusal.code == "misfit":
            self.tick.dead_letters.append(message_letter(message, refusal.text))
            self._begin_anew(message.execution_id, run, refusal.text)
            return False
        return True

    def _begin_anew(self, execution_id: str, run: RunId, reason: str) -> None:
        """Nothing more is folded of this run: it ends, and its command is issued again, once."""
        log.warning("a run ends: %s", reason, extra={"execution": execution_id, "command": run.command_id})
        self.tick.stops.append(Stop(execution_id, [run.command_id], reason, run.nonce))
        cached = self._executions.get(execution_id)
        if (
            cached is not None
            and cached.state is not None
            and cached.state.assignments[run.command_id].issue == run.issue
        ):
            self.issue_again(execution_id, run.command_id, reason)

    def _remind(self, state: Execution, command_id: str) -> None:
        """Whoever reports for a command that is not wanted any more, or is to pause, may not have heard of it."""
        assignment = state.assignments.get(command_id)
        if assignment is None:
            return
        if assignment.cancelling:
            self.tick.stops.append(Stop(state.execution_id, [command_id], assignment.cancelling))
        elif state.paused_at_ms:
            self.tick.stops.append(Stop(state.execution_id, [command_id], "paused", pausing=True))

    def _note_given_up(self, cached: CachedExecution, before: Execution, run: RunId, fact: Fact) -> None:
        """The receiver of one delivery too many does not run the command, but says so (PROTOCOL §3)."""
        if not isinstance(fact, StepFailed | LoopIterationFailed):
            return
        assignment = before.assignments[run.command_id]
        is_its_end = isinstance(fact, StepFailed) or fact.path == assignment.path
        if is_its_end and fact.error.kind == "lease_exhausted" and run.num_delivered > before.limits.max_deliveries:
            self._write_off(cached, before, assignment, fact.error.message)

    def _write_off(self, cached: CachedExecution, state: Execution, assignment: Assignment, reason: str) -> None:
        if isinstance(cached.plan, Plan):
            command = build_command(cached.plan, state, assignment)
            self.tick.dead_letters.append(command_letter(command, cached.at_ms, reason))

    # --- the one way in -----------------------------------------------------------------------------------------------

    def _apply(self, cached: CachedExecution, execution_id: str, given: Input) -> Advanced:
        """One input: the engine advances the execution, the tick collects what that led to."""
        at_ms = max(cached.at_ms, given.recorded.at_ms)
        recorded = given.recorded if given.source != "server" else given.recorded._replace(at_ms=at_ms)
        advanced = advance(cached.plan, cached.state, recorded, execution_id)
        after = advanced.state
        if not advanced.taken or after is None:
            return advanced
        cached.state, cached.at_ms = after, at_ms
        cached.started_ms = cached.started_ms or at_ms
        partition = partition_of(execution_id)
        self.tick.record(given, advanced.journal, after, partition, cached.through, at_ms)
        self.tick.collect(execution_id, partition, advanced.effects)
        for effect in advanced.effects:
            if isinstance(effect, AnswerStart):
                self._answer_start(cached, after, effect)
        return advanced

    def _answer_start(self, cached: CachedExecution, state: Execution, effect: AnswerStart) -> None:
        answer: dict[str, Any] = {"ok": True, "execution_id": state.execution_id}
        if isinstance(cached.plan, InvalidPlan):
            answer = refused(state.execution_id, Rejection("invalid_playbook", cached.plan.reason))
            answer["diagnostics"] = cached.plan.diagnostics
        elif effect.diagnostics:
            first = effect.diagnostics[0]
            answer = refused(state.execution_id, Rejection(first["code"], first["message"]))
        self.tick.answer(state.request_id, state.execution_id, answer, 1, push=False)


_UNKNOWN = NotTaken("unknown")


def _facts_of(report: Report) -> list[Fact]:
    """What it reports.

    Raises:
        PayloadRefused: some of it is no fact, or none that a worker can mean.
    """
    facts = [codec.decode_fact(raw) for raw in report.events]
    if reason := next(filter(None, map(malformed, facts)), ""):
        raise PayloadRefused(reason)
    return facts


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
