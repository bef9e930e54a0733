"""Builds playbooks for tests."""

from __future__ import annotations

from textwrap import dedent, indent

from playbook_kinds import KINDS

from noetl_stream.playbook.compile.compiler import CheckResult, check, compile_playbook
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.playbook.plan import Plan, StepPlan, TaskPlan

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: test, path: tests/test }\n"


def playbook(body: str) -> str:
    """A playbook with these root keys and the required ones."""
    return HEAD + dedent(body).lstrip("\n")


def workflow(steps: str, root: str = "") -> str:
    """A playbook with these steps."""
    return HEAD + dedent(root) + "workflow:\n" + indent(dedent(steps).strip("\n"), "  ") + "\n"


def pipeline(tool: str, root: str = "") -> str:
    """A playbook with one step with these tasks."""
    return workflow("- step: start\n  tool:\n" + indent(dedent(tool).strip("\n"), "    "), root)


def checked(text: str, *, proves: bool = False) -> CheckResult:
    return check(text, KINDS, proves=proves)


def plan_of(text: str) -> Plan:
    return compile_playbook(text, KINDS)


def start_of(text: str) -> StepPlan:
    return plan_of(text).steps["start"]


def task_of(text: str, index: int = 0) -> TaskPlan:
    return start_of(text).tasks[index]


def found(text: str, code: str) -> list[Diagnostic]:
    """The diagnostics with this code, what the net proves included."""
    return [item for item in checked(text, proves=True).diagnostics if item.code == code]


def codes(text: str) -> list[str]:
    return [item.code for item in checked(text).diagnostics]
