"""The labels of an execution: written in its playbook, rendered over its inputs, given at its start (LANGUAGE §1)."""

from __future__ import annotations

from typing import Any

import pytest
from engine_scenarios import HEAD

from noetl_stream.engine.advance import Advanced
from noetl_stream.engine.effects import AddTerms, DropTerms
from noetl_stream.engine.evolve.worker_facts import form_fault
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.bounds import bounds_exceeded
from noetl_stream.model.events import ExecutionFinished, ExecutionRequested, ExecutionStarted, TaskProcessed
from noetl_stream.model.labels import MAX_LABELS, MAX_VALUE_CHARS
from noetl_stream.model.outcome import Outcome
from noetl_testkit.scenario.scenario import Scenario


class Begun(Scenario):
    """An execution of a playbook with these labels, asked for with more; ``terms`` are what it is found by."""

    def __init__(
        self, written: str, workload: dict[str, Any] | None = None, step: str = "tool: { kind: noop }", **asked: Any
    ) -> None:
        head = HEAD.replace("path: tests/test", f"path: tests/test, labels: {written}")
        super().__init__(f"{head}workflow: [ {{ step: start, {step} }} ]\n")
        self.terms: set[str] = set()
        self.feed(
            RecordedFact(ExecutionRequested("request-1", self.plan.digest, self.plan.path, workload or {}, **asked))
        )

    def feed(self, recorded: RecordedFact) -> Advanced:
        advanced = super().feed(recorded)
        for effect in advanced.effects:
            if isinstance(effect, AddTerms):
                self.terms |= effect.terms
            elif isinstance(effect, DropTerms):
                self.terms -= effect.terms
        return advanced


def started(scenario: Scenario) -> ExecutionStarted:
    (fact,) = scenario.facts(ExecutionStarted)
    return fact


def test_labels_over_the_workload_are_rendered_at_the_start_and_recorded() -> None:
    labels = "{team: shop, order: '{{ workload.order.id }}', half: '{{ workload.n / 2 }}'}"
    scenario = Begun(labels, {"order": {"id": "A-1"}, "n": 3})
    assert started(scenario).labels == {"team": "shop", "order": "A-1", "half": 1.5} == scenario.execution.labels


def test_labels_of_a_start_override_those_of_the_playbook() -> None:
    scenario = Begun("{team: shop, tier: 1}", labels={"team": "night", "ticket": 7})
    assert started(scenario).labels == {"team": "night", "tier": 1, "ticket": 7}
    assert scenario.terms == {"label:team=night", "label:tier=1", "label:ticket=7"}


def test_labels_that_stand_in_the_playbook_are_not_recorded_again() -> None:
    assert started(Begun("{team: shop}")).labels is None


@pytest.mark.parametrize(
    ("label", "workload", "expected"),
    [
        pytest.param(
            "'{{ workload.order }}'", {}, "metadata.labels: `workload.order` is undefined", id="a missing input"
        ),
        pytest.param("'{{ workload.order }}'", {"order": {"id": 1}}, "label `order` must be a text", id="no scalar"),
        pytest.param("'{{ workload.keys() }}'", {}, "label `order` must be a text", id="no JSON"),
        pytest.param("'{{ workload.order + \"\\0\" }}'", {"order": "a"}, "cannot be stored", id="a NUL"),
        pytest.param(
            "'{{ workload.order }}'", {"order": "x" * (MAX_VALUE_CHARS + 1)}, "has 181 characters", id="too long"
        ),
    ],
)
def test_a_start_whose_label_cannot_be_made_is_refused_with_the_reason(
    label: str, workload: dict[str, Any], expected: str
) -> None:
    (finished,) = Begun(f"{{order: {label}}}", workload).facts(ExecutionFinished)
    assert finished.outcome.error is not None
    assert expected in finished.outcome.error.message


def test_a_label_that_is_null_counts_as_absent() -> None:
    scenario = Begun("{order: '{{ workload.order | default(none) }}', team: a}")
    assert scenario.terms == {"label:team=a"}


