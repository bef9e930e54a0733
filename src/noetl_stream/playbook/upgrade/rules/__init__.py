"""The rewrite rules, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noetl_stream.playbook.upgrade.draft import Draft
from noetl_stream.playbook.upgrade.rules import cases, code, kinds, newer, policies, reads, root, steps, tasks, values

Rule = Callable[[Draft], None]

RULES: Final[tuple[Rule, ...]] = (
    reads.quoted_braces,
    *root.RULES,
    *kinds.FIRST_RULES,
    *steps.RULES,
    *kinds.RULES,
    *newer.RULES,
    *values.TASK_RULES,
    *tasks.RULES,
    *policies.SHAPE_RULES,
    *cases.RULES,
    *tasks.SINK_RULES,
    *values.RULES,
    *steps.LATER_RULES,
    *policies.RULES,
    *steps.ROUTER_RULES,
    *newer.LATER_RULES,
    reads.workload_names,
    *code.RULES,
    *reads.RULES,
    tasks.stored_results,
    *kinds.LAST_RULES,
    *newer.LAST_RULES,
    steps.fan_in,
    *root.LATER_RULES,
)
"""The rules of the upgrade. Each finds its form in the whole playbook; later rules see the output of earlier ones."""
