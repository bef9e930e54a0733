"""The labels that an execution starts with: those of its playbook, overridden by those of the request (LANGUAGE §1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noetl_stream.engine.state import Execution
from noetl_stream.model.events import ExecutionRequested
from noetl_stream.model.labels import label_fault
from noetl_stream.playbook.plan import Plan
from noetl_stream.template import Budget, ExpressionError, OverBudget, Scope, render


def labels_of(
    plan: Plan, state: Execution, request: ExecutionRequested, workload: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The labels of an execution; ``None`` if they are the constant ones of its playbook.

    Raises:
        ExpressionError: one cannot be rendered, or they exceed their bounds.
    """
    if not (plan.label_templates or plan.set_labels or request.labels):
        return None
    names = {"workload": workload, "execution_id": state.execution_id, "execution": state.execution}
    scope = Scope(names, {}, plan.limits, Budget(plan.limits.max_inline_operations))
    try:
        rendered = {name: render(template, scope) for name, template in plan.label_templates.items()}
    except OverBudget:
        raise ExpressionError("the labels cost more than a decision may spend: make them plainer") from None
    labels = {**plan.labels, **rendered, **request.labels}
    if fault := label_fault({**dict.fromkeys(plan.set_labels), **labels}):
        raise ExpressionError(fault)
    return labels
