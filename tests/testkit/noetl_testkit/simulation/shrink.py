"""Makes a story that fails smaller, and writes it down as a test."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pprint import pformat
from typing import Any, Final

from noetl_testkit.simulation.roles import check_once
from noetl_testkit.simulation.simulation import SimulationReport, simulate
from noetl_testkit.simulation.story import INTERRUPTED, Planned, Story, random_job
from noetl_testkit.simulation.work import JOBS, Job
from noetl_testkit.simulation.world import KINDS

RUNS: Final = 400
"""How many simulations shrinking may cost."""

CHANCES: Final = 3
"""A smaller story runs differently, so each gets this many seeds."""

_IDS = re.compile(r"[0-9a-f-]{8,}|[0-9]+")

Simulate = Callable[[Story], SimulationReport]


def shrunk(story: Story, *, runs: int = RUNS, run: Simulate = simulate) -> Story:
    """The smallest story found that still has one of the problems of ``story``: with fewer executions, kinds of faults,
    hosts and requests, and smaller playbooks.
    """
    wanted = _kinds_of_problems(run(story))
    left = runs

    def failing(candidate: Story) -> Story | None:
        nonlocal left
        for number in range(CHANCES):
            if left <= 0:
                return None
            left -= 1
            again = replace(candidate, seed=candidate.seed + number)
            if wanted & _kinds_of_problems(run(again)):
                return again
        return None

    while smaller := next((found for one in _smaller(story) if (found := failing(one)) is not None), None):
        story = smaller
    return story


def written(story: Story, problem: str) -> str:
    """A test of this story, to be pasted into ``tests/simulation/test_found.py``."""
    executions = "".join(f"            {_written_execution(one)},\n" for one in story.executions)
    return (
        f"def test_found_{story.seed}() -> None:\n"
        f'    """{problem}"""\n'
        f"    story = Story(\n"
        f"        seed={story.seed},\n"
        f"        servers={story.servers},\n"
        f"        workers={story.workers},\n"
        f"        faults={story.faults!r},\n"
        f"        executions=(\n{executions}        ),\n"
        f"    )\n"
        f"    assert not simulate(story).problems\n"
    )


def _kinds_of_problems(report: SimulationReport) -> set[str]:
    return {_IDS.sub("", problem.partition("[")[0].partition("{")[0])[:60] for problem in report.problems}


def _smaller(story: Story) -> Iterator[Story]:
    """Stories that are a little smaller, those first that are much smaller."""
    executions = story.executions
    if len(executions) > 2:
        half = len(executions) // 2
        yield replace(story, executions=executions[:half])
        yield replace(story, executions=executions[half:])
    for number in range(len(executions)):
        yield replace(story, executions=executions[:number] + executions[number + 1 :])
    for fault in story.faults:
        yield replace(story, faults=tuple(one for one in story.faults if one != fault))
    if story.servers > 1:
        yield replace(story, servers=1)
    if story.workers > 1:
        yield replace(story, workers=1)
    for number, planned in enumerate(executions):
        for smaller in _smaller_executions(planned):
            yield replace(story, executions=(*executions[:number], smaller, *executions[number + 1 :]))


def _smaller_executions(planned: Planned) -> Iterator[Planned]:
    for number in range(len(planned.asks)):
        yield replace(planned, asks=planned.asks[:number] + planned.asks[number + 1 :])
    if planned.at_s:
        yield replace(planned, at_s=0.0)
    if planned.job.ends == "as given":
        return  # the end is known for the whole only
    for source in _smaller_playbooks(json.loads(planned.job.source)):
        yield replace(planned, job=replace(planned.job, source=source))


def _smaller_playbooks(document: dict[str, Any]) -> Iterator[str]:
    """The playbook without a step and all that leads there, or without one key or item anywhere; valid ones only."""
    candidates = [_without_step(document, step["step"]) for step in document["workflow"]]
    for place in _places(document):
        candidate = deepcopy(document)
        parent: Any = candidate
        for key in place[:-1]:
            parent = parent[key]
        del parent[place[-1]]
        candidates.append(candidate)
    for candidate in candidates:
        text = json.dumps(candidate)
        if candidate.get("workflow") and check_once(text, KINDS).ok:
            yield text


def _without_step(document: dict[str, Any], name: str) -> dict[str, Any]:
    smaller = deepcopy(document)
    smaller["workflow"] = [step for step in smaller["workflow"] if step["step"] != name]
    for step in smaller["workflow"]:
        arcs = step.get("next", {}).get("arcs", [])
        arcs[:] = [arc for arc in arcs if arc["step"] != name]
        if not arcs:
            step.pop("next", None)
    return smaller


def _places(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every key and index inside, the outer ones first."""
    inside = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    for key, _ in inside:
        yield (*at, key)
    for key, part in inside:
        yield from _places(part, (*at, key))


def _written_execution(planned: Planned) -> str:
    job = planned.job
    known = {one.source: f"job({one.name!r})" for one in JOBS}
    known |= {one.source: f"INTERRUPTED[{at}]" for at, one in enumerate(INTERRUPTED)}
    if job.source in known:
        text = known[job.source]
    elif (number := _number_of(job)) is not None:
        text = f"random_job({number}, confluent={job.ends == 'as without faults'})"
    else:
        body = pformat(json.loads(job.source), width=100, sort_dicts=False)
        text = f"Job({job.name!r}, json.dumps({body}), ends={job.ends!r})"
    return f"Planned({text}, {planned.at_s!r}, {planned.asks!r})"


def _number_of(job: Job) -> int | None:
    """The number of a random playbook that is as it was drawn."""
    word, _, number = job.name.partition(" ")
    if word != "random" or not number.isdigit():
        return None
    return int(number) if job == random_job(int(number), confluent=job.ends == "as without faults") else None
