"""Live progress of an execution: a picture on a terminal, lines elsewhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from noetl_stream.cli.base.activity import activity
from noetl_stream.cli.base.output import say, say_json
from noetl_stream.errors import PayloadRefused
from noetl_stream.model import events
from noetl_stream.model.envelope import EventDocument, iso
from noetl_stream.model.events.journal_reader import IterationEnd, JournalReader, Recorded, RunEnd
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.ports.operations.executions import ReasonDocument, WarningDocument
from noetl_stream.ports.operations.reading.events import FeedEvent, LogLineDocument

NOBODY: Final = frozenset({"no_worker", "no_server", "server_cannot_store", "queue_unreadable", "unreported"})
"""Kinds of waits that last until somebody acts."""


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
    """The error of the last failure or retry."""

    def parts(self) -> str:
        """The counts of a loop or of retries: ``, 200 iterations, 4 failed, 9 retries``; empty for others."""
        found = [counted(self.ended, "iteration")] if self.count else []
        found += [f"{self.failed:,} failed"] if self.failed else []
        found += [f"{self.retries:,} {'retry' if self.retries == 1 else 'retries'}"] if self.retries else []
        return "".join(f", {part}" for part in found)


Kind = Literal["started", "loop", "count", "printed", "output", "retry", "wait", "failed", "ended", "failing", "token"]
"""The subject of a line."""


class ProgressLine(NamedTuple):
    """A line of the log of an execution. ``error`` is the error of a failure; ``text`` does not contain its message."""

    kind: Kind
    step: str
    text: str
    error: ErrorInfo | None = None


_Attempt = tuple[str, events.Path, str, int]
"""A step run, an iteration, a task, and the number of the attempt."""


_REMEMBERED: Final = 1000
"""The number of ended attempts whose late lines are not shown."""


class ProgressUpdate(NamedTuple):
    """A fact, and the step run whose report it came with (``None`` for the server's own facts)."""

    fact: events.Fact
    step_run_id: str | None


class ProgressFold(JournalReader[str]):
    """Folds events, in the order of the journal, into progress. A step run is identified by the name of its step."""

    def __init__(self) -> None:
        super().__init__("")
        self.steps: dict[str, StepProgress] = {}
        self.failing: ErrorInfo | None = None
        self._lines: list[ProgressLine] = []
        self._written: dict[_Attempt, list[str]] = {}
        self._told: dict[_Attempt, None] = {}

    def lines(self, event: FeedEvent) -> list[ProgressLine]:
        """The log lines of an event."""
        update = None if event.event is None else update_of(event.event)
        return [] if update is None else self.take(update)

    def take(self, update: ProgressUpdate) -> list[ProgressLine]:
        """The log lines of an update."""
        self._lines = []
        self.read(Recorded(update.fact, 0, 0, update.step_run_id, ""))
        return self._lines

    def written(self, line: LogLineDocument) -> list[ProgressLine]:
        """The log line of a task's output, unless the end of its attempt has already shown it."""
        attempt = (line.step_run_id, tuple(line.iteration), line.task, line.attempt)
        if attempt in self._told:
            return []
        if line.stream == "stdout":  # the output of code; stderr has that of the installer
            self._written.setdefault(attempt, []).append(line.text)
        return [_output_line(line.step, attempt[1], line.task, line.text)]

    def _unwritten(self, attempt: _Attempt, output: str) -> str:
        """The part of the output of an ended attempt that is still to be shown."""
        if not output:
            return ""
        self._told[attempt] = None
        if len(self._told) > _REMEMBERED:
            del self._told[next(iter(self._told))]
        at = 0
        for text in self._written.pop(attempt, ()):
            if (found := output.find(text, at)) < 0:
                return ""  # longer than the output that is kept
            at = found + len(text)
        return output[at:].removeprefix("\n")

    def _say(self, kind: Kind, step: str, text: str, error: ErrorInfo | None = None) -> None:
        self._lines.append(ProgressLine(kind, step, text, error))

    def execution_reused(self, at: Recorded, fact: events.ExecutionReused) -> None:
        """Counts reused steps, and shows none of them."""
        tokens = [entry.token for entry in fact.entries if isinstance(entry, events.TokenEnqueued)]
        self.tokens |= {token.token_id: token.step for token in tokens}
        reused = sum(isinstance(entry, events.StepReused) for entry in fact.entries)
        self._say("token", "", f"reused {counted(reused, 'step run')} of execution {fact.of}")

    def execution_failing(self, at: Recorded, fact: events.ExecutionFailing) -> None:
        self.failing = fact.error
        self._say("failing", "", "failing", fact.error)

    def token_held(self, at: Recorded, fact: events.TokenHeld) -> None:
        step = self.tokens.get(fact.token_id, "?")
        self._say("wait", step, f"token for {step} held at admission")

    def token_discarded(self, at: Recorded, fact: events.TokenDiscarded) -> None:
        step = self.tokens.get(fact.token_id, "?")
        self._say("token", step, f"token for {step} discarded: {fact.reason}")

    def run_began(self, at: Recorded, step: str, fact: events.TokenClaimed) -> str:
        step = step or "?"
        shown = self.steps.setdefault(step, StepProgress())
        shown.runs += 1
        shown.open += 1
        shown.state = "running"
        self._say("started", step, f"{step}: started")
        return step

    def run_suspended(self, at: Recorded, step: str, fact: events.StepSuspended) -> None:
        for wait in fact.waits:
            self._say("wait", step, f"{step}{_place(wait.path)}: waiting {_awaited(wait)}")

    def run_resumed(self, at: Recorded, step: str, fact: events.StepResumed) -> None:
        self._say("started", step, f"{step}{_place(fact.path)}: resumed")

    def run_ended(self, at: Recorded, step: str, fact: RunEnd) -> None:
        shown = self.steps[step]
        shown.open -= 1
        shown.state, word = ("done", "done") if fact.error is None else ("failed", "failed")
        shown.error = fact.error or shown.error
        self._say("ended", step, f"{step}: {word}{shown.parts()}", fact.error)

    def run_rested(self, at: Recorded, step: str, fact: events.NextResting) -> None:
        self._say("wait", step, f"{step}: rests at next")

    def rest_timed_out(self, at: Recorded, step: str, fact: events.NextTimedOut) -> None:
        self._say("wait", step, f"{step}: rested at next until its time has passed")

    def attempt_ended(self, at: Recorded, step: str, fact: events.TaskProcessed) -> None:
        """The output of a task's code, then its retry (LANGUAGE §12 *python*)."""
        target = f"{step}{_place(fact.path)}.{fact.task}"
        attempt = (at.step_run_id or "", tuple(fact.path), fact.task, fact.attempt)
        for text in self._unwritten(attempt, fact.outcome.output).splitlines():
            self._lines.append(_output_line(step, fact.path, fact.task, text))
        if fact.do == "retry":
            shown, error = self.steps[step], fact.outcome.error
            shown.retries, shown.error = shown.retries + 1, error
            why = f"{error.kind}: {error.message}" if error else "by policy"
            text = f"{target}: retry in {fact.delay_s:.2g} s after attempt {fact.attempt} ({why})"
            self._say("retry", step, text)

    def loop_began(self, at: Recorded, step: str, fact: events.LoopStarted) -> None:
        if not fact.path:
            shown = self.steps[step]
            shown.count += 0 if shown.count else fact.count
            self._say("loop", step, f"{step}: loop of {fact.count:,}")

    def iteration_ended(self, at: Recorded, step: str, fact: IterationEnd) -> None:
        """Counts only the outermost level: the number of iterations of inner loops is not known in advance."""
        shown, outermost = self.steps[step], len(fact.path) == 1
        shown.ended += outermost
        if fact.error is not None:
            place = f"{step}{_place(fact.path)}"
            if fact.error.kind == "cancelled":  # because another one failed
                self._say("failed", step, f"{place}: cancelled")
                return
            shown.failed += outermost
            shown.error = fact.error
            self._say("failed", step, f"{place}: failed", fact.error)
        if outermost and (shown.count <= 20 or shown.ended % max(1, shown.count // 10) == 0):
            self._say("count", step, f"{step}: {shown.ended:,}/{shown.count:,} iterations")


def _output_line(step: str, path: events.Path, task: str, text: str) -> ProgressLine:
    return ProgressLine("output" if path else "printed", step, f"{step}{_place(path)}.{task} | {text}")


class Summary:
    """Chooses the printed lines of an execution: the end of each step, and a bounded number of others.

    Of repeated lines, the first ones are printed, and after them counts: 10, 20, 50, 100, 200 and so on. A loop over a
    hundred thousand items therefore takes about as many lines as one over a hundred.

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
        """The lines to print, in order."""
        for line in lines:
            if self._verbose or line.kind in ("loop", "count", "failing", "printed"):
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
    """A view of a running execution. This one shows nothing.

    Attributes:
        shows_output: Whether it shows the output of tasks.
        warned: The warnings of the execution that were printed when it started.
    """

    shows_output = False
    warned: Sequence[WarningDocument] = ()

    def doing(self, text: str) -> None:
        """Shows the activity before the execution starts."""
        activity.show(text)

    def start(self, execution_id: str) -> None:
        """Begins to show an execution that has started."""

    def event(self, event: FeedEvent) -> None:
        """Shows an event."""

    def written(self, lines: Iterable[LogLineDocument]) -> None:
        """Shows output of tasks."""

    def waits(self, reasons: Sequence[ReasonDocument]) -> None:
        """Shows the reasons why nothing moves (:meth:`~noetl_stream.ports.operations.executions.Executions.why`)."""

    def unreachable(self, what: str) -> None:
        """Shows that there is no news, with the reason."""

    def has_said(self, error: ErrorInfo | None) -> bool:
        """Whether people have read the message of this error."""
        return False

    def close(self) -> None:
        """Stops showing."""


class Stalls(ProgressView):
    """A line on stderr when nobody takes the work or its result; nothing else, since stdout is for a program."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def waits(self, reasons: Sequence[ReasonDocument]) -> None:
        for reason in reasons:
            if reason.kind in NOBODY and (about := _about(reason)) not in self._shown:
                self._shown.add(about)
                say(f"waiting: {reason.sentence}", err=True)


class EventLines(Stalls):
    """One line of JSON per event (``-o jsonl``)."""

    def event(self, event: FeedEvent) -> None:
        say_json(event.json)


_COUNT: Final = re.compile(r"(?<!error )\b[0-9][0-9T.,:+-]*")


def _about(reason: ReasonDocument) -> str:
    """Returns the subject of a reason, the same while its times and counts change. Codes of errors stay."""
    return f"{reason.kind} {reason.step} {_COUNT.sub('', reason.sentence)}"


class PlainProgress(ProgressView):
    """Lines about changes: a summary, or with ``verbose`` each change. The message of an error is printed once.

    On a terminal that a person uses meanwhile (``shared``), only waits that last until somebody acts are shown.
    """

    shows_output = True

    def __init__(self, *, stderr: bool, verbose: bool = False, shared: bool = False) -> None:
        self._fold = ProgressFold()
        self._summary = Summary(verbose=verbose)
        self._shown: set[str] = set()
        self._errors: set[tuple[str, str]] = set()
        self._stderr = stderr
        self._shared = shared

    def doing(self, text: str) -> None:
        say(text, err=self._stderr)

    def event(self, event: FeedEvent) -> None:
        self._show(self._fold.lines(event))

    def written(self, lines: Iterable[LogLineDocument]) -> None:
        for line in lines:
            self._show(self._fold.written(line))

    def _show(self, lines: Iterable[ProgressLine]) -> None:
        for line in self._summary.chosen(lines):
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
            if self._shared and reason.kind not in NOBODY:
                continue
            until = f" (until {reason.until})" if reason.until else ""
            self._say_once(f"waiting: {reason.sentence}{until}", _about(reason))

    def unreachable(self, what: str) -> None:
        self._say_once(f"waiting: {what}", what)

    def _say_once(self, line: str, about: str) -> None:
        if about not in self._shown:
            self._shown.add(about)
            say(line, err=self._stderr)
