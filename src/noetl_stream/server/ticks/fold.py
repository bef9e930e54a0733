"""The fold: turns inputs into a pending tick, one fact at a time, in stream order, without awaiting anything.

Every input takes the same path: it is decoded, advanced by the engine and recorded with its decisions, and its effects
are collected. A rejected input is answered here: a request with its rejection, a worker with an order to stop or start
over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from noetl_stream.engine.advance import Advanced, InvalidPlan, NotTaken, advance
from noetl_stream.engine.effects import QUARANTINED, AnswerStart, build_command
from noetl_stream.engine.evolve.worker_facts import form_fault
from noetl_stream.engine.state import Assignment, Execution, RecordedFact
from noetl_stream.errors import NewerFormat, PayloadRefused
from noetl_stream.model.aggregates import is_aggregate, is_key_of
from noetl_stream.model.bounds import bounds_exceeded
from noetl_stream.model.events import (
    CancelRequested,
    ClientRequest,
    CtxPatched,
    ExecutionRequested,
    Fact,
    LoopIterationFailed,
    ResumeRequested,
    RetryNowRequested,
    StepClaimed,
    StepFailed,
    StepScheduled,
    StepSuspended,
)
from noetl_stream.model.ids import RunId, is_valid_id, partition_of, report_id
from noetl_stream.model.json import codec
from noetl_stream.model.limits import Limits
from noetl_stream.model.messages import (
    AggregateRequest,
    ClientMessage,
    Drop,
    InboxMessage,
    NamespaceShare,
    Report,
    ReportedBody,
    Request,
    Stop,
    UnreadableCommand,
)
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.model.status import Rejection
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.stores.dead_letters import storable_text
from noetl_stream.ports.stores.store import InboxItem, StaleReportRow
from noetl_stream.ports.streams.command_queue import QueuedCommand
from noetl_stream.ports.streams.event_log import ReportedMessage
from noetl_stream.protocol.subjects import claim_answer, sender_of
from noetl_stream.server.answers.capabilities import Capabilities
from noetl_stream.server.formats import OLDER_SERVERS, Formats
from noetl_stream.server.memory.execution_cache import CachedExecution, ExecutionCache
from noetl_stream.server.playbook_measures import collect_ended_steps
from noetl_stream.server.ticks.tick import (
    Input,
    PendingTick,
    command_letter,
    inbox_letter,
    message_letter,
    refused_answer,
    unreadable_letter,
)
from noetl_stream.server.ticks.watching import WatchingTriggers

log = logging.getLogger(__name__)

MAX_COMMAND_BYTES = 3 * 1024 * 1024
"""The largest command that is sent: NATS accepts messages of 4 MiB (``max_payload``), and headers need room too."""

TICK_OPERATIONS: Final = 10_000
"""The most template work in one tick; the next one folds the remaining inputs."""

FOLD_S: Final = 0.1
"""The time after which a tick takes no further input: one start may issue a thousand commands."""

SHARED_FOLD_S: Final = 0.01
"""The same while namespaces compete, of whom each waits for the tick of another."""

BYTES_PER_OPERATION: Final = 256
"""The bytes that count as one operation of a tick: of a changed ``ctx``, which is measured, and of events of ends."""

FREEING: Final = (CancelRequested, ResumeRequested)
"""The requests that a quarantined execution accepts."""

IN_NO_JOURNAL = 0
"""The position in the answer to a request without effect."""


class Fold:
    """The fold of one tick: updates cached executions, and collects in ``tick`` the rows and messages.

    Args:
        share_of: Returns the share of the namespace of a playbook's path, for its commands.
        is_late: Returns whether the tick has taken its time.
    """

    def __init__(
        self,
        executions: ExecutionCache,
        capabilities: Capabilities,
        formats: Formats,
        triggers: WatchingTriggers,
        share_of: Callable[[str], NamespaceShare],
        is_late: Callable[[], bool],
    ) -> None:
        self._executions = executions
        self._triggers = triggers
        self._capabilities = capabilities
        self._formats = formats
        self.tick = PendingTick(
            lambda command, path: capabilities.encode(command, share_of(path)), formats.writes
        )  # without this fold, which would be in a cycle with all states of the tick
        self._operations = 0
        self._is_late = is_late

    @property
    def is_costly(self) -> bool:
        """Whether template work has used up the tick."""
        return self._operations >= TICK_OPERATIONS

    @property
    def is_full(self) -> bool:
        """Whether the remaining inputs are left to the next tick."""
        return self.is_costly or self._is_late()

    def decode(self, message: ReportedMessage) -> ReportedBody | None:
        """Decodes a message; ``None`` if it cannot be folded and becomes a dead letter.

        Raises:
            NewerFormat: a newer server can read the message.
        """
        try:
            codec.check_text(message.body)  # facts are stored as received, including parts that nothing decodes
            body = codec.decode_reported(message.body)
        except PayloadRefused as error:
            reason = self._too_new(message, codec.newer_format(message.body, self._formats.reads)) or str(error)
        else:
            reason = (
                self._too_new(message, body.format)
                or _reason_to_refuse(message, body)
                or self._not_allowed(message, body)
            )
            if not reason:
                return body
            if isinstance(body, Report):
                self._turn_away(message, body, reason)
        self.tick.dead_letters.append(message_letter(message, reason))
        return None

    def _too_new(self, message: ReportedMessage, written: int) -> str:
        """Returns the reason for refusing a message in a format that no known server reads; else ``""``."""
        reads = self._formats.reads
        if written <= reads:
            return ""
        if self._formats.is_read_by_another(written):
            raise NewerFormat(message.partition, f"message {message.sequence} of EVENTS has format {written}")
        return f"it has format {written}, this server reads up to {reads}: put it back after an upgrade"

    def _turn_away(self, message: ReportedMessage, report: Report, reason: str) -> None:
        """Refuses a claim with an invalid capability. Its copy leaves the queue, and reconcile issues another."""
        pool = sender_of(message.subject).pool
        if pool and self._capabilities.pool_of(report) is None and _ids_valid(report):
            self.tick.drops.append((claim_answer(pool, report.run), Drop(reason)))

    def _not_allowed(self, message: ReportedMessage, body: ReportedBody) -> str:
        """Returns why the sender may not send this message, by its kind or its capability; ``""`` if it may."""
        sender = sender_of(message.subject)
        if isinstance(body, ClientMessage):
            return "workers make no requests: its subject is for reports" if sender.pool else ""
        if sender.kind == "requested":
            return "people make no reports: its subject is for requests"
        if isinstance(body, UnreadableCommand):
            return "" if sender.pool else "its subject names no pool"
        pool = self._capabilities.pool_of(body)
        if pool is None:
            return f"it shows no capability for issue {body.issue} of command {body.command_id}"
        if sender.pool not in ("", pool):
            return f"a worker of pool {sender.pool} reports on a command of pool {pool}"
        return ""

    def decode_inbox(self, item: InboxItem, at_ms: int) -> InboxMessage | None:
        """Decodes an inbox message; ``None`` if it becomes a dead letter. It is deleted in both cases.

        Raises:
            NewerFormat: a newer server has written the message.
        """
        message, refusal = None, ""
        try:
            message = codec.decode_inbox(item.body)
            written = message.format
        except PayloadRefused as error:
            refusal, written = str(error), codec.newer_format(item.body, self._formats.reads)
        if written > self._formats.reads:
            raise NewerFormat(item.partition, f"message {item.seq} of the inbox has format {written}")
        self.tick.inbox_folded.append(item.seq)
        if refusal:
            self.tick.dead_letters.append(inbox_letter(item, at_ms, refusal))
        return message

    def fold_messages(self, bodies: Sequence[tuple[ReportedMessage, ReportedBody]]) -> int:
        """Folds reported messages until the tick is full; returns how many were folded."""
        for number, (message, body) in enumerate(bodies, start=1):
            self.fold_message(message, body)
            if self.is_full:
                return number
        return len(bodies)

    def fold_message(self, message: ReportedMessage, body: ReportedBody) -> None:
        """Folds a message; requests to aggregates are left to the aggregates."""
        if isinstance(body, AggregateRequest):
            return
        cached = self._executions.get(message.execution_id)
        if cached is not None:
            cached.through = message.sequence
        if isinstance(body, Report):
            if cached is not None and cached.state is not None and cached.state.quarantined:
                self._set_aside(message, body)
            else:
                self._fold_report(cached, message, body)
        elif isinstance(body, UnreadableCommand):
            self._give_up_unreadable(cached, message, body)
        elif cached is not None:
            self._fold_request(cached, message, body)

    def _set_aside(self, message: ReportedMessage, report: Report) -> None:
        """Keeps a worker's report on a quarantined execution as a dead letter; tells the worker to stop."""
        if (pool := self._capabilities.pool_of(report)) is not None:
            self.tick.claims.append((claim_answer(pool, report.run), message.execution_id, report.run))
        stop = Stop(message.execution_id, [report.run.command_id], QUARANTINED, report.run.nonce)
        self.tick.stops.append(stop)
        self.tick.dead_letters.append(message_letter(message, QUARANTINED))

    def _give_up_unreadable(
        self, cached: CachedExecution | None, message: ReportedMessage, body: UnreadableCommand
    ) -> None:
        """Keeps a command that no worker could read, and fails its step run, if it was given to this pool."""
        self.tick.dead_letters.append(unreadable_letter(message, body))
        assignment = self._executions.assignment(message.execution_id, body.command_id)
        if cached is None or assignment is None or not isinstance(cached.plan, Plan) or cached.state is None:
            return
        step = cached.plan.steps[cached.state.runs[assignment.step_run_id].step]
        if cached.state.pools.get(step.name, step.pool) == sender_of(message.subject).pool:
            fact = StepFailed(assignment.step_run_id, ErrorInfo("lease_exhausted", storable_text(body.reason)))
            self.own_input(message.execution_id, RecordedFact(fact, at_ms=message.at_ms))

    def inbox_message(self, item: InboxItem, message: InboxMessage, at_ms: int) -> None:
        """Folds an inbox message; one to a quarantined execution becomes a dead letter."""
        state = self._executions.state(message.execution_id)
        if state is not None and state.quarantined and not isinstance(message.fact, FREEING):
            self.tick.dead_letters.append(inbox_letter(item, at_ms, QUARANTINED))
        else:
            self.own_input(message.execution_id, RecordedFact(message.fact, at_ms=at_ms))

    def own_input(self, execution_id: str, recorded: RecordedFact) -> None:
        """Folds an input that did not come through EVENTS: timer, inbox, reference, reconcile.

        A quarantined execution takes only a resumption or a cancellation: its state waits for other inputs again
        afterwards.
        """
        cached = self._executions.get(execution_id)
        if cached is None:
            return
        quarantined = cached.state is not None and cached.state.quarantined
        is_resumed = isinstance(recorded.fact, ResumeRequested)
        if not quarantined or (isinstance(recorded.fact, FREEING) and not (is_resumed and cached.unloadable)):
            self._apply(cached, execution_id, Input.by_server(recorded))

    def issue_again(self, execution_id: str, command_id: str, reason: str) -> None:
        """Reissues an owed command, unless it was reissued too often (PROTOCOL §2, §3)."""
        cached = self._executions.get(execution_id)
        assignment = self._executions.assignment(execution_id, command_id)
        if cached is None or cached.state is None or assignment is None:
            return
        fact: Fact = StepScheduled(assignment.step_run_id, command_id, assignment.path, assignment.issue + 1, reason)
        error = _issued_too_often(assignment, cached.state.limits, reason)
        if error is not None:
            self._fail_step(cached, cached.state, assignment, error.message)
            fact = StepFailed(assignment.step_run_id, error)
        self.own_input(execution_id, RecordedFact(fact))

    def refuse_oversized(self) -> None:
        """Fails the steps of commands that are too large to send, naming the limit, so that they block nothing."""
        tick = self.tick
        while large := [command for command in tick.commands if len(command.body) > MAX_COMMAND_BYTES]:
            tick.commands = [command for command in tick.commands if len(command.body) <= MAX_COMMAND_BYTES]
            for command in large:
                self._refuse(command)

    def _refuse(self, command: QueuedCommand) -> None:
        assignment = self._executions.assignment(command.execution_id, command.command_id)
        if assignment is None:
            return
        text = (
            f"the command for this step has {len(command.body)} bytes, more than {MAX_COMMAND_BYTES}: "
            "its templates read too much of ctx, workload and step results at once"
        )
        fact = StepFailed(assignment.step_run_id, ErrorInfo("limit_exceeded", text))
        self.own_input(command.execution_id, RecordedFact(fact))

    # --- inputs from EVENTS -------------------------------------------------------------------------------------------

    def _fold_request(self, cached: CachedExecution, message: ReportedMessage, request: Request) -> None:
        fact = request.fact
        given = Input.by_client(message, request)
        if not isinstance(fact, ClientRequest):
            if cached.state is None:  # else already folded: no request is evaluated twice (PROTOCOL §1)
                self._apply(cached, message.execution_id, given)
        elif cached.unloadable and isinstance(fact, ResumeRequested):
            refusal = Rejection("quarantined", f"execution {message.execution_id} cannot go on: {cached.unloadable}")
            self._reject(fact.request_id, message.execution_id, refusal)
        elif isinstance(fact, RetryNowRequested) and not self._formats.know_aggregates:
            # A server of version 0.3 that took over the execution could no longer read its journal.
            self._reject(fact.request_id, message.execution_id, OLDER_SERVERS)
        elif cached.state is not None and not isinstance(cached.plan, InvalidPlan):
            position = cached.state.position + 1
            advanced = self._apply(cached, message.execution_id, given)
            self._answer(fact.request_id, message.execution_id, advanced, position)

    def _answer(self, request_id: str, execution_id: str, advanced: Advanced, position: int) -> None:
        """Answers a request to a live execution: done, already done, or rejected."""
        refusal = advanced.refusal
        if isinstance(refusal, Rejection):
            self._reject(request_id, execution_id, refusal)
            return
        answer: dict[str, Any] = {"ok": True, "execution_id": execution_id}
        if refusal is not None:
            self.tick.answer(request_id, execution_id, answer | {"already": True}, IN_NO_JOURNAL)
        else:
            self.tick.answer(request_id, execution_id, answer | {"position": position}, position)

    def _reject(self, request_id: str, execution_id: str, refusal: Rejection) -> None:
        self.tick.answer(request_id, execution_id, refused_answer(execution_id, refusal), IN_NO_JOURNAL)

    def _fold_report(self, cached: CachedExecution | None, message: ReportedMessage, report: Report) -> None:
        try:
            facts = _facts_of(report)
            self._check_calls(report, facts)
        except PayloadRefused as error:
            self.tick.dead_letters.append(message_letter(message, str(error)))
            return
        run, number, has_taken = report.run, report.first, False
        identity = report_id(run, report.number)
        for index, fact in enumerate(facts):
            if isinstance(fact, StepClaimed) and not fact.returned:
                pool = self._capabilities.pool_of(report) or ""
                self.tick.claims.append((claim_answer(pool, run), message.execution_id, run))
            before = cached.state if cached is not None else None
            given = Input(
                RecordedFact(fact, run, number, message.at_ms, step_run_id=report.step_run_id),
                source="worker",
                data=bytes(report.events[index]),
                sequence=message.sequence,
                message_id=identity,
                place=index,
            )
            number += fact.width
            refusal: Rejection | NotTaken | None = _UNKNOWN
            if cached is not None:
                advanced = self._apply(cached, message.execution_id, given, shares_budget=has_taken)
                refusal, has_taken = advanced.refusal, has_taken or advanced.taken
            if isinstance(refusal, NotTaken) and not self._handle_not_taken(message, run, fact, refusal):
                if refusal.code in _STALE and cached is not None and cached.state is not None:
                    self._record_stale(message, identity, _STALE[refusal.code])
                return
            if cached is not None and before is not None and refusal is None:
                self._give_up(cached, before, run, fact)
        if cached is not None and cached.state is not None:
            self._repeat_stop(cached.state, run.command_id)

    def _check_calls(self, report: Report, facts: Sequence[Fact]) -> None:
        """Checks that a report calls only pinned playbooks.

        Raises:
            PayloadRefused: the command would call a playbook that no server has resolved for its execution.
        """
        calls = [wait.child for fact in facts if isinstance(fact, StepSuspended) for wait in fact.waits]
        for call in calls:
            if call is not None and not self._capabilities.is_pinned(report.execution_id, call):
                raise PayloadRefused(f"it calls playbook {call.path}, which was not resolved for this execution")

    def _handle_not_taken(self, message: ReportedMessage, run: RunId, fact: Fact, refusal: NotTaken) -> bool:
        """Handles a worker's fact that was not taken; returns whether to fold the rest of its report."""
        if refusal.code in _STALE and not isinstance(fact, StepClaimed):
            reason = "the fold rejected its report"
            self.tick.stops.append(Stop(message.execution_id, [run.command_id], reason, run.nonce))
            return False
        if refusal.code == "gap":
            self._restart_run(message.execution_id, run, "an earlier report is missing")
            return False
        if refusal.code == "misfit":
            self.tick.dead_letters.append(message_letter(message, refusal.text))
            self._restart_run(message.execution_id, run, refusal.text)
            return False
        return True

    def _record_stale(self, message: ReportedMessage, identity: str, reason: str) -> None:
        log.info("report refused: %s", reason, extra={"execution": message.execution_id, "report": identity})
        row = StaleReportRow(
            execution_id=message.execution_id,
            report_id=identity,
            source_seq=message.sequence,
            at_ms=message.at_ms,
            reason=reason,
        )
        self.tick.stale_reports.append(row)

    def _restart_run(self, execution_id: str, run: RunId, reason: str) -> None:
        """Stops this run and reissues its command, once."""
        log.warning("run stopped: %s", reason, extra={"execution": execution_id, "command": run.command_id})
        self.tick.stops.append(Stop(execution_id, [run.command_id], reason, run.nonce))
        assignment = self._executions.assignment(execution_id, run.command_id)
        if assignment is not None and assignment.issue == run.issue:
            self.issue_again(execution_id, run.command_id, reason)

    def _repeat_stop(self, state: Execution, command_id: str) -> None:
        """Repeats a stop or pause to a worker that still reports: it may have missed the first."""
        assignment = state.assignments.get(command_id)
        if assignment is None:
            return
        if assignment.cancelling:
            self.tick.stops.append(Stop(state.execution_id, [command_id], assignment.cancelling))
        elif state.paused_at_ms:
            self.tick.stops.append(Stop(state.execution_id, [command_id], "paused", pausing=True))

    def _give_up(self, cached: CachedExecution, before: Execution, run: RunId, fact: Fact) -> None:
        """Gives up a command once its worker reports one delivery too many without having run it (PROTOCOL §3)."""
        if not isinstance(fact, _FAILURES):
            return
        assignment = before.assignments[run.command_id]
        is_its_end = isinstance(fact, StepFailed) or fact.path == assignment.path
        if is_its_end and fact.error.kind == "lease_exhausted" and run.num_delivered > before.limits.max_deliveries:
            self._fail_step(cached, before, assignment, fact.error.message)

    def _fail_step(self, cached: CachedExecution, state: Execution, assignment: Assignment, reason: str) -> None:
        if isinstance(cached.plan, Plan):
            command = build_command(cached.plan, state, assignment)
            self.tick.dead_letters.append(command_letter(command, cached.at_ms, reason))

    # --- the common path ----------------------------------------------------------------------------------------------

    def _apply(
        self, cached: CachedExecution, execution_id: str, given: Input, *, shares_budget: bool = False
    ) -> Advanced:
        """Applies one input: the engine advances the execution, the tick collects the results.

        Args:
            shares_budget: Whether a fact of the same report precedes it.
        """
        at_ms = max(cached.at_ms, given.recorded.at_ms)
        recorded = given.recorded if given.source != "server" else replace(given.recorded, at_ms=at_ms)
        position = 1 if cached.state is None else cached.state.position + 1
        spent = cached.state.budget.spent if shares_budget and cached.state is not None else 0
        before = cached.state
        advanced = advance(cached.plan, before, recorded, execution_id, shares_budget=shares_budget)
        after = advanced.state
        if after is None:
            return advanced
        if isinstance(recorded.fact, CtxPatched) or (before is not None and after.ctx is not before.ctx):
            self._operations += after.ctx_bytes // BYTES_PER_OPERATION
        if not advanced.taken:
            return advanced
        self._operations += after.budget.spent - spent
        cached.state, cached.at_ms = after, at_ms
        cached.started_ms = cached.started_ms or at_ms
        self.tick.record(given, position, advanced.journal, cached)
        if before is not None:
            collect_ended_steps(self.tick.steps_ended, before, (recorded.fact, *advanced.journal), at_ms)
        own = self.tick.collect(execution_id, advanced.effects)
        if after.ended and (before is None or not before.ended):
            ends = self._triggers.end_messages(after, cached.labels, cached.started_ms, at_ms)
            told = self.tick.tell_triggers(ends, after.position, execution_id)
            self._operations += told // BYTES_PER_OPERATION
        for effect in own:
            if isinstance(effect, AnswerStart):
                self._answer_start(cached, after, effect)
            else:
                emitted = self._triggers.event_messages(after, effect, cached.labels, at_ms)
                told = self.tick.tell_triggers(emitted, effect.position, execution_id)
                self._operations += told // BYTES_PER_OPERATION
        if before is not None and before.quarantined and not after.quarantined:
            for command_id in after.assignments:  # the quarantine has withdrawn the queued commands
                self.issue_again(execution_id, command_id, "resumed")
        return advanced

    def _answer_start(self, cached: CachedExecution, state: Execution, effect: AnswerStart) -> None:
        answer: dict[str, Any] = {"ok": True, "execution_id": state.execution_id}
        if isinstance(cached.plan, InvalidPlan):
            answer = refused_answer(state.execution_id, Rejection(cached.plan.kind, cached.plan.reason))
            answer["diagnostics"] = cached.plan.diagnostics
        elif effect.diagnostics:
            first = effect.diagnostics[0]
            answer = refused_answer(state.execution_id, Rejection(first["code"], first["message"]))
        self.tick.answer(state.request_id, state.execution_id, answer, 1, push=False)


