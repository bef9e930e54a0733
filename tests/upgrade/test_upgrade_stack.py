"""Playbooks of older dialects, upgraded by the command and run by a whole stack, with its Postgres."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: older, path: tests/older }\n"

VARS = """\
workload: { auth: local_postgres }
workflow:
  - step: start
    type: postgres
    auth: "{{ workload.auth }}"
    commands:
      - CREATE TABLE IF NOT EXISTS upgraded_users (id integer PRIMARY KEY, email text)
      - INSERT INTO upgraded_users VALUES (1, 'ada@example.org') ON CONFLICT DO NOTHING
    next: fetch_user
  # what is read is remembered
  - step: fetch_user
    tool:
      kind: postgres
      auth: "{{ workload.auth }}"
      command: SELECT id, email FROM upgraded_users WHERE id = :id
      params: { id: 1 }
    vars:
      email: "{{ result[0].email }}"
    next: [{ step: tell, with: { count: "{{ fetch_user.command_0.row_count }}" } }]
  - step: tell
    tool: { kind: noop, args: { email: "{{ vars.email }}", count: "{{ args.count }}" } }
"""

SINK = """\
workflow:
  - step: start
    tool:
      kind: python
      code: |
        result = {"id": 7, "name": "x"}
    sink:
      tool: { kind: postgres, auth: local_postgres }
      statement: |
        CREATE TABLE IF NOT EXISTS upgraded_things (id integer, name text);
        INSERT INTO upgraded_things VALUES (:id, :name)
      args: { id: "{{ result.id }}", name: "{{ result.name }}" }
    next: end
  - step: end
    tool: { kind: noop, args: { name: "{{ start.name }}" } }
"""

CASE = """\
workload: { numbers: [3, 4] }
workflow:
  - step: square
    loop: { collection: workload.numbers, element: number, mode: async }
    tool:
      - compute:
          kind: python
          with: { number: "{{ number }}" }
          script: return number ** 2
          retry: 2
    case:
      - when: "{{ event.name == 'step.exit' }}"
        then: { next: [{ step: total, args: { squares: "{{ square }}" } }] }
  - step: total
    tool: python
    args: { squares: "{{ args.squares }}" }
    code: return sum(squares)
"""


@pytest.mark.parametrize(
    ("workflow", "result"),
    [(VARS, {"email": "ada@example.org", "count": 1}), (SINK, {"name": "x"}), (CASE, 25)],
    ids=["vars", "sink", "case"],
)
def test_an_upgraded_playbook_runs_on_a_stack(workflow: str, result: Any, shared_home: Path, tmp_path: Path) -> None:
    """The older file is refused; what the command makes of it completes with what the older dialect says."""
    file = tmp_path / "older.yaml"
    file.write_text(HEAD + workflow)
    assert noetl("run", file, NOETL_HOME=str(shared_home)).returncode == 2

    upgraded = noetl("playbook", "upgrade", "--write", file)
    assert upgraded.returncode == 0, upgraded.stderr

    ended = noetl("run", "-o", "json", file, NOETL_HOME=str(shared_home))
    assert ended.returncode == 0, ended.stderr + file.read_text()
    assert json.loads(ended.stdout)["result"] == result
