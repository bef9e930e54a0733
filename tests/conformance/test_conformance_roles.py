"""Sentences about server, worker and command line that no other test shows (formal §1.2, §11; LANGUAGE §1, §4, §5)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from engine_scenarios import started
from worker_stage import Endless, Stage

from cli_program import HEAD, only_json
from noetl_stream.model.events import TaskProcessed
from noetl_stream.tools.contract import ToolCall
from warm_program import noetl

HELD = """\
metadata: {name: held, path: tests/held}
workflow:
  - step: start
    next: {spec: {mode: inclusive}, arcs: [{step: shut}, {step: work}]}
  - step: shut
    spec: {policy: {admit: {rules: [{else: {then: {allow: false}}}]}}}
    tool: {kind: noop}
  - step: work
    tool: {kind: python, code: "print('a word of the code')"}
"""


@pytest.fixture
def held(tmp_path: Path) -> Path:
    file = tmp_path / "held.yaml"
    file.write_text(HEAD + HELD)
    return file


def workers_of(home: Path) -> list[psutil.Process]:
    """The worker processes of the `dev` that keeps this home up."""
    return [
        child
        for process in psutil.process_iter(["cmdline"])
        if str(home) in (process.info["cmdline"] or []) and "dev" in process.info["cmdline"]
        for child in process.children()
        if "worker" in child.cmdline()
    ]


@pytest.mark.xdist_group("stack")
def test_a_worker_listens_on_no_port(shared_home: Path) -> None:
    workers = workers_of(shared_home)
    assert workers
    for worker in workers:
        connections = worker.net_connections(kind="inet")
        assert [one for one in connections if one.status == psutil.CONN_LISTEN] == []
        assert connections, "it works on connections it has made itself"


@pytest.mark.xdist_group("stack")
def test_run_says_that_tokens_were_discarded(shared_home: Path, held: Path) -> None:
    found = noetl("run", held, "--home", shared_home)
    assert found.returncode == 0, found.stderr
    assert "token for shut discarded: nothing left can change its admission" in found.stderr
    assert "1 token discarded at the end" in found.stderr


@pytest.mark.xdist_group("stack")
def test_output_of_python_is_shown_with_the_run(shared_home: Path, held: Path) -> None:
    shown = noetl("run", held, "--home", shared_home).stderr
    assert "work.work_task | a word of the code\n" in shown
    (execution_id,) = re.findall(r"\(([0-9a-f-]{36})\)", shown)
    journal = only_json(noetl("execution", "events", execution_id, "--home", shared_home, "-o", "json"))
    (processed,) = [event for event in journal if event["name"] == "task.processed"]
    assert processed["data"]["outcome"]["output"] == "a word of the code\n"


@pytest.mark.parametrize(
    ("step", "executor", "pool"), [("", "", "default"), ("", "main", "main"), ("own", "main", "own")]
)
def test_a_command_goes_to_the_pool_of_its_step(step: str, executor: str, pool: str) -> None:
    scenario = started(
        f"- step: start\n  spec: {{{f'pool: {step}' if step else ''}}}\n  tool: {{kind: noop}}\n",
        f"executor: {{spec: {{pool: {executor}}}}}\n" if executor else "",
    )
    assert scenario.take("start").command.pool == pool


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    await made.close()


async def test_retry_delays_do_not_count_towards_the_timeout_of_an_attempt(stage: Stage) -> None:
    endless = Endless()

    async def first_hangs(call: ToolCall) -> Any:
        return await endless(call) if call.attempt == 1 else "in time"

    stage.puppet.acts["act"] = first_hangs
    rule = "{when: \"{{ outcome.error.kind == 'timeout' }}\", then: {do: retry, attempts: 2, delay: 3}}"
    spec = f"{{timeout: 0.01, policy: {{rules: [{rule}]}}}}"
    plan = stage.plan(f"- step: start\n  tool: [{{name: act, kind: puppet, spec: {spec}}}]\n")
    await stage.start()
    await stage.issue(stage.command(plan))
    await stage.soon(lambda: stage.puppet.cancelled)
    await stage.advance(4.0, step_s=0.5)
    assert [call.attempt for call in stage.puppet.calls] == [1, 2]
    assert [fact.do for fact in stage.facts if isinstance(fact, TaskProcessed)] == ["retry", "continue"]
    assert stage.names[-1] == "step.done"