_UNKNOWN = NotTaken("unknown")
_STALE: Final[Mapping[str, str]] = {
    "stale": "another run has the command",
    "unknown": "the command has ended, or this issue of it was never ordered",
}
"""The reason why a report changes nothing, by the code of its refusal."""

_FAILURES = (StepFailed, LoopIterationFailed)


def _issued_too_often(assignment: Assignment, limits: Limits, reason: str) -> ErrorInfo | None:
    """Returns the error that ends a command issued too often."""
    lost = assignment.issue - (assignment.run.issue if assignment.run is not None else 0)
    if not lost and assignment.taken >= limits.max_deliveries:  # workers acknowledge it, but its end is never folded
        most = f"limits.max_deliveries is {limits.max_deliveries}"
        text = f"taken up {assignment.taken} times without an end ({most}); last: {reason}"
        return ErrorInfo("lease_exhausted", text)
    if lost >= limits.max_issues:
        most = f"limits.max_issues is {limits.max_issues}"
        text = f"issued {lost} times, and lost before a worker took it ({most}); last: {reason}"
        return ErrorInfo("command_lost", text)
    return None


def _facts_of(report: Report) -> list[Fact]:
    """Decodes the facts of a report.

    Raises:
        PayloadRefused: a fact does not decode, or is one no worker may report.
    """
    facts = [codec.decode_fact(raw) for raw in report.events]
    for fact in facts:
        if reason := form_fault(fact):
            raise PayloadRefused(reason)
    return facts


