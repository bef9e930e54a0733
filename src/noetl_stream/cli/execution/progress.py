"""Live progress of an execution: a picture on a terminal, lines elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from noetl_stream.cli.base.activity import activity
from noetl_stream.cli.base.output import say, say_json
from noetl_stream.errors import PayloadRefused
from noetl_stream.model import events
from noetl_stream.model.envelope import EventDocument, iso
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.operations.executions.follow import ProgressUpdate
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
    error: ErrorInfo | None = None
    """Of the last failure or retry."""

    def parts(self) -> str:
        """What a loop, or a step with retries, has had: ``, 200 iterations, 4 failed, 9 retries``; empty for others."""
        found = [counted(self.ended, "iteration")] if self.count else []
        found += [f"{self.failed:,} failed"] if self.failed else []
        found += [f"{self.retries:,} {'retry' if self.retries == 1 else 'retries'}"] if self.retries else []
        return "".join(f", {part}" for part in found)


Kind = Literal["started", "loop", "count", "output", "retry", "wait", "failed", "ended", "failing", "token"]
"""What a line is about."""


class ProgressLine(NamedTuple):
    """A line of the log of an execution. ``error`` is why something failed; ``text`` does not have its message."""

    kind: Kind
    step: str
    text: str
    error: ErrorInfo | None = None


@dataclass(slots=True)
class ProgressFold:
    """Folds events into what is shown.

    A worker's report may arrive before the record that says which step its run belongs to. It is kept until then.
    """

    steps: dict[str, StepProgress] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    early: dict[str, list[events.Fact]] = field(default_factory=dict)
    failing: ErrorInfo | None = None

    def lines(self, event: FeedEvent) -> list[ProgressLine]:
        """The log lines of an event."""
        update = None if event.event is None else update_of(event.event)
        return [] if update is None else self.take(update)

    def take(self, update: ProgressUpdate) -> list[ProgressLine]:
        """The log lines of an update."""
        fact = update.fact
        if isinstance(fact, events.TokenClaimed):
            step = self.targets.get(fact.token_id, "?")
            began = self._began(step, fact.step_run_id)
            early = self.early.pop(fact.step_run_id, [])
            return [began, *(line for one in early for line in self._moved(step, self.steps[step], one))]
        run = getattr(fact, "step_run_id", None) or update.step_run_id
        if run is None:
            return self._of_execution(fact)
        if run not in self.runs:
            self.early.setdefault(run, []).append(fact)
            return []
        return [*self._moved(self.runs[run], self.steps[self.runs[run]], fact)]

    def _of_execution(self, fact: events.Fact) -> list[ProgressLine]:
        if isinstance(fact, events.TokenEnqueued):
            self.targets[fact.token.token_id] = fact.token.step
        elif isinstance(fact, events.ExecutionReused):
            tokens = [entry.token for entry in fact.entries if isinstance(entry, events.TokenEnqueued)]
            self.targets |= {token.token_id: token.step for token in tokens}
            reused = sum(isinstance(entry, events.StepReused) for entry in fact.entries)
            return [ProgressLine("token", "", f"reused {counted(reused, 'step run')} of execution {fact.of}")]
        elif isinstance(fact, events.TokenHeld):
            step = self.targets.get(fact.token_id, "?")
            return [ProgressLine("wait", step, f"token for {step} held at admission")]
        elif isinstance(fact, events.TokenDiscarded):
            step = self.targets.get(fact.token_id, "?")
            return [ProgressLine("token", step, f"token for {step} discarded: {fact.reason}")]
        elif isinstance(fact, events.ExecutionFailing):
            self.failing = fact.error
            return [ProgressLine("failing", "", "failing", fact.error)]
        return []

    def _began(self, step: str, step_run_id: str) -> ProgressLine:
        self.runs[step_run_id] = step
        shown = self.steps.setdefault(step, StepProgress())
        shown.runs += 1
        shown.open += 1
        shown.state = "running"
        return ProgressLine("started", step, f"{step}: started")

    def _moved(self, step: str, shown: StepProgress, fact: events.Fact) -> Iterator[ProgressLine]:
        if isinstance(fact, events.TaskProcessed):
            yield from self._processed(step, f"{step}{_place(fact.path)}.{fact.task}", shown, fact)
        elif isinstance(fact, events.StepSuspended):
            for wait in fact.waits:
                yield ProgressLine("wait", step, f"{step}{_place(wait.path)}: waiting {_awaited(wait)}")
        elif isinstance(fact, events.StepResumed):
            yield ProgressLine("started", step, f"{step}{_place(fact.path)}: resumed")
        elif isinstance(fact, events.LoopStarted):
            if not fact.path:
                shown.count += 0 if shown.count else fact.count
                yield ProgressLine("loop", step, f"{step}: loop of {fact.count:,}")
        elif isinstance(fact, _ITERATION_ENDS) and fact.path:
            yield from self._iteration(step, shown, fact)
        elif isinstance(fact, events.StepFailed):
            shown.open, shown.state, shown.error = shown.open - 1, "failed", fact.error
            yield ProgressLine("ended", step, f"{step}: failed{shown.parts()}", fact.error)
        elif isinstance(fact, events.StepDone | events.LoopDone):
            shown.open, shown.state = shown.open - 1, "done"
            yield ProgressLine("ended", step, f"{step}: done{shown.parts()}")
        elif isinstance(fact, events.NextResting):
            yield ProgressLine("wait", step, f"{step}: rests at next")
        elif isinstance(fact, events.NextTimedOut):
            yield ProgressLine("wait", step, f"{step}: rested at next until its time was over")

    def _processed(
        self, step: str, target: str, shown: StepProgress, fact: events.TaskProcessed
    ) -> Iterator[ProgressLine]:
        """The output of a task's code, then its retry (LANGUAGE §12 *python*)."""
        for line in fact.outcome.output.splitlines():
            yield ProgressLine("output", step, f"{target} | {line}")
        if fact.do == "retry":
            shown.retries += 1
            error = shown.error = fact.outcome.error
            why = f"{error.kind}: {error.message}" if error else "by policy"
            yield ProgressLine(
                "retry", step, f"{target}: retry in {fact.delay_s:.2g} s after attempt {fact.attempt} ({why})"
            )

    def _iteration(
        self,
        step: str,
        shown: StepProgress,
        fact: events.LoopIterationDone | events.LoopIterationFailed | events.LoopDone,
    ) -> Iterator[ProgressLine]:
        """Counts the outermost level only: the number of iterations of inner loops is not known in advance."""
        outermost = len(fact.path) == 1
        shown.ended += outermost
        if isinstance(fact, events.LoopIterationFailed):
            place = f"{step}{_place(fact.path)}"
            if fact.error.kind == "cancelled":  # because another one failed
                yield ProgressLine("failed", step, f"{place}: cancelled")
                return
            shown.failed += outermost
            shown.error = fact.error
            yield ProgressLine("failed", step, f"{place}: failed", fact.error)
        if outermost and (shown.count <= 20 or shown.ended % max(1, shown.count // 10) == 0):
            yield ProgressLine("count", step, f"{step}: {shown.ended:,}/{shown.count:,} iterations")


_ITERATION_ENDS = events.LoopIterationDone | events.LoopIterationFailed | events.LoopDone


class Summary:
    """Chooses the lines of an execution that are printed: for each step how it ended, and a bounded number of others.

    Of what a step repeats, the first lines are printed, and after them counts: 10, 20, 50, 100, 200 and so on. So a
    loop over a hundred thousand items takes about as many lines as one over a hundred.

    Args:
        verbose: Chooses all.
    """

    FIRST: Final[Mapping[Kind, int]] = {"retry": 3, "failed": 3, "wait": 3, "ended": 5, "token": 5, "output": 20}
    NOUNS: Final[Mapping[Kind, str]] = {
        "retry": "retries",
        "failed": "iterations that did not succeed",
        "wait": "waits",
        "ended": "runs",
        "token": "tokens",
        "output": "lines of output",
    }

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose
        self._counts: Counter[tuple[str, Kind]] = Counter()

    def chosen(self, lines: Iterable[ProgressLine]) -> Iterator[ProgressLine]:
        """Those to print, of lines in their order."""
        for line in lines:
            if self._verbose or line.kind in ("loop", "count", "failing"):
                yield line
            elif line.kind in self.FIRST:
                self._counts[line.step, line.kind] += 1
                yield from self._counted(line, self._counts[line.step, line.kind])

    def _counted(self, line: ProgressLine, count: int) -> Iterator[ProgressLine]:
        first = self.FIRST[line.kind]
        if count <= first:
            yield line
        elif str(count).rstrip("0") in ("1", "2", "5"):
            text = f"{line.step}: {count:,} {self.NOUNS[line.kind]} (--verbose prints each)"
            yield ProgressLine(line.kind, line.step, text)


def counted(number: int, noun: str) -> str:
    """``1 run``, ``2,000 runs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


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

    def doing(self, text: str) -> None:
        """Shows what is done before the execution starts."""
        activity.show(text)

    def start(self, execution_id: str) -> None:
        """Begins to show an execution that has started."""

    def event(self, event: FeedEvent) -> None:
        """Shows an event."""

    def waits(self, reasons: Sequence[ReasonDocument]) -> None:
        """Shows why nothing moves (:meth:`~noetl_stream.ports.operations.executions.Executions.why`)."""

    def unreachable(self, what: str) -> None:
        """Shows that there is no news, and why."""

    def has_said(self, error: ErrorInfo | None) -> bool:
        """Whether people have read the message of this error."""
        return False

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
    """Lines of what changes: a summary, or with ``verbose`` each change. The message of an error is printed once."""

    def __init__(self, *, stderr: bool, verbose: bool = False) -> None:
        self._fold = ProgressFold()
        self._summary = Summary(verbose=verbose)
        self._shown: set[str] = set()
        self._errors: set[tuple[str, str]] = set()
        self._stderr = stderr

    def doing(self, text: str) -> None:
        say(text, err=self._stderr)

    def event(self, event: FeedEvent) -> None:
        for line in self._summary.chosen(self._fold.lines(event)):
            why = "" if self.has_said(line.error) else self._said(line.error)
            if why or line.kind != "failing":
                say(f"{line.text}{why}", err=self._stderr)

    def _said(self, error: ErrorInfo | None) -> str:
        if error is None:
            return ""
        self._errors.add((error.kind, error.message))
        return f": {error.kind}: {error.message}"

    def has_said(self, error: ErrorInfo | None) -> bool:
        return error is not None and (error.kind, error.message) in self._errors

    def waits(self, reasons: Sequence[ReasonDocument]) -> None:
        for reason in reasons:
            until = f" (until {reason.until})" if reason.until else ""
            self._say_once(f"waiting: {reason.sentence}{until}", reason.sentence)

    def unreachable(self, what: str) -> None:
        self._say_once(f"waiting: {what}", what)

    def _say_once(self, line: str, about: str) -> None:
        if about not in self._shown:
            self._shown.add(about)
            say(line, err=self._stderr)
