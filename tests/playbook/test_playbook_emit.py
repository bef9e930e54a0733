"""Events of its own that a step emits: what ``check`` accepts and refuses (LANGUAGE §7 *Emitted events*)."""

from __future__ import annotations

import pytest
from playbook_building import checked, codes, start_of, workflow

from noetl_stream.playbook.compile.view import compiled_text


def emitting(events: str, more: str = "tool: { kind: noop }") -> str:
    return workflow(f"- step: start\n  spec: {{ policy: {{ emit: {{ events: {events} }} }} }}\n  {more}")


FULL = '[ { name: shipped, on: [ completed, failed ], when: "{{ event.result }}", data: { n: "{{ workload.n }}" } } ]'


def test_an_event_has_a_name_its_moments_a_condition_and_data() -> None:
    assert codes(emitting(FULL)) == []
    [one] = start_of(emitting(FULL)).emits
    assert (one.event, one.on, one.value.source) == ("shipped", {"completed", "failed"}, {"n": "{{ workload.n }}"})
    [bare] = start_of(emitting("[ { name: shipped } ]")).emits
    assert (bare.on, bare.guard) == ({"completed"}, None)
    assert "emit on completed, failed, when {{ event.result }}: shipped" in compiled_text(
        checked(emitting(FULL)).require_plan()
    )


def test_an_empty_emit_leaves_the_plan_unchanged() -> None:
    for nothing in ("[]", "{}", "''", "null"):
        assert codes(emitting(nothing)) == []


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ("[ shipped ]", "wrong_type"),
        ("{ name: shipped }", "wrong_type"),
        ("[ { data: { a: 1 } } ]", "missing_key"),
        ("[ { name: order shipped } ]", "invalid_name"),
        ("[ { name: shipped, on: [ done ] } ]", "invalid_value"),
        ("[ { name: shipped, on: [] } ]", "invalid_value"),
        ("[ { name: shipped, on: completed } ]", "wrong_type"),
        ("[ { name: shipped, data: [ 1 ] } ]", "wrong_type"),
        ("[ { name: shipped, payload: { a: 1 } } ]", "unknown_key"),
        ('[ { name: shipped, data: { a: "{{ outcome.status }}" } } ]', "namespace_not_here"),
        ('[ { name: shipped, data: { a: "{{ keychain.x }}" } } ]', "namespace_not_here"),
        ('[ { name: shipped, data: { a: "{{ nowhere }}" } } ]', "unbound_name"),
        ("[ { name: shipped, data: { a: '{% if true %}x{% endif %}' } } ]", "statement_not_allowed"),
        ("[ { name: shipped, when: \"{{ event.status == 'error' }}\" } ]", "impossible_comparison"),
        ("[ { name: shipped, on: [ failed ], when: \"{{ event.name == 'step.done' }}\" } ]", "impossible_comparison"),
        (f"[ {', '.join(['{ name: shipped }'] * 21)} ]", "limit_exceeded"),
    ],
)
def test_an_event_with_a_mistake_is_refused(events: str, code: str) -> None:
    assert codes(emitting(events)) == [code]


def test_conditions_may_tell_the_moments_apart() -> None:
    events = "[ { name: x, on: [ started, failed ], when: \"{{ event.name == 'step.started' }}\" } ]"
    assert codes(emitting(events)) == []