def _reason_to_refuse(message: ReportedMessage, body: ReportedBody) -> str:
    if message.partition != partition_of(message.execution_id):
        return "its subject names a partition other than its execution's"
    if body.execution_id != message.execution_id:
        return "its subject and body name different executions"
    if not (is_valid_id(body.nonce) if isinstance(body, Report) else _ids_valid(body)):  # a capability proves the rest
        return "it contains an id that is not valid in a subject"
    if isinstance(body, AggregateRequest):
        if not is_key_of(body.execution_id, body.fact.key):
            return "its id is not that of the key it names"
    elif is_aggregate(body.execution_id):
        return "it is for an execution, and its id is an aggregate's"
    if not isinstance(body, ClientMessage):
        return ""
    if body.fact.request_id != body.request_id:
        return "it is sent under one request id, and its fact has another"
    return bounds_exceeded(body.fact)


def _ids_valid(body: ReportedBody) -> bool:
    if isinstance(body, AggregateRequest):
        return is_valid_id(body.execution_id) and is_valid_id(body.request_id)
    if isinstance(body, Request):
        fact = body.fact
        ids: Sequence[str] = (body.execution_id, body.request_id)
        if isinstance(fact, ExecutionRequested):
            ids = (*ids, fact.digest, *([fact.rerun.of] if fact.rerun is not None else ()))
        return all(map(is_valid_id, ids))
    if isinstance(body, Report):
        return all(map(is_valid_id, (body.execution_id, body.command_id, body.step_run_id, body.nonce)))
    return is_valid_id(body.execution_id) and is_valid_id(body.command_id)
