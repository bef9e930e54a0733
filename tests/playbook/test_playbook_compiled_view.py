"""``playbook show --compiled``. Each ``compiled/*.txt`` is the view of the playbook with the same name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playbook_building import pipeline, plan_of
from playbook_kinds import KINDS

from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.compile.view import compiled_text, compiled_view
from noetl_stream.playbook.plan import Plan
from noetl_stream.playbook.vocabulary.names import is_generated

FOLDER = Path(__file__).with_name("compiled")
FILES = sorted(FOLDER.glob("*.yaml"))


def load(path: Path) -> Plan:
    return compile_playbook(path.read_text(encoding="utf-8"), KINDS, file=path.name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_text_shows_every_task_rule_and_arc(path: Path) -> None:
    assert compiled_text(load(path)) == path.with_suffix(".txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", [*FILES, *sorted((FOLDER.parent / "accepted").glob("*.yaml"))], ids=lambda p: p.stem)
def test_the_view_is_plain_json(path: Path) -> None:
    view = compiled_view(load(path))
    assert json.loads(json.dumps(view)) == view


def test_every_task_has_its_line_and_generated_ones_their_origin() -> None:
    view = compiled_view(load(FOLDER / "sugar.yaml"))
    tasks = view["steps"][0]["tasks"]
    assert {task["name"]: task["line"] for task in tasks}["settle__until"] == 42
    assert {task["name"] for task in tasks if "origin" in task} == {
        task["name"] for task in tasks if is_generated(task["name"])
    }
    assert tasks[1] == {
        "name": "route__choose",
        "kind": "noop",
        "line": 12,
        "origin": "choose at line 12",
        "policy": {
            "on_unmatched": "continue",
            "rules": [
                {"when": "{{ fetch.status == 404 }}", "do": "jump", "to": "missing", "line": 13},
                {"when": "{{ fetch.data.total > 100 }}", "do": "jump", "to": "large", "line": 16},
                {"do": "jump", "to": "route_2_task_0", "line": 38},
            ],
        },
    }


def test_the_view_has_the_settings_of_the_document_and_its_steps() -> None:
    view = compiled_view(load(FOLDER / "routing.yaml"))
    start, left, right, merge = view["steps"]
    assert (view["timeout_s"], view["limits"], view["result"]) == (600.0, {"max_step_runs": 50}, "{{ merge.total }}")
    assert (start["routing"], [arc["step"] for arc in start["arcs"]]) == ("inclusive", ["left", "right"])
    assert left["admit"] == {
        "rules": [{"when": "{{ ctx.approved | default(false) }}", "allow": True}],
        "wait": {"timeout_s": 3600.0, "on_timeout": "discard"},
    }
    assert (right["loop"]["iterator"], right["loop"]["loop"]["in"]) == ("outer", "{{ iter.outer }}")
    assert right["tasks"][0]["policy"]["rules"][0]["set_shared"] == {"seen": {"op": "count"}}
    assert (merge["join"], merge["deadline_s"]) == ("all", 60.0)


def test_the_view_omits_what_a_playbook_does_not_set() -> None:
    view = compiled_view(plan_of(pipeline("- { kind: noop }")))
    assert view["steps"] == [{"step": "start", "line": 5, "pool": "default", "tasks": [view["steps"][0]["tasks"][0]]}]
    assert view["steps"][0]["tasks"][0] == {"name": "task_0", "kind": "noop", "line": 7}
