"""LANGUAGE §12 *Sugar*, v10 §14: ``choose``, ``while`` and ``until`` run as their words say."""

from __future__ import annotations

from textwrap import indent
from typing import Any, NamedTuple

import pytest
from engine_scenarios import given, limits

from noetl_stream.model.events import StepFailed, TaskProcessed
from noetl_stream.model.json.codec import decode_json
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.vocabulary.names import is_generated
from noetl_testkit.scenario.scenario import Scenario


class Story(NamedTuple):
    """``tasks`` are those that ran, without generated ones; ``labels`` all; ``inputs`` the last of each task."""

    tasks: list[str]
    labels: list[str]
    inputs: dict[str, Any]
    scenario: Scenario

    @property
    def result(self) -> Any:
        return decode_json(self.scenario.execution.steps["start"].outcome.result.value)


def story_of(tool: str, root: str = "", *, step: str = "", **workload: Any) -> Story:
    """One step with this pipeline, run to its end; every ``noop`` gives its args."""
    text = "- step: start\n" + indent(step, "  ") + "  tool:\n" + indent(tool.strip("\n"), "    ") + "\n"
    scenario = given(text, root)
    scenario.start(workload=workload)
    run = scenario.take("start")
    inputs: dict[str, Any] = {}
    run.begin()
    while not run.over:
        inputs[run.task] = run.inputs.get("args")
        run.answer()
    labels = [fact.task for fact in scenario.facts(TaskProcessed)]
    return Story([label for label in labels if not is_generated(label)], labels, inputs, scenario)


CHOOSE = """
- { name: before, kind: noop, args: { n: "{{ workload.n }}" } }
- name: pick
  choose:
    - when: "{{ before.n > 10 }}"
      then:
        - { name: big, kind: noop, args: { size: big } }
        - { name: bigger, kind: noop, args: { size: bigger, seen: "{{ _prev.size }}" } }
    - when: "{{ before.n > 5 }}"
      then: [ { name: middle, kind: noop, args: { size: middle } } ]
- name: after
  kind: noop
  args: { picked: "{{ pick }}", prev: "{{ _prev }}", size: "{{ pick.size | default('none') }}" }
"""
ELSE = "    - else: { then: [ { name: small, kind: noop, args: { size: small } } ] }\n"
WITH_ELSE = CHOOSE.replace("- name: after", f"{ELSE}- name: after")


@pytest.mark.parametrize(
    ("n", "taken", "size"),
    [(11, ["big", "bigger"], "bigger"), (6, ["middle"], "middle"), (1, ["small"], "small")],
)
def test_choose_runs_only_the_first_branch_whose_guard_holds(n: int, taken: list[str], size: str) -> None:
    story = story_of(WITH_ELSE, n=n)
    assert story.tasks == ["before", *taken, "after"]
    assert story.inputs["after"]["size"] == size
    assert story.inputs["after"]["picked"] == story.inputs["after"]["prev"]
    assert story.scenario.status == "completed"


def test_choose_without_else_runs_nothing_when_no_guard_holds_and_has_no_result() -> None:
    story = story_of(CHOOSE, n=1)
    assert story.tasks == ["before", "after"]
    assert story.inputs["after"] == {"picked": None, "prev": {"n": 1}, "size": "none"}


def test_the_first_task_of_a_branch_sees_the_task_before_the_choose_as_previous() -> None:
    tool = """
    - { name: before, kind: noop, args: { n: 1 } }
    - choose: [ { when: true, then: [ { name: inside, kind: noop, args: { seen: "{{ _prev }}" } } ] } ]
    """
    assert story_of(tool).inputs["inside"] == {"seen": {"n": 1}}


def test_a_step_that_ends_with_a_choose_has_the_result_of_the_last_task_that_ran() -> None:
    ends = WITH_ELSE[: WITH_ELSE.index("- name: after")]
    assert story_of(ends, n=6).result == {"size": "middle"}
    assert story_of(CHOOSE[: CHOOSE.index("- name: after")], n=1).result == {"n": 1}


def test_a_step_of_a_choose_that_chose_nothing_has_the_result_null() -> None:
    story = story_of("- choose: [ { when: false, then: [ { kind: noop } ] } ]")
    assert (story.tasks, story.result, story.scenario.status) == ([], None, "completed")


