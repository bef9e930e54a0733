"""The rewrite rules, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noetl_stream.playbook.upgrade.draft import Draft
from noetl_stream.playbook.upgrade.rules import cases, policies, reads, root, routing, steps, tasks, values

Rule = Callable[[Draft], None]

RULES: Final[tuple[Rule, ...]] = (
    *root.RULES,
    *steps.RULES,
    *values.TASK_RULES,
    *tasks.RULES,
    *cases.RULES,
    *tasks.SINK_RULES,
    *values.RULES,
    *steps.LATER_RULES,
    *policies.RULES,
    *routing.RULES,
    *reads.RULES,
    tasks.stored_results,
)
"""The rules of the upgrade. Each finds its form in the whole playbook; later ones see what earlier ones wrote."""
