"""What is asked of an execution from outside, by the program, and what its events say of it (LANGUAGE §9, §13)."""

from __future__ import annotations

import getpass
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_program import HEAD, only_json
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")

PLAYBOOK = """\
metadata: {name: asked, path: tests/asked}
workflow:
  - step: start
    next: {spec: {mode: inclusive}, arcs: [{step: publish}, {step: listen}]}
  - step: publish
    spec:
      policy:
        admit:
          rules: [{when: "{{ ctx.approved | default(false) }}", then: {allow: true}}]
          wait: {timeout_s: 600}
    tool: {kind: noop, args: {by: "{{ ctx.by }}"}}
  - step: listen
    tool: {kind: wait, signal: go, timeout_s: 600}
  - step: other
    tool: {kind: noop, args: {n: "{{ args.n }}"}}
"""

LOOKS = 60


class RunningExecution:
    """One execution that waits, and the words the program has for it."""

    def __init__(self, home: Path, execution_id: str) -> None:
        self.home = home
        self.execution_id = execution_id

    def ask(self, verb: str, *options: object) -> subprocess.CompletedProcess[str]:
        reasons = ("--reason", f"to {verb}", "--correlation-id", f"ticket-{verb}")
        return noetl("execution", verb, self.execution_id, *options, *reasons, "--home", self.home)

    @property
    def status(self) -> str:
        return str(only_json(noetl("execution", "get", self.execution_id, "--home", self.home, "-o", "json"))["status"])

    def completes(self) -> bool:
        """Whether it does so while someone looks at it again and again."""
        return any(self.status == "completed" for _ in range(LOOKS))

    def journal(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = only_json(
            noetl("execution", "events", self.execution_id, "--home", self.home, "-o", "json")
        )
        return found


@pytest.fixture
def running(shared_home: Path, tmp_path: Path) -> Iterator[RunningExecution]:
    file = tmp_path / "playbook.yaml"
    file.write_text(HEAD + PLAYBOOK)
    begun = noetl("run", file, "--home", shared_home, "--timeout", "1")
    (execution_id,) = re.findall(r"execution ([0-9a-f-]{36}) continues", begun.stderr)
    yield RunningExecution(shared_home, execution_id)


def test_all_that_can_be_asked_is_done_and_recorded_with_who_asked_and_why(running: RunningExecution) -> None:
    statuses = {"begun": running.status}
    for verb, *options in (
        ("patch", "--set", "approved=false"),
        ("token", "other", "--set", "n=1"),
        ("pause",),
        ("resume",),
        ("signal", "go"),
        ("cancel",),
    ):
        found = running.ask(verb, *options)
        assert found.returncode == 0, found.stderr
        statuses[verb] = running.status
    assert (statuses["begun"], statuses["pause"], statuses["resume"]) == ("waiting", "paused", "waiting")
    journal = running.journal()
    assert (statuses["cancel"], journal[-1]["data"]["status"]) == ("cancelled", "cancelled")
    recorded = {event["name"]: event for event in journal if event["source"] == "client"}
    for name, verb in {
        "ctx.patched": "patch",
        "token.injected": "token",
        "execution.pause_requested": "pause",
        "execution.resume_requested": "resume",
        "signal.received": "signal",
        "execution.cancel_requested": "cancel",
    }.items():
        event = recorded[name]
        assert event["actor"] == event["data"]["principal"] == getpass.getuser()
        assert (event["data"]["reason"], event["data"]["correlation_id"]) == (f"to {verb}", f"ticket-{verb}")
    (injected,) = [event for event in journal if event["cause_id"] == recorded["token.injected"]["event_id"]][:1]
    assert (injected["name"], injected["data"]["token"]["cause"]) == ("token.enqueued", "injected")


def test_after_the_end_nothing_can_be_asked(running: RunningExecution) -> None:
    assert running.ask("patch", "--set", "approved=true", "--set", "by=ann").returncode == 0
    assert running.ask("signal", "go").returncode == 0
    assert running.completes()
    for verb, *options in (("patch", "--set", "by=eve"), ("token", "other"), ("signal", "go"), ("cancel",)):
        found = running.ask(verb, *options)
        assert (found.returncode, "has ended (completed)" in found.stderr) == (1, True), found.stderr
    assert [event["data"]["patch"]["by"] for event in running.journal() if event["name"] == "ctx.patched"] == ["ann"]


def test_reading_leaves_no_event(running: RunningExecution) -> None:
    before = running.journal()
    for verb in ("get", "why", "events"):
        found = noetl("execution", verb, running.execution_id, "--home", running.home)
        assert found.returncode == 0, found.stderr
    assert running.journal() == before
