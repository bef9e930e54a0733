"""Rounds of a pipeline that nothing ends are warned about; those that a guard, a rule or a timeout ends are not."""

from __future__ import annotations

import pytest
from playbook_building import found, pipeline, workflow

ROUND = "- name: r\n  {word}:\n    when: {when}\n    do: [ {{ name: t, kind: noop{more} }} ]"
JUMP = "- { name: a, kind: noop }\n- { name: b, kind: noop, spec: { policy: { rules: [ %s ] } } }"
BACK = "then: { do: jump, to: a }"


def in_rounds(word: str, when: str, more: str = "") -> str:
    return pipeline(ROUND.format(word=word, when=when, more=more))


@pytest.mark.parametrize(
    "text",
    [
        in_rounds("while", "true"),
        in_rounds("until", "false"),
        in_rounds("while", "'{{ 1 == 1 }}'"),
        in_rounds("while", "'{{ args.more is defined }}'"),
        in_rounds("until", "'{{ workload.done | default(false) }}'"),
        pipeline(JUMP % f"{{ else: {{ {BACK} }} }}"),
        pipeline(JUMP % f"{{ when: '{{{{ outcome.status == 1 }}}}', {BACK} }}, {{ else: {{ {BACK} }} }}"),
    ],
)
def test_rounds_that_nothing_ends_are_warned_about(text: str) -> None:
    [warning] = found(text, "endless_cycle")
    assert "have no exit: only a failure, a cancel or a timeout ends them" in warning.message
    assert warning.hint and "timeout_s" in warning.hint


BREAKING = ", spec: { policy: { rules: [ { when: '{{ outcome.result.x }}', then: { do: break } } ] } }"


@pytest.mark.parametrize(
    "text",
    [
        in_rounds("while", "false"),
        in_rounds("until", "true"),
        in_rounds("until", "'{{ t.done }}'"),
        in_rounds("while", "'{{ ctx.more | default(false) }}'"),
        in_rounds("while", "true", BREAKING),
        pipeline(
            JUMP % f"{{ when: '{{{{ outcome.result.x }}}}', {BACK} }}, {{ else: {{ then: {{ do: continue }} }} }}"
        ),
        pipeline(JUMP % f"{{ when: '{{{{ outcome.result.x }}}}', then: {{ do: fail }} }}, {{ else: {{ {BACK} }} }}"),
        workflow(
            "- step: start\n  spec: { policy: { lifecycle: { timeout_s: 5 } } }\n"
            "  tool: [ { name: r, while: { when: true, do: [ { kind: noop } ] } } ]"
        ),
        workflow(
            "- step: start\n  tool: [ { name: r, while: { when: true, do: [ { kind: noop } ] } } ]",
            "executor: { spec: { timeout_s: 5 } }\n",
        ),
    ],
)
def test_rounds_with_an_end_are_not(text: str) -> None:
    assert found(text, "endless_cycle") == []
