"""Failures that no arc leaves: what ``check`` says of them (LANGUAGE §7 *Candidates*)."""

from __future__ import annotations

from pathlib import Path

import pytest
from playbook_building import checked, found, workflow

BEST_EFFORT = "executor: { spec: { policy: { failure: { mode: best_effort } } } }\n"
OWN = "spec: { policy: { failure: { mode: best_effort } } }, "
FETCH = "tool: { kind: http, url: 'http://x' }"
STORE = "step: store, tool: { kind: noop }"


def stepping(*steps: str, root: str = "") -> str:
    return workflow("\n".join(f"- {{ {one} }}" for one in steps), root)


def fetching(arc: str = "{ step: store }", more: str = "", tool: str = FETCH, root: str = "") -> str:
    return stepping(f"step: start, {more}{tool}, next: {{ arcs: [ {arc} ] }}", STORE, root=root)


@pytest.mark.parametrize("text", [fetching(root=BEST_EFFORT), fetching(more=OWN)])
def test_a_failure_that_silently_ends_the_only_branch_is_warned_about(text: str) -> None:
    (warning,) = found(text, "failure_not_routed")
    assert warning.message.startswith("after a failure of `start` this arc is not taken")
    assert "when: \"{{ event.name in ['step.done', 'step.failed'] }}\"" in (warning.hint or "")


@pytest.mark.parametrize(
    "text",
    [
        fetching(),  # the execution fails, which nobody overlooks
        fetching("{ step: store, when: \"{{ event.status == 'error' }}\" }, { step: store }", root=BEST_EFFORT),
        fetching("{ step: store, when: \"{{ event.name in ['step.done', 'step.failed'] }}\" }", root=BEST_EFFORT),
        fetching('{ step: store, when: "{{ event.result.data }}" }', root=BEST_EFFORT),
        fetching(tool="tool: { kind: noop }", root=BEST_EFFORT),
        fetching(tool="loop: { in: [1], iterator: n }, tool: { kind: http, url: 'http://x' }", root=BEST_EFFORT),
        fetching(
            tool=FETCH.replace(" }", ", spec: { policy: { rules: [ { else: { then: { do: break } } } ] } } }"),
            root=BEST_EFFORT,
        ),
        stepping(
            "step: start, next: { spec: { mode: inclusive }, arcs: [ { step: one }, { step: two } ] }",
            f"step: one, {FETCH}, next: {{ arcs: [ {{ step: store }} ] }}",
            f"step: two, {FETCH}, next: {{ arcs: [ {{ step: store }} ] }}",
            "step: store, spec: { join: 1 }, tool: { kind: noop }",
            root=BEST_EFFORT,
        ),
    ],
)
def test_a_failure_that_is_routed_declared_or_not_needed_by_other_branches_is_not_warned_of(text: str) -> None:
    assert checked(text).ok and found(text, "failure_not_routed") == []


@pytest.mark.parametrize(
    ("arc", "warns"),
    [
        ('{ step: store, args: { why: "{{ event.error.message }}" } }', True),
        ('{ step: store, when: "{{ event.result }}", args: { why: "{{ event.error }}" } }', True),
        ('{ step: store, args: { how: "{{ event.status }}" } }', False),
        ("{ step: store, when: \"{{ event.status == 'error' }}\", args: { why: '{{ event.error.kind }}' } }", False),
    ],
)
def test_an_arc_that_reads_an_error_it_never_sees_is_warned_about(arc: str, warns: bool) -> None:
    assert bool(found(fetching(arc), "failure_not_routed")) is warns


def test_no_example_is_warned_about() -> None:
    for path in (Path(__file__).parents[2] / "playbooks").rglob("*.yaml"):
        assert found(path.read_text(), "failure_not_routed") == [], path