def test_the_outcome_of_a_choose_is_that_of_its_last_task() -> None:
    tool = """
    - name: pick
      choose:
        - when: true
          then:
            - { name: tried, kind: noop, args: { n: 1 } }
    - { name: after, kind: noop, args: { status: "{{ pick.outcome.status }}" } }
    """
    assert story_of(tool).inputs["after"] == {"status": "ok"}


def test_a_choose_whose_last_task_failed_and_went_on_has_that_outcome() -> None:
    tool = """
    - name: pick
      choose:
        - when: true
          then:
            - name: tried
              kind: noop
              spec: { policy: { rules: [ { else: { then: { do: continue } } } ] } }
    - { name: after, kind: noop, args: { kind: "{{ pick.outcome.error.kind }}", is_none: "{{ pick is none }}" } }
    """
    scenario = given("- step: start\n  tool:\n" + tool)
    scenario.start()
    run = scenario.take("start")
    run.answer()
    run.answer(error=ErrorInfo("connection", "it hung up"))
    run.answer()
    assert (run.task, run.inputs["args"]) == ("after", {"kind": "connection", "is_none": True})


def counting(word: str, when: str, extra: str = "") -> str:
    return f"""
- name: again
  {word}:
    when: "{{{{ {when} }}}}"
    do:
      - name: count
        kind: noop
        args: {{ page: "{{{{ iter.page | default(0) }}}}" }}
        spec:
          policy:
            rules:
              {extra}
              - else: {{ then: {{ do: continue, set_iter: {{ page: "{{{{ (iter.page | default(0)) + 1 }}}}" }} }} }}
- {{ name: after, kind: noop, args: {{ last: "{{{{ again }}}}" }} }}
"""


@pytest.mark.parametrize(("times", "last"), [(0, None), (1, {"page": 0}), (3, {"page": 2})])
def test_while_asks_before_each_round(times: int, last: Any) -> None:
    story = story_of(counting("while", f"iter.page | default(0) < {times}"))
    assert story.tasks == ["count"] * times + ["after"]
    assert story.inputs["after"] == {"last": last}


@pytest.mark.parametrize(("ends_at", "rounds"), [(0, 1), (1, 1), (3, 3)])
def test_until_asks_after_each_round(ends_at: int, rounds: int) -> None:
    story = story_of(counting("until", f"iter.page >= {ends_at}"))
    assert story.tasks == ["count"] * rounds + ["after"]
    assert story.inputs["after"] == {"last": {"page": rounds - 1}}


def test_the_guard_of_until_sees_the_results_of_its_round() -> None:
    assert story_of(counting("until", "count.page == 2")).tasks == ["count"] * 3 + ["after"]
    assert story_of(counting("until", "_prev.page == 2")).tasks == ["count"] * 3 + ["after"]
    assert story_of(counting("until", "again.page == 2")).tasks == ["count"] * 3 + ["after"]


def test_break_inside_a_body_ends_the_pipeline_as_everywhere() -> None:
    stop = '- { when: "{{ iter.page | default(0) == 1 }}", then: { do: break } }'
    story = story_of(counting("while", "true", stop))
    assert story.tasks == ["count", "count"]
    assert story.scenario.status == "completed"


def test_fail_inside_a_body_fails_the_step_as_everywhere() -> None:
    stop = '- { when: "{{ iter.page | default(0) == 1 }}", then: { do: fail } }'
    story = story_of(counting("until", "false", stop))
    assert story.tasks == ["count", "count"]
    [failed] = story.scenario.facts(StepFailed)
    assert (failed.error.kind, failed.error.task) == ("policy_fail", "count")


def test_a_while_that_never_ends_is_stopped_by_max_task_runs() -> None:
    story = story_of(counting("while", "true"), limits(max_task_runs=9))
    [failed] = story.scenario.facts(StepFailed)
    assert failed.error.kind == "limit_exceeded" and "max_task_runs" in failed.error.message
    assert len(story.labels) == 9


