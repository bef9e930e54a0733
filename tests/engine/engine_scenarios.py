"""Shortcuts to scenarios for tests."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

from noetl_testkit.scenario.scenario import Scenario

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: test, path: tests/test }\n"


def given(steps: str, root: str = "") -> Scenario:
    """A scenario of these steps, not started yet; ``root`` are root keys before ``workflow``."""
    return Scenario(HEAD + dedent(root) + "workflow:\n" + dedent(steps).strip("\n") + "\n")


def started(steps: str, root: str = "", **request: dict[str, Any]) -> Scenario:
    """The same, started with this ``workload`` and ``ctx``."""
    scenario = given(steps, root)
    scenario.start(**request)
    return scenario


BEST_EFFORT = "executor: { spec: { policy: { failure: { mode: best_effort } } } }\n"


def limits(**values: int) -> str:
    """The root key that lowers these limits."""
    written = ", ".join(f"{name}: {value}" for name, value in values.items())
    return f"executor: {{ spec: {{ policy: {{ limits: {{ {written} }} }} }} }}\n"
