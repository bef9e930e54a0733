"""``execution start --each`` on a stack that is up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_program import one_clear_line
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")

GREET = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: greet, path: tests/greet}
workload: {name: nobody, sign: "!"}
executor: {spec: {result: "{{ workload.name ~ workload.sign }}"}}
workflow:
  - step: start
    tool: {kind: noop}
"""


def test_the_command_writes_results_and_goes_on_with_them(shared_home: Path, tmp_path: Path) -> None:
    playbook, rows, results = (tmp_path / name for name in ("greet.yaml", "rows.jsonl", "results.jsonl"))
    playbook.write_text(GREET)
    rows.write_text('{"name": "ada"}\n{"name": "bob"}\n', encoding="utf-8-sig")  # as editors may save it
    words = ("execution", "start", playbook, "--each", rows, "--set", "sign=?", "--home", shared_home)

    done = noetl(*words)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["result"] for line in done.stdout.splitlines()] == ["ada?", "bob?"]
    batch = done.stderr.split()[1]
    assert done.stderr.splitlines()[-1] == "2 of 2 rows ended"

    results.write_text(done.stdout.splitlines(keepends=True)[0] + '{"row": 2, "ba')  # killed while it wrote
    again = noetl(*words, "--batch", batch, "--results", results)
    assert again.returncode == 0, again.stderr
    assert results.read_text() == done.stdout

    other = noetl(*words, "--results", results)
    assert other.returncode == 2 and "is not a result of this batch" in one_clear_line(other)
    rows.write_text('{"name": "ada", "n": 12345678901234567.89}\n')
    assert f"warning: {rows}:1: digits are lost, " in noetl(*words).stderr
    rows.write_text('{"name": "ada"}\n{"name": }\n')
    wrong = noetl(*words)
    assert wrong.returncode == 2 and f"{rows}:2: " in one_clear_line(wrong)
    assert noetl("execution", "start", playbook, "--batch", batch, "--home", shared_home).returncode == 2
    assert noetl(*words, "--wait").returncode == 2
