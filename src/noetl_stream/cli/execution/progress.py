"""Live progress of one execution: a picture on a terminal, a plain log elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import click

from noetl_stream.client.executions.follow import ProgressUpdate
from noetl_stream.model import events
from noetl_stream.ports.operations.executions import ReasonDocument


@dataclass(slots=True)
class StepProgress:
    """What has been heard of one step."""

    runs: int = 0
    open: int = 0
    count: int = 0
    ended: int = 0
    failed: int = 0
    retries: int = 0
    state: str = "running"


@dataclass(slots=True)
class ProgressFold:
    """Folds news into what is shown.

    A worker's report may be heard before the record that says which step its run is of: it waits for that.
    """

    steps: dict[str, StepProgress] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    early: dict[str, list[events.Fact]] = field(default_factory=dict)

    def take(self, news: ProgressUpdate) -> list[str]:
        """What a plain log says of a piece of news, if anything."""
        fact = news.fact
        if isinstance(fact, events.TokenClaimed):
            step = self.targets.get(fact.token_id, "?")
            began = self._began(step, fact.step_run_id)
            waited = [self._moved(step, self.steps[step], one) for one in self.early.pop(fact.step_run_id, [])]
            return [began, *filter(None, waited)]
        run = getattr(fact, "step_run_id", None) or news.step_run_id
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
            return f"{reused} step runs of execution {fact.of} are reused"
        if isinstance(fact, events.TokenHeld):
            return f"token for {self.targets.get(fact.token_id, '?')} is held by its admission"
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
            return "\n".join(f"{step}{_place(wait.path)}: waits {_awaited(wait)}" for wait in fact.waits) or None
        if isinstance(fact, events.StepResumed):
            return f"{step}{_place(fact.path)}: goes on"
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
        return None

    def _processed(self, target: str, shown: StepProgress, fact: events.TaskProcessed) -> str | None:
        """What the code of a task has printed, then whether it runs again (LANGUAGE §12 *python*)."""
        said = [f"{target} | {line}" for line in fact.outcome.output.splitlines()]
        if fact.do == "retry":
            shown.retries += 1
            error = fact.outcome.error
            why = f"{error.kind}: {error.message}" if error else "by policy"
            said.append(f"{target}: retry in {fact.delay_s:.2g} s after attempt {fact.attempt} ({why})")
        return "\n".join(said) or None

    def _iteration(
        self,
        step: str,
        shown: StepProgress,
        fact: events.LoopIterationDone | events.LoopIterationFailed | events.LoopDone,
    ) -> str | None:
        """Only the outermost level is counted: how many iterations inner loops will have is not known before."""
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
    return f"{wait.delay_s or wait.for_s or 0:.3g} s" if wait.until_ms is None else "for its time"


class ProgressView(Protocol):
    """Shows news as it comes."""

    def news(self, news: ProgressUpdate) -> None: ...

    def waits(self, reasons: Sequence[ReasonDocument]) -> None:
        """Nothing moves, and this is why (:meth:`~noetl_stream.ports.operations.executions.Executions.why`)."""
        ...

    def close(self) -> None: ...


class PlainProgress:
    """One line a change."""

    def __init__(self, *, stderr: bool) -> None:
        self._heard = ProgressFold()
        self._said: set[str] = set()
        self._stderr = stderr

    def news(self, news: ProgressUpdate) -> None:
        for line in self._heard.take(news):
            click.echo(line, err=self._stderr)

    def waits(self, reasons: Sequence[ReasonDocument]) -> None:
        for reason in reasons:
            sentence = reason.sentence
            if sentence not in self._said:
                self._said.add(sentence)
                until = f" (until {reason.until})" if reason.until else ""
                click.echo(f"waits: {sentence}{until}", err=self._stderr)

    def close(self) -> None:
        """Nothing to put away."""


class SilentProgress:
    """Shows nothing (``-o json``)."""

    def news(self, news: ProgressUpdate) -> None:
        """Nothing is shown."""

    def waits(self, reasons: Sequence[ReasonDocument]) -> None:
        """Nothing is shown."""

    def close(self) -> None:
        """Nothing to put away."""


def progress_for(output: str, *, stderr: bool = True) -> ProgressView:
    """The picture that fits the output and the terminal."""
    if output != "text":
        return SilentProgress()
    if (sys.stderr if stderr else sys.stdout).isatty():
        from rich.console import Console

        from noetl_stream.cli.execution.live_progress import LiveProgress

        console = Console(stderr=stderr)
        if not console.is_dumb_terminal:
            return LiveProgress(console)
    return PlainProgress(stderr=stderr)
