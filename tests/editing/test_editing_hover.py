"""What is said about the name or key under the pointer."""

from __future__ import annotations

import pytest
from marked_text import told

from noetl_stream.playbook.model.document import Root
from noetl_stream.playbook.model.step import Step
from noetl_stream.playbook.vocabulary.names import NAMESPACE_WORDS

PLAYBOOK = """\
kind: Playbook
work‸1load:
  ci‸2ty: Rome
workflow:
  - step: st‸3art
    desc: Reads all.
    lo‸4op: {in: "{{ workload.cities }}", iterator: it‸5em}
    tool:
      - name: fe‸6tch
        kind: ht‸7tp
        u‸8rl: "{{ it‸9em }}{{ wo‸arkload.ci‸bty }}"
        spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {total: "{{ ctx.to‸ctal }}"}}}}]}}
    next: {arcs: [{step: st‸dart, when: "{{ eve‸ent.name and ctx.ne‸fver and exec‸gution.due }}"}]}
"""


def at(mark: str) -> str:
    return told(PLAYBOOK, mark)


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ("1", [Root.model_fields["workload"].description]),
        ("2", ["city", "Default: text `Rome`"]),
        ("3", ["start", "Reads all.", "`http`", "each item of"]),
        ("4", [Step.model_fields["loop"].description]),
        ("6", ["fetch", "step `start`", "Kind: `http`"]),
        ("7", ["http", "- `method`"]),
        ("8", ["url"]),
        ("9", ["item", "An item of", "workload.cities"]),
        ("a", [NAMESPACE_WORDS["workload"]]),
        ("b", ["city", "Rome"]),
        ("c", ["total", "line 12"]),
        ("d", ["start", "Reads all."]),
        ("e", [NAMESPACE_WORDS["event"]]),
        ("f", ["never", "Nothing in this playbook sets it."]),
        ("g", [NAMESPACE_WORDS["execution"]]),
    ],
)
def test_a_name_or_key_is_explained(mark: str, words: list[str]) -> None:
    found = at(mark)
    assert [word for word in words if word not in found] == [], found


def test_a_loop_over_the_rows_of_a_task_shows_the_task() -> None:
    text = "workflow: [{step: st‸1art, loop: {rows: {kind: duckdb}, iterator: pa‸2rt}, tool: {kind: noop}}]"
    assert "Once for each item of `{kind: duckdb}`." in told(text, "1")
    assert "An item of `{kind: duckdb}`." in told(text, "2")


OF_NOTHING = ["workload: {a: [1, so‸me]}", "‸", "a: b # com‸ment", "workflow: [{step: a, tool: {kind: n‸ope}}]"]


@pytest.mark.parametrize("text", OF_NOTHING)
def test_unknown_names_have_no_hover_text(text: str) -> None:
    assert told(text) == ""
