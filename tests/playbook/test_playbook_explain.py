"""``playbook explain``: each name of the compiled form leads back to its line (v10 §15 *debug map*)."""

from __future__ import annotations

from pathlib import Path

import pytest
from playbook_kinds import KINDS

from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.compile.view import ExplainedName, compiled_view, explain_names
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.yaml.source import read_source

FOLDER = Path(__file__).parent
FILES = sorted([*FOLDER.glob("compiled/*.yaml"), *FOLDER.glob("accepted/*.yaml")])

LIMITED = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: p, path: tests/p }
executor:
  spec:
    policy:
      concurrency: { key: "import-{{ workload.customer }}", limit: 10, on_limit: reject }
workload: { customer: acme }
workflow:
  - step: start
    spec:
      policy:
        limit: { key: api, rate: { per_s: 5, burst: 2 } }
    tool:
      name: send
      kind: noop
      spec: { policy: { limit: { key: mail, concurrency: 2 } } }
"""

TEXT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: p, path: tests/p }
executor:
  spec:
    timeout_s: 60
workflow:
  - step: start
    desc: begins
    spec:
      policy:
        admit:
          rules:
            - when: "{{ ctx.open | default(false) }}"
              then: { allow: true }
            - else:
                then: { allow: false }
          wait: { timeout_s: 5 }
        lifecycle:
          timeout_s: 30
          deadline_s: 40
    loop:
      in: [1]
      iterator: outer
      loop:
        in: [2]
        iterator: inner
    tool:
      - fetch:
          kind: noop
          spec:
            policy:
              rules:
                - when: "{{ outcome.error }}"
                  then: { do: fail }
                - else: { then: { do: continue } }
      - { name: rest, kind: wait, for_s: 1 }
    next:
      spec:
        wait: { timeout_s: 6 }
      arcs:
        - { step: end, when: "{{ event.name == 'loop.done' }}" }
        - step: end
  - step: end
    tool:
      kind: noop
"""


def names_of(text: str) -> dict[str, ExplainedName]:
    source = read_source(text, Problems("p.yaml"))
    assert source is not None
    return {one.name: one for one in explain_names(compile_playbook(text, KINDS), source.root)}


def test_steps_tasks_guards_iterations_arcs_and_timers_lead_to_their_lines() -> None:
    assert {name: (one.what, one.line) for name, one in names_of(TEXT).items()} == {
        "execution": ("timer", 6),
        "start": ("step", 8),
        "start.admit.rules[0]": ("admission", 14),
        "start.admit.rules[1]": ("admission", 16),
        "start.admission": ("timer", 18),
        "start.next": ("timer", 40),
        "start.step": ("timer", 20),
        "start.deadline": ("timer", 21),
        "start[*]": ("iteration", 22),
        "start[*][*]": ("iteration", 25),
        "start.fetch": ("task", 29),
        "start.fetch.rules[0]": ("rule", 34),
        "start.fetch.rules[1]": ("rule", 36),
        "start.rest": ("task", 37),
        "start.rest.wait": ("timer", 37),
        "start.next.arcs[0]": ("arc", 42),
        "start.next.arcs[1]": ("arc", 43),
        "end": ("step", 44),
        "end.end_task": ("task", 46),
    }


def test_a_name_says_what_it_stands_for() -> None:
    names = names_of(TEXT)
    assert names["start"].about == "begins"
    assert names["start.admit.rules[0]"].about == "{{ ctx.open | default(false) }} → allow"
    assert names["start.fetch.rules[1]"].about == "else → continue"
    assert names["start.next.arcs[1]"].about == "always → end"
    assert names["start[*][*]"].about == "inner, as iteration n.n"


def test_an_admission_says_what_it_adds_and_an_arc_what_it_does_beyond_its_guard() -> None:
    text = """\
- step: start
  spec: { policy: { admit: { mode: inclusive, rules: [ { when: true, then: { allow: true, token: { a: 1 } } } ] } } }
  next:
    spec: { policy: { dedupe: "{{ args.n }}", priority: 0 } }
    arcs: [ { step: start, spec: { partition: one } } ]
"""
    text = TEXT.partition("executor:")[0] + "workflow:\n" + text
    names = names_of(text)
    assert names["start.admit.rules[0]"].about == "true → allow, adds a"
    spec = "priority: 0, dedupe: {{ args.n }}, partition: one"
    assert names["start.next.arcs[0]"].about == f"always → start, {spec}"
    (step,) = compiled_view(compile_playbook(text, KINDS))["steps"]
    assert step["admit"] == {"mode": "inclusive", "rules": [{"when": "true", "allow": True, "token": {"a": 1}}]}
    assert step["arcs"][0]["spec"] == {"priority": 0, "dedupe": "{{ args.n }}", "partition": "one"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_task_of_the_compiled_view_is_explained_with_the_same_line_and_origin(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    names = names_of(text)
    for step in compiled_view(compile_playbook(text, KINDS))["steps"]:
        for task in step.get("tasks", []):
            found = names[f"{step['step']}.{task['name']}"]
            assert (found.line, found.origin) == (task["line"], task.get("origin", ""))


def test_limits_are_listed_with_their_keys() -> None:
    limits = {name: (one.line, one.about) for name, one in names_of(LIMITED).items() if one.what == "limit"}
    assert limits == {
        "execution.limit": (7, "key import-{{ workload.customer }}: 10 at once, reject"),
        "start.limit": (13, "key api: 5 per second with bursts of 2, queue"),
        "start.send.limit": (15, "key mail: 2 at once, queue"),
    }
