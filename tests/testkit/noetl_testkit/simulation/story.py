"""The story of a simulation: how many hosts there are, which executions run, who asks them for what, and which kinds of
faults strike. A seed draws one; a story that fails can be made smaller and written down (``shrink.py``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Any, Final, Literal

from noetl_stream.model import events
from noetl_stream.model.aggregates import TriggerTerms
from noetl_stream.model.ids import derive
from noetl_testkit.random_language import KEYS
from noetl_testkit.simulation.random_playbooks import random_source
from noetl_testkit.simulation.work import JOBS, Job, playbook, work

EXECUTIONS: Final = 7
SEEDS_A_PLAYBOOK: Final = 5
"""Neighbouring seeds share their random playbooks: compiling takes longer than running."""

FAULTS_S: Final = 30.0
"""How long faults occur."""

_PATCH = {"policy": {"rules": [{"else": {"then": {"do": "continue", "set_ctx": {"seen": "{{ outcome.result }}"}}}}]}}
_PATCHES = {
    "step": "patches",
    "loop": {"in": list(range(60)), "iterator": "n", "spec": {"mode": "sequential"}},
    "tool": [{"name": "patch", **work("{{ iter.n }}", 0.05), "spec": _PATCH}],
}
_CALLS = {
    "step": "calls",
    "loop": {"in": [1, 2, 3], "iterator": "n", "spec": {"mode": "parallel", "exec": "distributed"}},
    "tool": {"kind": "playbook", "path": "simulation/called_slow"},
}
INTERRUPTED: Final = (
    Job("patching", playbook("patching", [_PATCHES]), ends="anyhow"),
    Job("calling_slowly", playbook("calling_slowly", [_CALLS]), ends="anyhow"),
)
"""What is paused or cancelled: patches of ``ctx`` for three seconds, children for five."""

LATE_STOPS: Final = frozenset({"stops lost", "bus late", "inbox late", "frozen at publish"})
"""Kinds of faults that show only when something is cancelled."""

What = Literal["cancel", "cancel now", "pause", "resume", "patch", "merge", "signal", "inject", "rerun", "compensate"]


@dataclass(frozen=True, slots=True)
class Ask:
    """A request of a client for an execution, ``after_s`` seconds after it was accepted; a rerun, or the undoing
    of what is left, comes after its end.

    ``value``: the patch, the name of the signal, the step that gets a token, or the step to run again from (``None``:
    a retry).
    """

    after_s: float
    what: What
    value: Any = None

    def fact(self, execution_id: str, number: int) -> events.InterventionFact:
        """The request, the execution's ``number``-th."""
        request_id = derive(execution_id, f"ask {number}")
        match self.what:
            case "cancel":
                return events.CancelRequested(request_id, reason="the simulated client has changed its mind")
            case "cancel now":
                return events.CancelRequested(request_id, reason="it takes too long", now=True)
            case "pause":
                return events.PauseRequested(request_id)
            case "resume":
                return events.ResumeRequested(request_id)
            case "patch" | "merge":
                return events.CtxPatched(request_id, patch=self.value, merge=self.what == "merge")
            case "signal":
                return events.SignalReceived(request_id, signal=self.value, payload=7)
            case "inject":
                return events.TokenInjected(request_id, step=self.value, args={"came_from": "outside"})
            case "rerun" | "compensate":
                raise ValueError("it is another execution")


@dataclass(frozen=True, slots=True)
class Planned:
    """An execution of a story, requested ``at_s`` seconds after its beginning."""

    job: Job
    at_s: float
    asks: tuple[Ask, ...] = ()


@dataclass(frozen=True, slots=True)
class TriggerAct:
    """What is done to a trigger, ``at_s`` seconds after the beginning of a story.

    ``terms`` belong to a registration. ``number`` identifies an event, which is sent once for each of ``times_s``, that
    much later.
    """

    at_s: float
    what: Literal["register", "event", "resend", "pause", "resume", "revoke", "delete"]
    terms: TriggerTerms | None = None
    number: int = 0
    times_s: tuple[float, ...] = (0.0,)


@dataclass(frozen=True, slots=True)
class Story:
    """What a seed runs. ``seed`` alone decides when what strikes, and how long messages take.

    ``called`` are playbooks that its executions call, beside those that are always registered, by path.
    ``triggers`` has what is done to each, by path. ``clocks_wrong``: servers' clocks are, and get set.
    """

    seed: int
    servers: int = 1
    workers: int = 1
    faults: tuple[str, ...] = ()
    executions: tuple[Planned, ...] = ()
    triggers: Mapping[str, tuple[TriggerAct, ...]] = field(default_factory=dict)
    clocks_wrong: bool = False
    called: Mapping[str, str] = field(default_factory=dict)


def drawn(seed: int, faults: tuple[str, ...]) -> Story:
    """The story of a seed, with these kinds of faults."""
    random = Random(f"story {seed}")
    servers, workers = random.randint(1, 3), random.randint(1, 3)
    cancels = 0.6 if LATE_STOPS & set(faults) else 0.2
    executions = tuple(_planned(seed, number, random, cancels) for number in range(EXECUTIONS))
    return Story(seed, servers, workers, faults, executions)


@lru_cache(maxsize=64)
def random_job(number: int, *, confluent: bool) -> Job:
    """A random playbook. A ``confluent`` one must end as it does without faults."""
    text = random_source(number, confluent=confluent)
    return Job(f"random {number}", text, ends="as without faults" if confluent else "anyhow")


def _planned(seed: int, number: int, random: Random, cancels: float) -> Planned:
    at_s = random.uniform(0, FAULTS_S / 2)
    chance = random.random()
    if chance < 0.42:
        return Planned(random.choice(JOBS), at_s)
    if chance < 0.55:
        began_s = random.uniform(0.2, 3)
        pause = (Ask(began_s, "pause"), Ask(began_s + random.uniform(1, 5), "resume"))
        asks = (Ask(began_s, "cancel"),) if random.random() < 0.5 else pause
        return Planned(random.choice(INTERRUPTED), at_s, asks)
    slot = seed // SEEDS_A_PLAYBOOK * EXECUTIONS + number
    if chance < 0.7:
        return Planned(random_job(slot, confluent=True), at_s)
    job = random_job(slot, confluent=False)
    return Planned(job, at_s, asks_of(job, random, cancels))


def asks_of(job: Job, random: Random, cancels: float) -> tuple[Ask, ...]:
    """What clients ask of a random playbook. A pause always ends."""
    steps = [step["step"] for step in json.loads(job.source)["workflow"]]
    asks = []
    for _ in range(random.choice([0, 1, 2, 4])):
        after_s, what = random.uniform(0, 8), random.choice(["patch", "patch", "merge", "signal", "inject", "pause"])
        if what == "pause":
            asks += [Ask(after_s, "pause"), Ask(after_s + random.uniform(0.1, 10), "resume")]
        elif what == "signal":
            asks.append(Ask(after_s, "signal", random.choice(["go", "stop"])))
        elif what == "inject":
            asks.append(Ask(after_s, "inject", random.choice(steps)))
        else:
            patch = {random.choice(KEYS): random.choice([0, 1, 2, None] if what == "merge" else [0, 1, 2])}
            asks.append(Ask(after_s, "patch" if what == "patch" else "merge", patch))
    if random.random() < cancels:
        asks.append(Ask(random.uniform(0, 6), "cancel"))
    if random.random() < 0.25:
        asks.append(Ask(0, "rerun", random.choice([None, *steps])))
    return tuple(sorted(asks, key=lambda ask: ask.after_s))
