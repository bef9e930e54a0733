"""Executions that undo what they have done; whether each effect was undone once, or said (LANGUAGE §9 *Undoing*)."""

from __future__ import annotations

import json
from functools import lru_cache
from random import Random
from typing import Any, Final

from noetl_stream.model.json import codec
from noetl_testkit.random_language import with_undoing
from noetl_testkit.scenario.undoing import Declared, expected_effects
from noetl_testkit.scenario.undoing import undoing_problems as problems_of_facts
from noetl_testkit.simulation.random_playbooks import SimulatedWriter
from noetl_testkit.simulation.story import FAULTS_S, SEEDS_A_PLAYBOOK, Ask, Planned, Story, asks_of
from noetl_testkit.simulation.work import Job, playbook, then, work
from noetl_testkit.simulation.world import SimulatedWorld

EXECUTIONS: Final = 6

AGAIN: Final = {
    "policy": {
        "rules": [{"when": "{{ outcome.status == 'error' }}", "then": {"do": "retry", "attempts": 3, "delay": 0.5}}]
    }
}


def undone(tool: dict[str, Any]) -> dict[str, Any]:
    """A step's ``spec`` with what undoes it."""
    return {"policy": {"compensation": {"tool": tool}}}


_PAID = [{"step": "charge", "tool": work(9, 0.3), "spec": undone(work("{{ charge }}", 0.3))}]
PAID: Final = playbook("paid", _PAID)
PAID_PATH: Final = "simulation/paid"
ORDERED_PATH: Final = "simulation/ordered"


def _order(name: str, failures: int) -> str:
    flaky = {**work("{{ all }}", 0.5, failures=1), "spec": AGAIN}
    all_of_them = {"in": [1, 2, 3], "iterator": "n", "spec": {"mode": "parallel"}}
    steps: list[dict[str, Any]] = [
        {"step": "reserve", "tool": work(1, 0.4), "spec": undone(work("{{ reserve }}", 0.3)), "next": then("pay")},
        {"step": "pay", "tool": {"kind": "playbook", "path": PAID_PATH}, "next": then("all")},
        {
            "step": "all",
            "loop": all_of_them,
            "tool": work("{{ iter.n }}", 0.6),
            "spec": undone(flaky),
            "next": then("ends", "slow", mode="inclusive"),
        },
        {"step": "slow", "tool": work(1, 4.0), "spec": undone(work(0, 0.2, failures=9))},
        {"step": "ends", "tool": work(1, 1.0, failures=failures)},
        {"step": "note", "tool": work("{{ execution.status }}", 0.2)},
    ]
    policy = {"compensation": {"timeout_s": 4000}, "finally": "note"}
    return playbook(name, steps, executor={"spec": {"policy": policy, "result": "{{ slow }}"}})


FAILING: Final = Job("undone", _order("undone", 9), "failed")
FINE: Final = Job("not_undone", _order("not_undone", 0), "completed", 1)


def undoing_story(seed: int, faults: tuple[str, ...]) -> Story:
    """Orders that fail, are cancelled, also while they are undone, or go well."""
    random = Random(f"undoing {seed}")
    planned = []
    for _ in range(EXECUTIONS):
        job, chance = random.choice((FAILING, FAILING, FINE)), random.random()
        asks: tuple[Ask, ...] = ()
        if chance < 0.5:
            at_s = random.uniform(0.2, 8)
            asks = (Ask(at_s, "cancel"), Ask(at_s + random.uniform(0.2, 4), "cancel now"))[: 1 + (chance < 0.2)]
            job = Job(f"{job.name}, cancelled", job.source, ends="anyhow")
        planned.append(Planned(job, random.uniform(0, FAULTS_S / 2), asks))
    called = {PAID_PATH: PAID}
    return Story(seed, random.randint(1, 3), random.randint(1, 3), faults, tuple(planned), called=called)


@lru_cache(maxsize=64)
def random_undoing_job(number: int) -> Job:
    """A random playbook that undoes what it has done."""
    writer = _Writer(Random(f"playbook {number}"), confluent=False)
    document = with_undoing(writer.document(), Random(f"undoing {number}"), writer.undoing_work)
    return Job(f"undoing {number}", json.dumps(document), ends="anyhow")


class _Writer(SimulatedWriter):
    CALLED = (*SimulatedWriter.CALLED, PAID_PATH, PAID_PATH, ORDERED_PATH)

    def undoing_work(self) -> dict[str, Any]:
        """A task that has one effect in each run, however many attempts it takes."""
        failures = self.random.choice([0, 0, 0, 1, 9])
        return {**work("{{ execution_id }}", self.random.choice([0.0, 0.2, 1.0]), failures=failures), "spec": AGAIN}


def random_undoing_story(seed: int, faults: tuple[str, ...]) -> Story:
    """Random playbooks that are asked for anything, cancelled, also while they undo, and undone later."""
    random = Random(f"random undoing {seed}")
    planned = []
    for number in range(EXECUTIONS):
        job = random_undoing_job(seed // SEEDS_A_PLAYBOOK * EXECUTIONS + number)
        asks = [one for one in asks_of(job, random, 0.5) if one.what != "rerun"]
        if random.random() < 0.2:
            asks.append(Ask(random.uniform(0.2, 12), "cancel now"))
        last = random.random()
        asks += [Ask(99, "compensate")] if last < 0.4 else [Ask(99, "rerun")] if last < 0.6 else []
        planned.append(Planned(job, random.uniform(0, FAULTS_S / 2), tuple(sorted(asks, key=lambda ask: ask.after_s))))
    called = {PAID_PATH: PAID, ORDERED_PATH: _order("ordered", 9)}
    return Story(seed, random.randint(1, 3), random.randint(1, 3), faults, tuple(planned), called=called)


async def undoing_problems(world: SimulatedWorld) -> list[str]:
    """What is wrong with how executions undid what they had done, by their journals and the effects of their tools."""
    found: list[str] = []
    keys: dict[tuple[str, str], set[str]] = {}
    for effect in world.effects:
        keys.setdefault((effect.execution_id, effect.step), set()).add(effect.idempotency_key)
    for execution_id, row in world.store.tables.executions.items():
        playbook_row = await world.store.playbook(row.digest)
        if playbook_row is None:
            continue
        source = playbook_row.source
        declared = Declared.of(source) if source.startswith("{") else Declared()
        facts = [codec.decode_fact(entry.data) for entry in await world.store.journal(execution_id, -1)]
        found += [f"{execution_id}: {one}" for one in problems_of_facts(declared, facts)]
        for step, (least, most) in expected_effects(declared, facts).items():
            if not least <= (count := len(keys.get((execution_id, step), ()))) <= most:
                found.append(f"{execution_id}: {count} effects of {step}, not {least} to {most}")
    return found
