"""Workbook entries that no task runs: reported, and their templates checked all the same (LANGUAGE §12).

No step binds their bare names, so any name is accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from noetl_stream.playbook.check import bindings
from noetl_stream.playbook.check.bindings import IterNames, Path, Visible
from noetl_stream.playbook.check.templates import Templates
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.policy import PolicyDraft
from noetl_stream.playbook.model.workbook import Workbook


class _AnyName(Mapping[str, Path]):
    """Bindings that accept every bare name."""

    def __getitem__(self, name: str) -> Path:
        return ("workload", name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _visible(namespaces: frozenset[str]) -> Visible:
    return Visible(namespaces, bindings=_AnyName(), shadowed={}, elsewhere={}, iter=IterNames((), ()), keychain=())


_INPUTS: Final = _visible(bindings.INPUTS)
_POLICY: Final = _visible(bindings.POLICY)


def check_unused(workbook: Workbook, templates: Templates, problems: Problems) -> None:
    """Warns of unused entries and reports problems in their templates."""
    for name, entry in workbook.unused().items():
        problems.warn("unused_entry", f"no task runs workbook entry `{name}`", entry.at, "remove it")
        if entry.draft is not None:
            templates.template(entry.draft.inputs, _INPUTS)
            _check_policy(entry.draft.policy, templates)


def _check_policy(policy: PolicyDraft | None, templates: Templates) -> None:
    for rule in policy.rules if policy else ():
        if rule.when is not None:
            templates.guard(rule.when, _POLICY)
        written = [value for writes in rule.writes.values() for _, value in writes]
        for node in (rule.delay, *written, *(shared.value for shared in rule.shared)):
            if node is not None:
                templates.template(node, _POLICY)
