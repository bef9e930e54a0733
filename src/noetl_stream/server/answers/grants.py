"""Enforces the operator's grants before an execution starts, and when it asks for a credential or a playbook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from noetl_stream.engine.advance import InvalidPlan
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.playbook.kinds.keychain import SECRETS_KIND, credential_name
from noetl_stream.playbook.plan import Plan
from noetl_stream.settings.grants import EVERYTHING, Grants, Sort

UNGRANTED_KINDS: Final = frozenset({"noop", "wait", "playbook", SECRETS_KIND})
"""Kinds without a grant, since they reach nothing by themselves; calls and credentials are granted by name."""

_WORDS: Final[dict[Sort, str]] = {
    "credentials": "use the credential",
    "calls": "call the playbook",
    "pools": "run in the pool",
    "kinds": "have tasks of the kind",
}


def refusal(grants: Grants | None, path: str, sort: Sort, name: str) -> str:
    """Returns why the playbook at ``path`` may not use ``name``; empty if it may."""
    if grants is None or grants.allows(path, sort, name):
        return ""
    return f"playbook {path} may not {_WORDS[sort]} `{name}`: the operator's grants do not give it that"


def check_grants(plan: Plan | InvalidPlan, grants: Grants | None, caller: str | None) -> Plan | InvalidPlan:
    """Returns ``plan``, or why it may not run: it names what it was not granted.

    Args:
        caller: The path of the playbook that called it, if any.
    """
    if isinstance(plan, InvalidPlan) or grants is None:
        return plan
    problems = list(_problems(plan, grants))
    if caller is not None and (reason := refusal(grants, caller, "calls", plan.path)):
        return InvalidPlan(reason, [_diagnostic(plan, 1, reason, "").to_json()])
    if not problems:
        return plan
    return InvalidPlan(f"line {problems[0].line}: {problems[0].message}", [problem.to_json() for problem in problems])


def _problems(plan: Plan, grants: Grants) -> Iterator[Diagnostic]:
    for sort, name, line in dict.fromkeys(_named_resources(plan)):
        reason = refusal(grants, plan.path, sort, name)
        if reason:
            yield _diagnostic(plan, line, reason, f"it may use {_joined_names(grants.names_for(plan.path, sort))}")


def _named_resources(plan: Plan) -> Iterator[tuple[Sort, str, int]]:
    """Yields what a plan names that needs a grant, with the line. Names made by templates are checked when used."""
    for entry in plan.keychain.values():
        credential = credential_name(entry.name, entry.kind, entry.settings)
        if credential is not None:
            yield "credentials", credential, entry.line
    for step in plan.steps.values():
        if step.tasks:
            yield "pools", step.pool, step.line
        for task in step.tasks:
            if task.kind not in UNGRANTED_KINDS:
                yield "kinds", task.kind, task.line


def _joined_names(names: tuple[str, ...]) -> str:
    return ", ".join(name for name in names if name != EVERYTHING) or "none"


def _diagnostic(plan: Plan, line: int, message: str, hint: str) -> Diagnostic:
    return Diagnostic(
        severity="error",
        code="not_granted",
        message=message,
        hint=hint,
        file=plan.path,
        line=line,
        column=1,
        pointer="",
    )