SET = "spec: {{ policy: {{ rules: [ {{ else: {{ then: {{ do: continue, set_iter: {{ {} }} }} }} }} ] }} }}"
NEXT_PAGE = SET.format('page: "{{ (iter.page | default(0)) + 1 }}"')
NEXT_TRY = SET.format('tries: "{{ (iter.tries | default(0)) + 1 }}"')
NESTED = f"""
- name: pages
  while:
    when: "{{{{ iter.page | default(0) < 4 }}}}"
    do:
      - {{ name: fetch, kind: noop, args: {{ number: "{{{{ iter.page | default(0) }}}}" }}, {NEXT_PAGE} }}
      - name: parity
        choose:
          - when: "{{{{ fetch.number is odd }}}}"
            then:
              - choose:
                  - when: "{{{{ fetch.number == 3 }}}}"
                    then: [ {{ name: three, kind: noop, args: {{ three: true }} }} ]
          - else:
              then:
                - until:
                    when: "{{{{ iter.tries >= 2 }}}}"
                    do: [ {{ name: attempt, kind: noop, {NEXT_TRY} }} ]
- {{ name: after, kind: noop, args: {{ parity: "{{{{ parity }}}}" }} }}
"""


def test_constructs_can_be_nested() -> None:
    story = story_of(NESTED)
    assert story.tasks == ["fetch", "attempt", "attempt", "fetch", "fetch", "attempt", "fetch", "three", "after"]
    assert story.inputs["after"] == {"parity": {"three": True}}
    assert story.scenario.status == "completed"


def test_a_construct_runs_in_each_iteration_of_a_loop_for_itself() -> None:
    text = """
    - step: start
      loop: { in: [ 1, 2, 3 ], iterator: number }
      tool:
        - choose: [ { when: "{{ iter.number == 2 }}", then: [ { name: two, kind: noop } ] } ]
        - { name: last, kind: noop, args: { number: "{{ iter.number }}", two: "{{ two is none }}" } }
    """
    scenario = given(text)
    scenario.start()
    scenario.done("start")
    ran = [(fact.path, fact.task) for fact in scenario.facts(TaskProcessed) if not is_generated(fact.task)]
    assert ran == [((0,), "last"), ((1,), "two"), ((1,), "last"), ((2,), "last")]


JUMPS = """
- name: first
  kind: noop
  spec: { policy: { rules: [ { else: { then: { do: jump, to: %s } } } ] } }
- name: middle
  choose:
    - when: true
      then:
        - { name: one, kind: noop }
        - name: two
          kind: noop
          spec: { policy: { rules: [ { else: { then: { do: %s } } } ] } }
        - { name: three, kind: noop }
    - else: { then: [ { name: other, kind: noop } ] }
- { name: last, kind: noop }
"""


@pytest.mark.parametrize(
    ("to", "do", "tasks"),
    [
        ("middle", "continue", ["first", "one", "two", "three", "last"]),
        ("last", "continue", ["first", "last"]),
        ("three", "continue", ["first", "three", "last"]),
        ("other", "continue", ["first", "other", "last"]),
        ("middle", "jump, to: last", ["first", "one", "two", "last"]),
        ("middle", "jump, to: other", ["first", "one", "two", "other", "last"]),
    ],
)
def test_a_jump_may_lead_into_a_body_out_of_it_and_to_a_construct(to: str, do: str, tasks: list[str]) -> None:
    assert story_of(JUMPS % (to, do)).tasks == tasks


def test_events_and_errors_say_where_a_generated_task_comes_from() -> None:
    story = story_of('- name: pick\n  choose: [ { when: "{{ workload.n > 1 }}", then: [ { kind: noop } ] } ]', n="text")
    [processed] = story.scenario.facts(TaskProcessed)
    assert (processed.task, processed.origin) == ("pick__choose", "choose at line 8")
    [failed] = story.scenario.facts(StepFailed)
    assert failed.error.kind == "expression_error"
    assert "task pick__choose (choose at line 8)" in failed.error.message


def test_a_task_of_the_workbook_says_which_entry_it_runs() -> None:
    root = "workbook: { tasks: { ask: { kind: noop, args: { n: 1 } } } }\n"
    story = story_of("- { name: one, kind: workbook, task: ask, args: { n: 2 } }", root)
    assert story.inputs == {"one": {"n": 2}}
    assert [(fact.task, fact.origin) for fact in story.scenario.facts(TaskProcessed)] == [
        ("one", "workbook ask, line 4")
    ]


def test_replay_of_a_construct_gives_the_same_state() -> None:
    story = story_of(NESTED)
    assert story.scenario.replayed() == story.scenario.state
