"""Triggers that start one another in a circle are found by their paths, over the whole catalog."""

from __future__ import annotations

import pytest

from noetl_stream.model.aggregates import EmittedEvents, EndedExecutions, TriggerTerms, Verification
from noetl_stream.playbook.compile.compiler import check_document
from noetl_stream.playbook.trigger.matching import circle_of, warning_of


def on_end(path: str, starts: str) -> TriggerTerms:
    return TriggerTerms(playbook=starts, execution=EndedExecutions(path=path, status=("failed",), labels={"a": 1}))


A_TO_B, B_TO_C, C_TO_A = on_end("p/a", "p/b"), on_end("p/b", "p/c"), on_end("p/c", "p/a")


@pytest.mark.parametrize(
    ("triggers", "circle"),
    [
        ({"t1": A_TO_B}, []),
        ({"t1": A_TO_B, "t2": B_TO_C}, []),
        ({"t1": on_end("p/a", "p/a")}, []),
        ({"t1": on_end("p/*", "p/a"), "t2": on_end("p/*", "p/b")}, ["t1", "t2"]),
        ({"t1": on_end("", "p/a"), "t2": on_end("p/a", "p/a")}, ["t1", "t2"]),
        ({"t1": A_TO_B, "t2": B_TO_C, "t3": C_TO_A}, ["t1", "t2", "t3"]),
        ({"t1": A_TO_B, "t2": B_TO_C, "t3": C_TO_A, "t4": on_end("p/*", "p/a")}, ["t1", "t4"]),
        ({"t1": on_end("p/a", "q/b"), "t2": on_end("q/b", "q/b")}, []),
        ({"t1": TriggerTerms(playbook="p/a", webhook=Verification(form="none")), "t2": on_end("p/a", "p/b")}, []),
    ],
)
def test_a_circle_of_triggers_is_found_over_every_kind_of_trigger(
    triggers: dict[str, TriggerTerms], circle: list[str]
) -> None:
    assert circle_of("t1", triggers) == circle


def on_event(name: str, starts: str, path: str = "") -> TriggerTerms:
    return TriggerTerms(playbook=starts, event=EmittedEvents(name=name, path=path, labels={"a": 1}))


@pytest.mark.parametrize(
    ("triggers", "circle"),
    [
        ({"t1": on_event("shipped", "p/b"), "t2": on_event("billed", "p/a")}, ["t1", "t2"]),
        ({"t1": on_event("shipped", "p/b"), "t2": on_event("billed", "p/a", "q/*")}, []),
        ({"t1": on_event("shipped", "p/b"), "t2": on_event("stuck", "p/a")}, []),
        ({"t1": on_event("shipped", "p/b"), "t2": on_end("p/b", "p/a")}, ["t1", "t2"]),
        ({"t1": on_event("shipped", "p/a")}, []),
    ],
)
def test_a_circle_leads_over_the_events_that_a_playbook_emits(
    triggers: dict[str, TriggerTerms], circle: list[str]
) -> None:
    emitted = {path: ["shipped"] if terms.playbook == "p/a" else ["billed"] for path, terms in triggers.items()}
    assert circle_of("t1", triggers, emitted) == circle


def test_the_warning_stands_at_the_playbook_that_closes_the_circle() -> None:
    text = (
        "apiVersion: noetl.io/v2\nkind: Trigger\nmetadata: { name: again, path: ops/again }\n"
        "spec:\n  on: { execution: { path: ops/* } }\n  playbook: ops/report\n"
    )
    trigger = check_document(text, {}).trigger
    assert trigger is not None
    assert trigger.call is not None
    others = {"ops/more": on_end("ops/report", "ops/more")}
    found = warning_of(circle_of(trigger.path, others | {trigger.path: trigger.terms}), trigger.call, "t.yaml")
    assert (found.severity, found.line, found.column) == ("warning", 6, 13)
    assert "`ops/report` may start it again through ops/more" in found.message
