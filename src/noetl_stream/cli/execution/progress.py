"""Live progress of an execution: a table on a terminal, a plain log elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from noetl_stream.cli.base.output import say, say_json
from noetl_stream.client.executions.follow import ProgressUpdate
from noetl_stream.errors import PayloadRefused
from noetl_stream.model import codec, events
from noetl_stream.model.envelope import EventDocument, iso
from noetl_stream.ports.operations.executions import ReasonDocument
from noetl_stream.ports.operations.feed import FeedEvent

NOBODY: Final = frozenset({"no_worker", "no_server"})
"""Kinds of reasons to wait that last until somebody starts a process."""


@dataclass(slots=True)
class StepProgress:
    """The progress of one step."""

    runs: int = 0
    open: int = 0
    count: int = 0
    ended: int = 0
    failed: int = 0
    retries: int = 0
    state: str = "running"


@dataclass(slots=True)
class ProgressFold:
    """Folds events into what is shown.

    A worker's report may arrive before the record that says which step its run belongs to. It is kept until then.
    """

    steps: dict[str, StepProgress] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    early: dict[str, list[events.Fact]] = field(default_factory=dict)

    def lines(self, event: FeedEvent) -> list[str]:
        """The log lines of an event."""
        update = None if event.event is None else update_of(event.event)
        return [] if update is None else self.take(update)

    def take(self, update: ProgressUpdate) -> list[str]:
        """The log lines of an update."""
        fact = update.fact
        if isinstance(fact, events.TokenClaimed):
            step = self.targets.get(fact.token_id, "?")
            began = self._began(step, fact.step_run_id)
            waited = [self._moved(step, self.steps[step], one) for one in self.early.pop(fact.step_run_id, [])]
            return [began, *filter(None, waited)]
        run = getattr(fact, "step_run_id", None) or update.step_run_id
        if run is not None and run not in self.runs:
            self.early.setdefault(run, []).append(fact)
            return []
        line = (
            self._of_execution(fact) if run is None else self._moved(self.runs[run], self.steps[self.runs[run]], fact)
        )
        return [] if line is None else [line]

    def _of_execution(self, fact: events.Fact) -> str | None:
        if isinstance(fact, events.TokenEnqueued):
            self.targets[fact.token.token_id] = fact.token.step
            return None
        if isinstance(fact, events.ExecutionReused):
            tokens = [entry.token for entry in fact.entries if isinstance(entry, events.TokenEnqueued)]
            self.targets |= {token.token_id: token.step for token in tokens}
            reused = sum(isinstance(entry, events.StepReused) for entry in fact.entries)
            return f"reused {reused} step run{'' if reused == 1 else 's'} of execution {fact.of}"
        if isinstance(fact, events.TokenHeld):
            return f"token for {self.targets.get(fact.token_id, '?')} held at admission"
        if isinstance(fact, events.TokenDiscarded):
            return f"token for {self.targets.get(fact.token_id, '?')} discarded: {fact.reason}"
        if isinstance(fact, events.ExecutionFailing):
            return f"failing: {fact.error.kind}: {fact.error.message}"
        return None

    def _began(self, step: str, step_run_id: str) -> str:
        self.runs[step_run_id] = step
        shown = self.steps.setdefault(step, StepProgress())
        shown.runs += 1
        shown.open += 1
        shown.state = "running"
        return f"{step}: started"

    def _moved(self, step: str, shown: StepProgress, fact: events.Fact) -> str | None:
        if isinstance(fact, events.TaskProcessed):
            return self._processed(f"{step}{_place(fact.path)}.{fact.task}", shown, fact)
        if isinstance(fact, events.StepSuspended):
            return "\n".join(f"{step}{_place(wait.path)}: waiting {_awaited(wait)}" for wait in fact.waits) or None
        if isinstance(fact, events.StepResumed):
            return f"{step}{_place(fact.path)}: resumed"
        if isinstance(fact, events.LoopStarted):
            if fact.path:
                return None
            shown.count += 0 if shown.count else fact.count
            return f"{step}: loop of {fact.count}"
        if isinstance(fact, _ITERATION_ENDS) and fact.path:
            return self._iteration(step, shown, fact)
        if isinstance(fact, events.StepDone | events.LoopDone | events.StepFailed):
            shown.open -= 1
            shown.state = "failed" if isinstance(fact, events.StepFailed) else "done"
            why = f": {fact.error.kind}: {fact.error.message}" if isinstance(fact, events.StepFailed) else ""
            return f"{step}: {shown.state}{why}"
        if isinstance(fact, events.NextResting):
            return f"{step}: rests at next"
        if isinstance(fact, events.NextTimedOut):
            return f"{step}: rested at next until its time was over"
        return None

    def _processed(self, target: str, shown: StepProgress, fact: events.TaskProcessed) -> str | None:
        """The output of a task's code, then its retry (LANGUAGE §12 *python*)."""
        lines = [f"{target} | {line}" for line in fact.outcome.output.splitlines()]
        if fact.do == "retry":
            shown.retries += 1
            error = fact.outcome.error
            why = f"{error.kind}: {error.message}" if error else "by policy"
            lines.append(f"{target}: retry in {fact.delay_s:.2g} s after attempt {fact.attempt} ({why})")
        return "\n".join(lines) or None

    def _iteration(
        self,
        step: str,
        shown: StepProgress,
        fact: events.LoopIterationDone | events.LoopIterationFailed | events.LoopDone,
    ) -> str | None:
        """Counts the outermost level only: the number of iterations of inner loops is not known in advance."""
        outermost = len(fact.path) == 1
        shown.ended += outermost
        if isinstance(fact, events.LoopIterationFailed):
            shown.failed += outermost
            return f"{step}{_place(fact.path)}: failed: {fact.error.kind}: {fact.error.message}"
        if not outermost:
            return None
        if shown.count <= 20 or shown.ended == shown.count or shown.ended % max(1, shown.count // 10) == 0:
            return f"{step}: {shown.ended}/{shown.count} iterations"
        return None


_ITERATION_ENDS = events.LoopIterationDone | events.LoopIterationFailed | events.LoopDone


def _place(path: events.Path) -> str:
    return "".join(f"[{index}]" for index in path)


def _awaited(wait: events.Wait) -> str:
    if wait.signal is not None:
        return f"for the signal {wait.signal}"
    if wait.child is not None:
        return f"for playbook {wait.child.path}"
    if wait.key is not None:
        return f"for a slot of key {wait.key}"
    return f"{wait.delay_s or wait.for_s or 0:.3g} s" if wait.until_ms is None else f"until {iso(wait.until_ms)}"


def update_of(event: EventDocument) -> ProgressUpdate | None:
    """The fact in an envelope; ``None`` for a kind that only a newer release knows."""
    try:
        fact = codec.decode_fact(codec.encode({"name": event.name, **event.data}))
    except PayloadRefused:
        return None
    return ProgressUpdate(fact, event.step_run_id)


class ProgressView:
    """Shows an execution as it goes. This one shows nothing."""

    def event(self, event: FeedEvent) -> None:
        """Shows an event."""

    def waits(self, reasons: Sequence[ReasonDocument]) -> None:
        """Shows why nothing moves (:meth:`~noetl_stream.ports.operations.executions.Executions.why`)."""

    def close(self) -> None:
        """Stops showing."""


class Stalls(ProgressView):
    """One line on stderr when nobody takes the work; nothing else, since stdout is for a program (``-o json``)."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def waits(self, reasons: Sequence[ReasonDocument]) -> None:
        for reason in reasons:
            if reason.kind in NOBODY and reason.sentence not in self._shown:
                self._shown.add(reason.sentence)
                say(f"waiting: {reason.sentence}", err=True)


class EventLines(Stalls):
    """One line of JSON per event (``-o jsonl``)."""

    def event(self, event: FeedEvent) -> None:
        say_json(event.json)


class PlainProgress(ProgressView):
    """One line per change."""

    def __init__(self, *, stderr: bool) -> None:
        self._fold = ProgressFold()
        self._shown: set[str] = set()
        self._stderr = stderr

    def event(self, event: FeedEvent) -> None:
        for line in self._fold.lines(event):
            say(line, err=self._stderr)

    def waits(self, reasons: Sequence[ReasonDocument]) -> None:
        for reason in reasons:
            sentence = reason.sentence
            if sentence not in self._shown:
                self._shown.add(sentence)
                until = f" (until {reason.until})" if reason.until else ""
                say(f"waiting: {sentence}{until}", err=self._stderr)


def progress_for(output: str, *, stderr: bool = True) -> ProgressView:
    """The view that fits the output format and the terminal."""
    if output == "jsonl":
        return EventLines()
    if output != "text":
        return Stalls()
    if (sys.stderr if stderr else sys.stdout).isatty():
        from rich.console import Console

        from noetl_stream.cli.execution.live_progress import LiveProgress

        console = Console(stderr=stderr)
        if not console.is_dumb_terminal:
            return LiveProgress(console)
    return PlainProgress(stderr=stderr)
