"""``execution logs`` of a stack that is up, directly and through its gateway."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_stack import gateway_of

from cli_program import one_clear_line
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: logs, path: tests/logs}
workflow:
  - step: talk
    loop: {in: [a, b], iterator: name}
    tool:
      - name: code
        kind: python
        args: {name: "{{ iter.name }}"}
        code: |
          import sys
          print("code of", name)
          sys.stderr.write("to stderr")
      - name: command
        kind: shell
        command: "echo out; echo err >&2"
      - {name: quiet, kind: python, code: "return 1"}
    next: {arcs: [{step: late}]}
  - step: late
    tool:
      - name: stops
        kind: shell
        command: "echo begun; printf half; sleep 60"
        spec: {timeout: 1}
"""
CODE = ["code of a", "to stderr"]


@pytest.fixture
def target(shared_home: Path, request: pytest.FixtureRequest) -> list[str]:
    """The options that lead to the stack."""
    return ["--url", gateway_of(shared_home)] if request.param == "a gateway" else []


def lines(*words: str, home: Path) -> list[tuple[str, str, list[int], str, str]]:
    shown = noetl("execution", "logs", *words, "-o", "json", NOETL_HOME=str(home))
    assert shown.returncode == 0, shown.stderr
    found = [json.loads(line) for line in shown.stdout.splitlines()]
    return [(one["step"], one["task"], one["iteration"], one["stream"], one["text"]) for one in found]


@pytest.mark.parametrize("target", ["nothing", "a gateway"], indirect=True)
def test_output_of_tasks_is_followed_and_found_again(shared_home: Path, tmp_path: Path, target: list[str]) -> None:
    file = tmp_path / "logs.yaml"
    file.write_text(PLAYBOOK)
    execution_id = noetl("execution", "start", file, "--home", shared_home).stdout.strip()
    followed = lines(execution_id, "-f", *target, home=shared_home)
    assert followed == lines(execution_id, *target, home=shared_home)
    written = [line for line in followed if line[3] != "worker"]
    of_a = [("talk", "code", [0], "stdout", text) for text in CODE]
    assert [line for line in written if line[2] == [0]][:2] == of_a
    assert ("talk", "command", [1], "stdout", "out") in written
    assert ("talk", "command", [1], "stderr", "err") in written
    assert not any(line[1] == "quiet" for line in followed)
    assert [line[4] for line in written if line[0] == "late"] == ["begun", "half"]
    assert followed[-1][3:] == ("worker", "failed: timeout: task stops took longer than its timeout of 1 s")
    chosen = ["--step", "talk", "--task", "code", "--iteration", "0", "--since", "1h", "--grep", "o"]
    assert lines(execution_id, *chosen, *target, home=shared_home)[0][4] == "code of a"
    assert lines(execution_id, "--since", "2999-01-01", *target, home=shared_home) == []
    text = noetl("execution", "logs", execution_id, *target, NOETL_HOME=str(shared_home)).stdout
    assert " talk[0].code | code of a\n" in text
    assert " talk[0].command ! err\n" in text
    assert " late.stops: started\n" in text


def test_wrong_options_are_refused_with_a_clear_line(shared_home: Path) -> None:
    for options in (["--iteration", "x"], ["--since", "soon"], ["--grep", "x" * 257]):
        refused = noetl("execution", "logs", "e1", *options, "--home", shared_home)
        assert refused.returncode == 2
        assert options[0] in refused.stderr
    missing = noetl("execution", "logs", "nobody", "--home", shared_home)
    assert missing.returncode != 0
    assert "nobody" in one_clear_line(missing)
