"""Compiles a playbook to its plan, or reports all its problems (LANGUAGE §3 *Rejected*)."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.playbook.check.bindings import Declarations
from noetl_stream.playbook.check.reads import Expressions
from noetl_stream.playbook.check.templates import Templates
from noetl_stream.playbook.check.workflow import check_unused, check_workflow, warn_of_dead_arcs
from noetl_stream.playbook.compile.lowering import Lowering
from noetl_stream.playbook.diagnostics import Diagnostic, InvalidPlaybook, Problems, TooManyProblems
from noetl_stream.playbook.kinds.spec import LANGUAGE_KINDS, Kinds
from noetl_stream.playbook.model.document import read_document
from noetl_stream.playbook.model.layering import knobs_of
from noetl_stream.playbook.model.step import read_steps
from noetl_stream.playbook.model.workbook import read_workbook
from noetl_stream.playbook.net.prove import prove
from noetl_stream.playbook.plan import Plan
from noetl_stream.playbook.yaml.source import read_source


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check: a plan unless there are errors, and all diagnostics in file order."""

    plan: Plan | None
    diagnostics: tuple[Diagnostic, ...]

    @property
    def ok(self) -> bool:
        return self.plan is not None

    def require_plan(self) -> Plan:
        """The plan.

        Raises:
            InvalidPlaybook: there are errors; it holds every problem of the text.
        """
        if self.plan is None:
            raise InvalidPlaybook(self.diagnostics)
        return self.plan


class Checker(Protocol):
    """Checks playbooks: :func:`check`, or a cache of its results."""

    def __call__(self, text: str | bytes, kinds: Kinds, *, file: str = ..., limits: Limits = ...) -> CheckResult: ...


def check(
    text: str | bytes,
    kinds: Kinds,
    *,
    file: str = "<playbook>",
    limits: Limits = DEFAULT_LIMITS,
    proves: bool = False,
) -> CheckResult:
    """Checks and compiles a playbook. Never raises for bad input; all problems are in the diagnostics.

    Args:
        text: The YAML, as text or bytes.
        kinds: The installed tool kinds.
        file: The file name in diagnostics.
        limits: The operator's limits, which the playbook may lower.
        proves: Whether to explore what its steps can do together, for warnings only; may take a second.
    """
    problems = Problems(file)
    try:
        plan = _plan(text, {**kinds, **LANGUAGE_KINDS}, limits, problems, proves=proves)
    except TooManyProblems:
        plan = None
    return CheckResult(None if problems.has_errors else plan, problems.sorted())


def _plan(text: str | bytes, kinds: Kinds, limits: Limits, problems: Problems, *, proves: bool) -> Plan | None:
    source = read_source(text, problems)
    if source is None:
        return None
    document = read_document(source.root, knobs_of(kinds), limits, problems)
    workbook = read_workbook(document.workbook, kinds, problems)
    steps = read_steps(document.workflow, kinds, workbook, document.layer, problems)
    declared = Declarations(document, steps)
    check_workflow(document, steps, problems)
    templates = Templates(source.text, problems, document.limits)
    lowering = Lowering(document, declared, Expressions(templates, declared, kinds, problems))
    plan = lowering.plan(digest_of(text), steps)
    warn_of_dead_arcs(plan, steps, problems)
    check_unused(workbook, templates, problems)
    if proves and not problems.has_errors:
        prove(plan, steps, problems)
    return plan


def compile_playbook(text: str, kinds: Kinds, *, file: str = "<playbook>", limits: Limits = DEFAULT_LIMITS) -> Plan:
    """The plan of a playbook. Arguments as for :func:`check`.

    Raises:
        InvalidPlaybook: The playbook has errors; holds all its diagnostics.
    """
    return check(text, kinds, file=file, limits=limits).require_plan()


def digest_of(text: str | bytes) -> str:
    """The digest that pins a plan: the SHA-256 of the text's UTF-8 bytes, in hex."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return sha256(data).hexdigest()
