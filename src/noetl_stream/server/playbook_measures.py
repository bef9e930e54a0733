"""Measurements of the executions of a playbook: their durations, those of their steps, and their failures.

Law: a plain step costs a look at the types of its facts and one value in a histogram. Values count once committed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from noetl_stream.engine.state import Execution
from noetl_stream.model.events import LoopDone, StepDone, StepFailed
from noetl_stream.model.events.composite import StepRan
from noetl_stream.model.outcome import ERROR_KINDS, ErrorInfo
from noetl_stream.telemetry.measures import OTHER, Durations, Labels, Metric, Reading, long_durations

RUN_ENDS: Final = frozenset({StepDone, StepFailed, LoopDone})

EXECUTIONS: Final = Metric(
    "histogram",
    "noetl_server_execution_duration_seconds",
    "Executions that ended, from their request to their end, by playbook and status.",
    ("path", "status"),
)
FAILURES: Final = Metric(
    "counter",
    "noetl_server_execution_failures",
    "Executions that failed, by playbook and the kind of their error.",
    ("path", "kind"),
)
STEPS: Final = Metric(
    "histogram",
    "noetl_server_step_duration_seconds",
    "Step runs that ended, from their start on a worker to their end, by playbook and status.",
    ("path", "status"),
)


class PlaybookMeasures:
    """Measurements of one playbook: durations by status. Failed executions are exported from 0 on, as alerts need."""

    __slots__ = ("executions", "failures", "steps")

    def __init__(self) -> None:
        self.executions = defaultdict(long_durations, completed=long_durations(), failed=long_durations())
        self.failures: Counter[str] = Counter()
        self.steps: defaultdict[str, Durations] = defaultdict(long_durations)

    def count_end(self, status: str, took_s: float, error: ErrorInfo | None) -> None:
        """Counts an ended execution; ``error`` is its failure. Kinds of plugins count as one."""
        self.executions[status].add(took_s)
        if status == "failed":
            kind = error.kind if error is not None else "internal"
            self.failures[kind if kind in ERROR_KINDS else OTHER] += 1


EndedStep: TypeAlias = tuple[str, str, float]
"""The path of the playbook of an ended step run, the status, and the duration in seconds."""


def collect_ended_steps(ended: list[EndedStep], before: Execution, facts: Sequence[Any], at_ms: int) -> None:
    """Adds the step runs that facts end to ``ended``, except those that no worker began.

    Args:
        before: The state before these facts.
        facts: The facts of one input: itself, and the decisions that followed.
        at_ms: Their time.
    """
    for fact in facts:
        if type(fact) is StepRan:  # nearly every step
            tasks = fact.tasks
            took_ms = tasks[-1].ended_ms - tasks[0].started_ms
            ended.append((before.path, "done", took_ms / 1000 if took_ms > 0 else 0.0))
        elif type(fact) in RUN_ENDS and not getattr(fact, "path", ()):  # an inner loop has a path
            run = before.runs.get(fact.step_run_id)
            if run is not None and run.started_ms:
                ended.append((before.path, fact.status, (at_ms - run.started_ms) / 1000))


def playbook_readings(playbooks: Mapping[str, PlaybookMeasures]) -> Iterator[Reading]:
    """Yields the metrics of all playbooks."""
    executions: dict[Labels, Durations] = {}
    failures: dict[Labels, float] = {}
    steps: dict[Labels, Durations] = {}
    for path, one in playbooks.items():
        executions |= {(path, status): durations for status, durations in one.executions.items()}
        failures |= {(path, kind): count for kind, count in one.failures.items()}
        steps |= {(path, status): durations for status, durations in one.steps.items()}
    yield EXECUTIONS.read_each(executions)
    yield FAILURES.read_each(failures)
    yield STEPS.read_each(steps)