SETS = (
    "loop: { in: '{{ workload.states }}', iterator: state }, tool: { kind: noop, args: { state: '{{ iter.state }}' },"
    " spec: { policy: { rules: [ { else: { then: { do: continue, set_label: { state: '{{ outcome.result.state }}' } } }"
    " } ] } } }"
)


def test_a_rule_sets_labels_and_the_execution_is_found_by_the_last_value_of_each() -> None:
    scenario = Begun("{team: shop, state: new}", {"states": ["packed", 7]}, SETS, labels={"ticket": 1})
    assert scenario.terms == {"label:team=shop", "label:state=new", "label:ticket=1"}
    scenario.done("start")
    assert scenario.execution.labels == {"team": "shop", "state": 7, "ticket": 1}
    assert scenario.terms == {"label:team=shop", "label:state=7", "label:ticket=1"}
    scenario.take_over()


def test_a_label_that_a_rule_sets_to_null_is_gone() -> None:
    scenario = Begun("{team: shop, state: new}", {"states": [None]}, SETS)
    scenario.done("start")
    assert scenario.terms == {"label:team=shop"}


def test_a_rule_of_a_compensation_may_set_labels_too() -> None:
    rules = "rules: [ { else: { then: { do: continue, set_label: { refund: done } } } } ]"
    undo = f"compensation: {{ tool: {{ kind: noop, spec: {{ policy: {{ {rules} }} }} }} }}"
    scenario = Begun("{}", step=f"tool: {{ kind: noop }}, spec: {{ policy: {{ {undo} }} }}")
    assert scenario.plan.set_labels == {"refund"}


@pytest.mark.parametrize(("state", "says"), [(["packed"], "must be a text"), ("x" * 181, "has 181 characters")])
def test_a_task_fails_whose_rule_sets_what_is_no_label(state: Any, says: str) -> None:
    scenario = Begun("{}", {"states": [state]}, SETS)
    scenario.done("start")
    (finished,) = scenario.facts(ExecutionFinished)
    assert finished.outcome.error is not None and finished.outcome.error.kind == "expression_error"
    assert says in finished.outcome.error.message
    assert scenario.execution.labels == {}


def test_a_start_leaves_room_for_the_labels_that_rules_set() -> None:
    scenario = Begun("{}", {"states": []}, SETS, labels={f"l{number}": 1 for number in range(MAX_LABELS)})
    (finished,) = scenario.facts(ExecutionFinished)
    assert finished.outcome.error is not None and "there are 65 labels" in finished.outcome.error.message


@pytest.mark.parametrize("labels", [{"a=b": 1}, {"a": [1]}, {"a": "x" * 181}])
def test_labels_reported_by_a_worker_are_checked(labels: dict[str, Any]) -> None:
    assert "is not a label" in form_fault(TaskProcessed("task", 1, Outcome("ok"), "continue", set_label=labels))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"a": "b"}, ""),
        ({f"l{number}": 1 for number in range(MAX_LABELS + 1)}, "there are 65 labels"),
        ({"a=b": 1}, "must have 1 to 64 characters"),
        ({"a": [1]}, "must be a text"),
        ({"a": "x" * (MAX_VALUE_CHARS + 1)}, "has 181 characters"),
        ({"a": "\0"}, "cannot be stored"),
    ],
)
def test_a_request_has_bounded_labels(labels: dict[str, Any], expected: str) -> None:
    assert bounds_exceeded(ExecutionRequested("r", "digest", labels=labels)).find(expected) >= 0 or not expected


@pytest.mark.parametrize(
    ("key", "unique", "expected"),
    [
        ("order=A-1005", True, ""),
        ("", True, "a unique start needs a key"),
        ("x" * 257, False, "has 257 characters"),
        ("ü" * 256, False, ""),
        ("ü" * 257, True, "has 257 characters"),
        ("€" * 171, True, "has 513 bytes"),
        ("a\0", False, "cannot be stored"),
    ],
)
def test_a_request_has_a_bounded_key(key: str, unique: bool, expected: str) -> None:
    found = bounds_exceeded(ExecutionRequested("r", "digest", key=key, unique=unique))
    assert expected in found and bool(found) == bool(expected)
