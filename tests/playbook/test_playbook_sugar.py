"""LANGUAGE §12 *Sugar*, v10 §14: what ``choose``, ``while`` and ``until`` compile to."""

from __future__ import annotations

from textwrap import indent

import pytest
from msgspec.structs import replace
from playbook_building import codes, found, pipeline, plan_of, start_of, task_of, workflow

from noetl_stream.playbook.plan import RulePlan, StepPlan
from noetl_stream.playbook.vocabulary.names import first_labels, is_generated, name_in_file, result_name

NOOP = "{ kind: noop }"
PICK = """
- name: pick
  choose:
    - { when: "{{ workload.n > 1 }}", then: [ { name: one, kind: noop } ] }
    - { when: "{{ workload.n > 0 }}", then: [ { name: two, kind: noop }, { kind: noop } ] }
- { name: last, kind: noop }
"""


def labels(step: StepPlan) -> list[str]:
    return [task.name for task in step.tasks]


def rules(step: StepPlan, label: str) -> list[tuple[str | None, str, str | None]]:
    policy = step.tasks[step.task_index(label)].policy
    assert policy is not None

    def shown(rule: RulePlan) -> tuple[str | None, str, str | None]:
        return (rule.guard.source if rule.guard else None, rule.do, rule.to)

    return [shown(rule) for rule in policy.rules]


def test_choose_becomes_a_ladder_of_jumps_and_an_end_behind_each_branch() -> None:
    step = start_of(pipeline(PICK))
    assert labels(step) == ["pick__choose", "one", "pick__end_0", "two", "pick_1_task_1", "pick__end_1", "last"]
    assert rules(step, "pick__choose") == [
        ("{{ workload.n > 1 }}", "jump", "one"),
        ("{{ workload.n > 0 }}", "jump", "two"),
        (None, "jump", "last"),
    ]
    assert rules(step, "pick__end_0") == rules(step, "pick__end_1") == [(None, "jump", "last")]


def test_the_else_of_a_choose_is_its_last_branch() -> None:
    text = f"- name: pick\n  choose: [ {{ when: false, then: [ {NOOP} ] }}, {{ else: {{ then: [ {NOOP} ] }} }} ]"
    step = start_of(pipeline(text))
    assert rules(step, "pick__choose") == [("false", "jump", "pick_0_task_0"), (None, "jump", "pick_1_task_0")]


def test_a_construct_that_ends_the_pipeline_breaks_out_of_it() -> None:
    step = start_of(pipeline(f"- name: pick\n  choose: [ {{ when: true, then: [ {NOOP} ] }} ]"))
    assert rules(step, "pick__choose") == [("true", "jump", "pick_0_task_0"), (None, "break", None)]
    assert rules(step, "pick__end_0") == [(None, "break", None)]


@pytest.mark.parametrize(
    ("word", "begin", "end"),
    [
        (
            "while",
            [("true", "jump", "body"), (None, "jump", "last")],
            [("true", "jump", "body"), (None, "jump", "last")],
        ),
        ("until", [(None, "jump", "body")], [("true", "jump", "last"), (None, "jump", "body")]),
    ],
)
def test_rounds_are_judged_before_or_after(word: str, begin: list[object], end: list[object]) -> None:
    again = f"{{ name: again, {word}: {{ when: true, do: [ {{ name: body, kind: noop }} ] }} }}"
    text = f"- {again}\n- {{ name: last, kind: noop }}"
    step = start_of(pipeline(text))
    assert labels(step) == [f"again__{word}", "body", "again__end", "last"]
    assert rules(step, f"again__{word}") == begin
    assert rules(step, "again__end") == end


def test_the_last_construct_of_a_body_leads_to_the_end_of_that_body() -> None:
    inner = f"{{ name: inner, choose: [ {{ when: false, then: [ {NOOP} ] }} ] }}"
    step = start_of(pipeline(f"- {{ name: outer, while: {{ when: true, do: [ {inner} ] }} }}"))
    assert labels(step) == ["outer__while", "inner__choose", "inner_0_task_0", "inner__end_0", "outer__end"]
    assert rules(step, "inner__choose")[-1] == (None, "jump", "outer__end")
    assert rules(step, "inner__end_0") == [(None, "jump", "outer__end")]
    assert rules(step, "outer__end")[0] == ("true", "jump", "inner__choose")


def test_labels_depend_on_names_and_places_only() -> None:
    before = start_of(pipeline(PICK))
    after = start_of(
        pipeline("# a comment\n" + PICK.replace("workload.n > 1", "workload.m == 'x'"), root="workload: { m: 1 }\n")
    )
    assert labels(before) == labels(after)


def test_a_construct_without_a_name_is_named_by_its_place() -> None:
    text = f"- {NOOP}\n- choose: [ {{ when: true, then: [ {NOOP} ] }} ]"
    assert labels(start_of(pipeline(text)))[1:] == ["task_1__choose", "task_1_0_task_0", "task_1__end_0"]
    single = workflow(f"- step: start\n  tool: {{ until: {{ when: true, do: [ {NOOP} ] }} }}")
    assert labels(start_of(single)) == ["start_task__until", "start_task_task_0", "start_task__end"]


