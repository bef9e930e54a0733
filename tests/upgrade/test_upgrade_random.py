"""Random playbooks of the older dialects mean after their upgrade what they meant before."""

from __future__ import annotations

from random import Random

import pytest
from random_legacy import Worker, draw, meant, written
from upgrade_engine import LocalEngine, local_engine

from noetl_stream.adapters.simulated_time import SimulatedLoop, cancel_all_tasks
from noetl_stream.model.limits import Limits
from noetl_stream.playbook.upgrade.upgrade import Upgraded, upgrade
from noetl_stream.tools.contract import Tool
from noetl_stream.tools.pipeline import NoopTool


async def _check(seed: int, engine: LocalEngine, worker: Worker, kinds: dict[str, Tool]) -> None:
    random = Random(f"legacy {seed}")
    story = draw(random)
    text = written(story, random)
    expected = meant(story)
    found = upgrade(text, {kind: tool.spec for kind, tool in kinds.items()}, file=f"{seed}.yaml", limits=Limits())
    worker.did.clear()
    assert found.is_done, _shown(seed, text, found)
    assert _comments(text) == _comments(found.text), _shown(seed, text, found)

    ended = await engine.run(found.text)

    did = (ended.status, sorted(worker.did))
    assert did == (expected.status, sorted(expected.did)), _shown(seed, text, found)


def _comments(text: str) -> list[str]:
    return sorted(line.partition("# ")[2] for line in text.splitlines() if "# note" in line or "# end" in line)


def _shown(seed: int, text: str, found: Upgraded) -> str:
    notes = "\n".join(map(str, found.notes))
    problems = "\n".join(one.render() for one in found.diagnostics)
    return f"seed {seed}\n{text}\nbecame\n{found.text}\n{notes}\n{problems}"


def check_seeds(seeds: range) -> None:
    """Upgrades and runs the playbooks of these seeds, on simulated time."""
    loop = SimulatedLoop()
    worker = Worker()
    tools: dict[str, Tool] = {"noop": NoopTool(), "work": worker}

    async def run() -> None:
        async with local_engine(tools, loop.clock) as engine:
            for seed in seeds:
                await _check(seed, engine, worker, tools)
        await cancel_all_tasks()

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


def test_random_playbooks_mean_what_they_meant() -> None:
    """The work that is done and the end are those of the older dialect; no comment is lost."""
    check_seeds(range(28))


@pytest.mark.verify
def test_many_random_playbooks_mean_what_they_meant() -> None:
    """The same for more of them."""
    check_seeds(range(28, 2_000))
