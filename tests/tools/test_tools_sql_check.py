from __future__ import annotations

import json

import pytest

from noetl_stream.playbook.compile.compiler import check
from noetl_stream.tools.registry import kinds_of, load_tools

HEAD = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "p", "path": "p"}, "workload": {"n": 1}}


def codes(task: dict[str, object]) -> list[str]:
    text = json.dumps({**HEAD, "workflow": [{"step": "s", "tool": task}]})
    return [diagnostic.code for diagnostic in check(text, kinds_of(load_tools())).diagnostics]


@pytest.mark.parametrize("kind", ["postgres", "duckdb"])
@pytest.mark.parametrize("name", ["command", "query", "commands"])
def test_a_template_inside_sql_is_warned_of_and_a_parameter_is_not(kind: str, name: str) -> None:
    auth = {"auth": "db"} if kind == "postgres" else {}
    assert codes({"kind": kind, **auth, name: "select {{ workload.n }}"}) == ["template_in_sql"]
    assert codes({"kind": kind, **auth, name: "select $n", "params": {"n": "{{ workload.n }}"}}) == []


@pytest.mark.parametrize(
    ("written", "warns"), [("'{{ '{{json .}}' }}'", False), ("{{ 'a' }}", False), ("{{ 'a' ~ workload.n }}", True)]
)
def test_a_template_that_a_shell_reads_is_warned_of_unless_it_is_constant(written: str, warns: bool) -> None:
    assert codes({"kind": "shell", "command": f"echo {written}"}) == ["template_in_shell"] * warns
