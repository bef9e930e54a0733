"""Attacks at each place of a playbook: each ends as an error event, and the engine continues (LANGUAGE §2)."""

from __future__ import annotations

import pytest

from noetl_stream.model.events import StepFailed
from noetl_stream.model.outcome import ErrorInfo
from noetl_testkit.scenario.scenario import Scenario

PAYLOADS = {
    "text": ("{{ 'a' * 10 ** 9 }}", "limits.max_template_output_chars"),
    "range": ("{{ range(10 ** 12) }}", "limits.max_template_range_items"),
    "number": ("{{ 9 ** (9 ** 9) }}", "limits.max_template_number_bits"),
    "work": ("{{ ([range(100000)] * 1000) | map('sum') | sum }}", "limits.max_template_operations"),
    "list": ("{{ [[0] * 1000] * 1000000 }}", "limits.max_template_result_items"),
    "escape": ("{{ workload['__class__'].__mro__ }}", "`workload.__class__` is undefined"),
    "format": ("{{ '%999999999d' is odd }}", "`odd`, `even` and `divisibleby` take a number"),
    "key": ("{{ workload['k' * 8000000] }}", "is undefined"),
}
PLACES = {
    "admission": """
        - step: start
          spec: { policy: { admit: { rules: [ { when: "PAYLOAD", then: { allow: true } } ] } } }
          tool: { kind: noop }
        """,
    "guard of an arc": """
        - step: start
          tool: { kind: noop }
          next: { arcs: [ { step: end, when: "PAYLOAD" } ] }
        - step: end
          tool: { kind: noop }
        """,
    "args of an arc": """
        - step: start
          tool: { kind: noop }
          next: { arcs: [ { step: end, args: { a: { b: [ "PAYLOAD" ] } } } ] }
        - step: end
          tool: { kind: noop }
        """,
    "in of a loop": """
        - step: start
          loop: { in: "PAYLOAD", iterator: item }
          tool: { kind: noop }
        """,
    "guard of a policy": """
        - step: start
          tool: { kind: noop, spec: { policy: { rules: [ { when: "PAYLOAD", then: { do: continue } } ] } } }
        """,
    "patch of a policy": """
        - step: start
          tool:
            kind: noop
            spec: { policy: { rules: [ { else: { then: { do: continue, set_ctx: { a: "PAYLOAD" } } } } ] } }
        """,
    "input of a task": """
        - step: start
          tool: { kind: noop, args: { deep: [ { inside: "PAYLOAD" } ] } }
        """,
    "result of the execution": """
        - step: start
          tool: { kind: noop }
executor: { spec: { result: "PAYLOAD" } }
        """,
}


def ended(steps: str, payload: str) -> Scenario:
    scenario = Scenario(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: attacked, path: tests/attacked}\nworkflow:\n"
        + steps.replace("PAYLOAD", payload)
    )
    scenario.start()
    if scenario.status == "running":
        scenario.done("start")
    return scenario


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("place", PLACES)
def test_an_attack_in_a_playbook_is_an_error_event(place: str, payload: str) -> None:
    text, words = PAYLOADS[payload]
    scenario = ended(PLACES[place], text)
    assert scenario.status == "failed"
    error: ErrorInfo | None = scenario.error
    assert error is not None
    assert error.kind == "expression_error"
    assert words in error.message
    assert len(error.message) < 1_000


@pytest.mark.parametrize("place", ["in of a loop", "guard of a policy", "patch of a policy", "input of a task"])
def test_an_attack_inside_a_step_fails_the_step(place: str) -> None:
    (failed,) = ended(PLACES[place], PAYLOADS["text"][0]).facts(StepFailed)
    assert failed.error is not None and failed.error.kind == "expression_error"