def test_a_jump_to_a_construct_leads_to_its_begin() -> None:
    jump = "{ name: back, kind: noop, spec: { policy: { rules: [ { else: { then: { do: jump, to: pick } } } ] } } }"
    step = start_of(pipeline(f"{PICK}\n- {jump}"))
    assert rules(step, "back") == [(None, "jump", "pick__choose")]


def test_generated_tasks_have_the_line_and_origin_of_their_source() -> None:
    text = pipeline(PICK)
    step = start_of(text)
    lines = text.splitlines()
    begin, end = step.tasks[0], step.tasks[step.task_index("pick__end_1")]
    assert lines[begin.line - 1].strip() == "choose:"
    assert "workload.n > 0" in lines[end.line - 1]
    assert begin.origin == end.origin == f"choose at line {begin.line}"
    assert begin.label == f"pick__choose (choose at line {begin.line})"
    assert begin.policy is not None and "workload.n > 0" in lines[begin.policy.rules[1].line - 1]
    assert [task.origin for task in step.tasks if not is_generated(task.name)] == [""] * 4


def test_a_construct_has_a_result_by_its_name_and_generated_tasks_have_none() -> None:
    read = '- { name: shown, kind: noop, args: { a: "{{ pick }}", b: "{{ results.pick.x }}" } }'
    assert ("results", "pick") in start_of(pipeline(PICK + read)).tasks[-1].inputs.reads
    assert codes(pipeline(PICK + read.replace("results.pick", "results.pick__end_0"))) == ["unknown_task"]


@pytest.mark.parametrize("name", ["outcome", "_attempt", "_task"])
def test_a_guard_of_a_construct_cannot_read_task_policy_names(name: str) -> None:
    text = pipeline(f'- choose: [ {{ when: "{{{{ {name} == 1 }}}}", then: [ {NOOP} ] }} ]')
    [problem] = found(text, "namespace_not_here")
    assert problem.hint and (name != "outcome" or "`<task>.outcome`" in problem.hint)


def test_the_policy_of_a_task_inside_reads_its_outcome() -> None:
    policy = "spec: { policy: { rules: [ { when: \"{{ outcome.status == 'error' }}\", then: { do: fail } } ] } }"
    assert codes(pipeline(f"- choose: [ {{ when: true, then: [ {{ kind: noop, {policy} }} ] }} ]")) == []


def test_names_are_unique_in_a_pipeline() -> None:
    text = "- { name: a, kind: noop }\n- { name: a, while: { when: true, do: [ { name: a, kind: noop } ] } }"
    assert [item.message for item in found(pipeline(text), "duplicate_name")] == [
        "duplicate task `a`, first on line 7"
    ] * 2


@pytest.mark.parametrize("word", ["choose", "while", "until"])
def test_sugar_next_to_a_kind_is_an_unknown_key(word: str) -> None:
    assert codes(pipeline(f"- {{ kind: noop, {word}: [] }}")) == ["unknown_key"]


def test_constructs_nest_as_deep_as_the_file_may() -> None:
    text = f"[ {NOOP} ]"
    for depth in range(15):
        text = f"[ {{ name: d{depth}, while: {{ when: false, do: {text} }} }} ]"
    assert len(start_of(workflow(f"- step: start\n  tool: {text}")).tasks) == 31
    for depth in range(15, 40):
        text = f"[ {{ name: d{depth}, while: {{ when: false, do: {text} }} }} ]"
    assert codes(workflow(f"- step: start\n  tool: {text}")) == ["yaml_limit"]


def test_a_step_may_still_be_named_so_that_its_task_looks_reserved() -> None:
    task = task_of(workflow("- step: start\n  tool: { kind: noop }\n- step: end_\n  tool: { kind: noop }"))
    assert result_name(task.name) == task.name == "start_task"
    other = plan_of(workflow("- step: end_\n  tool: { kind: noop }")).steps["end_"].tasks[0]
    assert result_name(other.name) == other.name == "end__task"


@pytest.mark.parametrize("name", ["pick", "pick_", "_pick", "a_end", "end"])
def test_labels_lead_back_to_the_construct(name: str) -> None:
    step = start_of(pipeline(PICK.replace("name: pick", f"name: {name}")))
    generated = [label for label in labels(step) if is_generated(label)]
    assert [name_in_file(label) for label in generated] == [name, None, None]
    assert [result_name(label) for label in generated] == [None, name, name]
    assert first_labels(labels(step)).items() >= {name: f"{name}__choose", "one": "one"}.items()


def test_the_same_pipeline_written_with_jumps_compiles_to_the_same_rules() -> None:
    by_hand = """
    - name: pick
      kind: noop
      spec:
        policy:
          rules:
            - { when: "{{ workload.n > 1 }}", then: { do: jump, to: one } }
            - else: { then: { do: jump, to: last } }
    - name: one
      kind: noop
    - { name: last, kind: noop }
    """
    sugar = """
    - name: pick
      choose: [ { when: "{{ workload.n > 1 }}", then: [ { name: one, kind: noop } ] } ]
    - { name: last, kind: noop }
    """
    assert rules(start_of(pipeline(indent(by_hand, ""))), "pick") == rules(start_of(pipeline(sugar)), "pick__choose")


def test_a_plain_task_has_its_own_name_as_label() -> None:
    task = task_of(pipeline(f"- {NOOP}"))
    assert (task.label, replace(task, origin="choose at line 3").label) == ("task_0", "task_0 (choose at line 3)")
