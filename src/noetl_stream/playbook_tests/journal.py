"""The journal of an execution in a test: what tests compare, show and count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from noetl_stream.model import events
from noetl_stream.model.events import Fact, Token
from noetl_stream.model.events.composite import expand
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.store import StoredEvent

RUNS_SHOWN: Final = 50


class SeenFact(NamedTuple):
    """A fact, and the step run that it is about; ``""`` for none."""

    step_run_id: str
    fact: Fact


class SeenStepRun(msgspec.Struct):
    """A run of a step in a test: its token, and how it ended, as far as it did."""

    step: str
    token: Token
    ended: str = ""
    error: str = ""
    tasks: int = 0
    failed_tasks: int = 0


class SeenJournal(msgspec.Struct, frozen=True):
    """The journal of one execution. ``runs`` are in the order in which they began, by step run."""

    digest: str
    facts: Sequence[SeenFact]
    tokens: dict[str, Token]
    runs: dict[str, SeenStepRun]

    @property
    def failed_step(self) -> str | None:
        """The step whose failure failed the execution."""
        failing = (one.fact for one in self.facts if isinstance(one.fact, events.ExecutionFailing))
        return next((fact.step for fact in failing), None)

    @property
    def lacks_playbook(self) -> bool:
        """Whether a task has called a playbook that the catalog does not have."""
        tasks = (one.fact for one in self.facts if isinstance(one.fact, events.TaskProcessed))
        errors = (fact.outcome.error for fact in tasks)
        return any(error is not None and error.kind == "invalid_playbook" for error in errors)

    def lines(self) -> Iterator[str]:
        """The runs of steps, a line each; of many the first and the last."""
        left_out = range(RUNS_SHOWN // 2 + 1, len(self.runs) - RUNS_SHOWN // 2 + 1)
        for number, run in enumerate(self.runs.values(), start=1):
            if number in left_out:
                if number == left_out.start:
                    yield f"… {len(left_out):,} more"
                continue
            failed = f", {run.failed_tasks} of {run.tasks} task runs failed" if run.failed_tasks else ""
            ended = f"{run.ended}{failed}" if run.ended else f"not ended{failed}"
            yield f"{number}. {run.step} ({_cause(run.token)}): {ended}{f': {run.error}' if run.error else ''}"


def read_journal(execution_id: str, digest: str, rows: Sequence[StoredEvent]) -> SeenJournal:
    facts = [
        SeenFact(row.step_run_id or "", part)
        for row in rows
        for part in expand(execution_id, codec.decode_fact(row.data))
    ]
    tokens: dict[str, Token] = {}
    runs: dict[str, SeenStepRun] = {}
    for step_run_id, fact in facts:
        if isinstance(fact, events.TokenEnqueued):
            tokens[fact.token.token_id] = fact.token
        elif isinstance(fact, events.TokenClaimed):
            token = tokens[fact.token_id]
            runs[fact.step_run_id] = SeenStepRun(token.step, token)
        elif isinstance(fact, events.TaskProcessed) and step_run_id in runs:
            runs[step_run_id].tasks += 1
            runs[step_run_id].failed_tasks += fact.outcome.error is not None
        elif isinstance(fact, events.StepDone | events.StepFailed | events.LoopDone) and fact.step_run_id in runs:
            if isinstance(fact, events.LoopDone) and fact.path:
                continue
            run = runs[fact.step_run_id]
            run.ended = fact.event_name()
            run.error = f"{fact.error.kind}: {fact.error.message}" if isinstance(fact, events.StepFailed) else ""
    return SeenJournal(digest, facts, tokens, runs)


def _cause(token: Token) -> str:
    return f"{token.cause} from {token.from_step}" if token.from_step is not None else token.cause
