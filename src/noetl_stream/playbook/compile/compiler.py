"""Compiles a playbook to its plan, or reports all its problems (LANGUAGE §3 *Rejected*)."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, cast

import msgspec

from noetl_stream.model.ids import digest_of
from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.playbook.check.bindings import Declarations
from noetl_stream.playbook.check.calls import PlaybookCall, calls_of, warn_of_files
from noetl_stream.playbook.check.code import NamesOfCode, check_code, check_knobs, check_params
from noetl_stream.playbook.check.ending import warn_of_compensations, warn_of_failures
from noetl_stream.playbook.check.reads import Expressions
from noetl_stream.playbook.check.templates import Templates
from noetl_stream.playbook.check.workflow import (
    check_unused,
    check_workflow,
    warn_of_absent_results,
    warn_of_dead_arcs,
)
from noetl_stream.playbook.compile.lowering import Lowering
from noetl_stream.playbook.diagnostics import Diagnostic, InvalidPlaybook, Problems, TooManyProblems
from noetl_stream.playbook.kinds.spec import LANGUAGE_KINDS, Kinds, KindSpec
from noetl_stream.playbook.model.catalog_document import SchemaDocument, read_schema_document
from noetl_stream.playbook.model.document import (
    OTHER_KINDS,
    ParsedPlaybook,
    check_address,
    check_kind,
    check_tool,
    kind_in,
    read_document,
)
from noetl_stream.playbook.model.layering import knobs_of
from noetl_stream.playbook.model.step import StepDraft, read_steps
from noetl_stream.playbook.model.task import TaskDraft
from noetl_stream.playbook.model.workbook import read_workbook
from noetl_stream.playbook.net.prove import prove
from noetl_stream.playbook.plan import Plan
from noetl_stream.playbook.vocabulary import advice
from noetl_stream.playbook.yaml.nodes import descend
from noetl_stream.playbook.yaml.source import PlaybookSource, read_source

if TYPE_CHECKING:  # playbooks compile without it
    from noetl_stream.playbook.codes import Code
    from noetl_stream.playbook.schedule.schedule_document import ScheduleDocument
    from noetl_stream.playbook.trigger.trigger_document import TriggerDocument

CatalogDocument: TypeAlias = "Plan | SchemaDocument | ScheduleDocument | TriggerDocument"
"""The content of a document of the catalog (LANGUAGE §15)."""


class CheckResult(msgspec.Struct, frozen=True):
    """The result of a check: a plan, or the content of a document of another kind, unless there are errors; all
    diagnostics in file order; the calls to look up in a catalog; and the readable steps, for drawings, even with
    errors.
    """

    plan: Plan | None
    diagnostics: tuple[Diagnostic, ...]
    calls: tuple[PlaybookCall, ...] = ()
    schema: SchemaDocument | None = None
    draft: Plan | None = None
    schedule: ScheduleDocument | None = None
    trigger: TriggerDocument | None = None

    @property
    def ok(self) -> bool:
        return self.document is not None

    @property
    def document(self) -> CatalogDocument | None:
        return self.plan or self.schema or self.schedule or self.trigger

    def require_plan(self) -> Plan:
        """The plan of the checked playbook.

        Raises:
            InvalidPlaybook: there are errors; it holds every problem of the text.
        """
        if self.plan is None:
            raise InvalidPlaybook(self.diagnostics)
        return self.plan


class Checker(Protocol):
    """Checks playbooks: :func:`check`, :func:`check_again`, or a cache of their results."""

    def __call__(self, text: str | bytes, kinds: Kinds, *, file: str = ..., limits: Limits = ...) -> CheckResult: ...


Schemas = Mapping[str, dict[str, Any]]
"""JSON Schemas by their address in the catalog."""


def check(
    text: str | bytes,
    kinds: Kinds,
    *,
    file: str = "<playbook>",
    limits: Limits = DEFAULT_LIMITS,
    schemas: Schemas | None = None,
    proves: bool = False,
) -> CheckResult:
    """Checks and compiles a playbook. Never raises for bad input; all problems are in the diagnostics.

    Nothing in it is run.

    Args:
        text: The YAML, as text or bytes.
        kinds: The installed tool kinds.
        file: The file name in diagnostics.
        limits: The operator's limits, which the playbook may lower.
        schemas: The registered schemas among those it names; ``None`` if the catalog was not asked.
        proves: Whether to explore how steps can run together, for warnings only; may take a second.
    """
    problems = Problems(file)
    read = _Text(read_source(text, problems), digest_of(text))
    return _check_playbook(read, kinds, limits, schemas, problems, proves=proves)


def check_again(
    text: str | bytes, kinds: Kinds, *, file: str = "<playbook>", limits: Limits = DEFAULT_LIMITS
) -> CheckResult:
    """Checks a playbook like :func:`check`, on servers and workers, which compile what was checked when registered.

    Code is not parsed again: that costs time, and an execution that began must not end because of code that it may
    never reach.
    """
    problems = Problems(file)
    try:
        compilation = _compile(_Text(read_source(text, problems), digest_of(text)), kinds, limits, None, problems)
    except TooManyProblems:
        compilation = None
    plan = None if compilation is None or problems.has_errors else compilation.plan
    return CheckResult(plan, problems.sorted())


def check_document(
    text: str | bytes,
    kinds: Kinds,
    *,
    file: str = "<playbook>",
    limits: Limits = DEFAULT_LIMITS,
    schemas: Schemas | None = None,
    proves: bool = False,
) -> CheckResult:
    """Checks any document of the catalog like :func:`check`: a playbook, schema, schedule or trigger (LANGUAGE §15)."""
    problems = Problems(file)
    source, digest = read_source(text, problems), digest_of(text)
    if source is not None and kind_in(source.root) == "Schedule":
        return _check_schedule(source, digest, kinds, limits, problems)
    if source is not None and kind_in(source.root) == "Trigger":
        return _check_trigger(source, digest, limits, problems)
    if source is None or kind_in(source.root) != "Schema":
        return _check_playbook(_Text(source, digest), kinds, limits, schemas, problems, proves=proves)
    schema = None
    with suppress(TooManyProblems):
        schema = read_schema_document(source.root, digest, problems)
    return CheckResult(None, problems.sorted(), schema=None if problems.has_errors else schema)


def _check_schedule(
    source: PlaybookSource, digest: str, kinds: Kinds, limits: Limits, problems: Problems
) -> CheckResult:
    from noetl_stream.playbook.schedule.schedule_document import read_schedule

    schedule = None
    with suppress(TooManyProblems):
        schedule = read_schedule(source, digest, limits, problems)
        if schedule is not None and schedule.arrivals_text is not None:
            at = descend(source.root, ("spec", "files"))
            for found in check(schedule.arrivals_text, kinds, limits=limits).diagnostics:
                if found.severity == "error":
                    problems.error(cast("Code", found.code), f"`files`: {found.message}", at, found.hint)
    calls = (schedule.call,) if schedule is not None else ()
    return CheckResult(None, problems.sorted(), calls, schedule=None if problems.has_errors else schedule)


def _check_trigger(source: PlaybookSource, digest: str, limits: Limits, problems: Problems) -> CheckResult:
    from noetl_stream.playbook.trigger.trigger_document import read_trigger

    trigger = None
    with suppress(TooManyProblems):
        trigger = read_trigger(source, digest, limits, problems)
    named = (trigger.call, trigger.watched) if trigger is not None else ()
    calls = tuple(call for call in named if call is not None)
    return CheckResult(None, problems.sorted(), calls, trigger=trigger)


class _Text(NamedTuple):
    """The text of a document as read, if it is YAML, and its digest."""

    source: PlaybookSource | None
    digest: str


def _check_playbook(
    text: _Text, kinds: Kinds, limits: Limits, schemas: Schemas | None, problems: Problems, *, proves: bool
) -> CheckResult:
    calls: tuple[PlaybookCall, ...] = ()
    plan: Plan | None = None
    compilation: _Compilation | None = None
    try:
        compilation = _compile(text, kinds, limits, schemas, problems)
        if text.source is not None:
            check_address(text.source.root, problems)
        if compilation is not None:
            plan, calls = compilation.plan, tuple(calls_of(compilation.document, compilation.pipelines))
            warn_of_files(calls, problems)
            check_code(compilation.tasks, compilation.source, compilation.names, problems)
            check_knobs(compilation.tasks, problems)
            check_params((task for step in compilation.pipelines for task in step.tasks), problems)
            if proves and not problems.has_errors:
                prove(plan, compilation.steps, problems)
    except TooManyProblems:
        plan = None
    draft = None if compilation is None else compilation.plan
    return CheckResult(None if problems.has_errors else plan, problems.sorted(), calls, draft=draft)


class _Compilation(NamedTuple):
    """A playbook as read and as compiled; ``tasks`` include those of unused workbook entries."""

    source: str
    document: ParsedPlaybook
    steps: list[StepDraft]
    tasks: list[TaskDraft]
    plan: Plan
    names: NamesOfCode

    @property
    def pipelines(self) -> list[StepDraft]:
        """The steps and their compensations, in file order."""
        return [pipeline for step in self.steps for pipeline in step.pipelines]


def _compile(
    text: _Text, kinds: Kinds, limits: Limits, schemas: Schemas | None, problems: Problems
) -> _Compilation | None:
    # Not a copy: the kinds of a worker also answer for kinds that they do not list.
    kinds = ChainMap(dict(LANGUAGE_KINDS), cast(MutableMapping[str, KindSpec], kinds))
    source = text.source
    if source is None:
        return None
    kind = kind_in(source.root)
    if isinstance(kind, str) and kind in OTHER_KINDS:
        check_kind(source.root, "Playbook", problems)  # further findings would be noise
        return None
    if not check_tool(source.root, problems):
        return None
    document = read_document(source.root, knobs_of(kinds), limits, problems)
    workbook = read_workbook(document.workbook, kinds, problems)
    steps = read_steps(document.workflow, kinds, workbook, document.layer, problems)
    declared = Declarations(document, steps)
    check_workflow(document, steps, problems)
    templates = Templates(source.text, problems, document.limits, advice.known_as(document.workflow))
    lowering = Lowering(document, declared, Expressions(templates, declared, kinds, problems, schemas))
    plan = lowering.plan(text.digest, steps)
    warn_of_dead_arcs(plan, steps, problems)
    warn_of_absent_results(document, plan, source.text, steps, problems)
    warn_of_failures(plan, steps, problems)
    warn_of_compensations(document, plan, steps, problems)
    check_unused(workbook, templates, problems)
    unused = [entry.draft for entry in workbook.unused_entries().values() if entry.draft]
    tasks = [*(task for step in steps for pipeline in step.pipelines for task in pipeline.tasks), *unused]
    return _Compilation(source.text, document, steps, tasks, plan, NamesOfCode(declared, steps))


def compile_playbook(text: str, kinds: Kinds, *, file: str = "<playbook>", limits: Limits = DEFAULT_LIMITS) -> Plan:
    """Compiles a playbook to its plan. Arguments as for :func:`check`.

    Raises:
        InvalidPlaybook: The playbook has errors; holds all its diagnostics.
    """
    return check(text, kinds, file=file, limits=limits).require_plan()
