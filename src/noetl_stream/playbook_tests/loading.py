"""Loads test documents: compiled playbooks, and stubs by the tasks that they stand for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from noetl_stream.errors import UsageError, usable_file
from noetl_stream.model.ids import digest_of
from noetl_stream.model.limits import Limits
from noetl_stream.playbook.compile.compiler import CheckResult, check_document
from noetl_stream.playbook.diagnostics import Diagnostic, Problems, TooManyProblems
from noetl_stream.playbook.kinds.spec import SUSPENDING_KINDS, Kinds
from noetl_stream.playbook.model.sections import entries, pairs, report_wrong_type
from noetl_stream.playbook.plan import Plan, TaskPlan
from noetl_stream.playbook.suggestions import did_you_mean, list_names
from noetl_stream.playbook.yaml.nodes import Mapping as MappingNode
from noetl_stream.playbook.yaml.nodes import Node, Scalar
from noetl_stream.playbook_tests.reading import (
    CatalogFile,
    Expected,
    PlaybookTest,
    Stub,
    Stubs,
    TestDocument,
    read_tests,
)
from noetl_stream.playbook_tests.schema import REAL_KINDS

ALWAYS_REAL: Final = frozenset({"noop", "secrets"})
"""Kinds that run in every test: they act only on their pipeline."""

_HTTP_KEYS: Final = ("status", "headers", "data", "file")
MAX_FILE_BYTES: Final = 4 * 1024 * 1024
"""The size above which a file is not read: no playbook or test document may be that large."""


class TaskKey(NamedTuple):
    """A task of a playbook, by the digest of its text."""

    digest: str
    step: str
    task: str


class TestedFile(msgspec.Struct, frozen=True):
    """A playbook or schema of a file, checked."""

    file: str
    source: str
    checked: CheckResult

    @property
    def digest(self) -> str:
        return digest_of(self.source)


class LoadedTest(msgspec.Struct, frozen=True):
    """A test with its playbook, catalog and stubs. ``catalog`` is registered before it starts."""

    test: PlaybookTest
    playbook: TestedFile
    plan: Plan
    catalog: tuple[TestedFile, ...]
    stubs: Mapping[TaskKey, tuple[Stub, ...]]


class LoadedDocument(msgspec.Struct, frozen=True):
    """A test document with its playbooks; or the diagnostics about them, and then no tests."""

    file: str
    tests: tuple[LoadedTest, ...]
    diagnostics: tuple[Diagnostic, ...] = ()


def load(file: Path, kinds: Kinds, limits: Limits) -> LoadedDocument:
    """Loads the tests in a file.

    Raises:
        UsageError: the file cannot be read.
    """
    problems = Problems(str(file))
    document = read_tests(read_file(file), file, problems)
    if document is None:
        return LoadedDocument(str(file), (), problems.sorted())
    try:
        return _Loader(document, kinds, limits, problems).load()
    except TooManyProblems:
        return LoadedDocument(str(file), (), problems.sorted())


def read_file(file: Path) -> bytes:
    """Reads at most :data:`MAX_FILE_BYTES` of a file.

    Raises:
        UsageError: the file cannot be read.
    """
    with usable_file(file), file.open("rb") as opened:
        return opened.read(MAX_FILE_BYTES)


class _Loader:
    """Loads the files that one document names, each once, and checks the names in it."""

    def __init__(self, document: TestDocument, kinds: Kinds, limits: Limits, problems: Problems) -> None:
        self._document = document
        self._kinds = kinds
        self._limits = limits
        self._problems = problems
        self._files: dict[Path, TestedFile | None] = {}
        self._diagnostics: list[Diagnostic] = []

    def load(self) -> LoadedDocument:
        document = self._document
        tests = [self._test(test) for test in document.tests]
        found = (*self._problems.sorted(), *self._diagnostics)
        loaded = tuple(test for test in tests if test is not None)
        return LoadedDocument(document.file, () if found else loaded, found)

    def _test(self, test: PlaybookTest) -> LoadedTest | None:
        playbook = self._load_file(self._document.playbook, test.at)
        if playbook is None:
            return None
        plan = playbook.checked.plan
        if plan is None:
            self._problems.error("not_a_playbook", f"{playbook.file} is not a playbook", test.at)
            return None
        catalog: list[TestedFile] = []
        stubs = dict(self._stubs(plan, test.given.stubs, test.own_stubs))
        for one in test.given.catalog:
            tested = self._load_file(one.file, one.at)
            if tested is not None:
                catalog.append(tested)
                stubs |= dict(self._stubs_of_file(one, tested))
        for expected in (test.expected, *(action.expected for action in test.actions)):
            if expected is not None:
                self._check_names(plan, expected)
        for action in test.actions:
            if action.verb == "inject":
                self._check_step(plan, action.name, action.at)
        return LoadedTest(test, playbook, plan, tuple(catalog), stubs)

    def _load_file(self, file: Path, at: Node) -> TestedFile | None:
        if file not in self._files:
            self._files[file] = self._read(file, at)
        return self._files[file]

    def _read(self, file: Path, at: Node) -> TestedFile | None:
        try:
            source = read_file(file)
        except UsageError as error:
            hint = "name it by `playbook`, from the folder of the test document"
            self._problems.error("file_unreadable", error.message, at, hint)
            return None
        checked = check_document(source, self._kinds, file=str(file), limits=self._limits)
        if not checked.ok:
            self._diagnostics += [one for one in checked.diagnostics if one.severity == "error"]
            return None
        return TestedFile(str(file), source.decode(), checked)

    def _stubs_of_file(self, file: CatalogFile, tested: TestedFile) -> Iterator[tuple[TaskKey, tuple[Stub, ...]]]:
        if tested.checked.plan is not None:
            yield from self._stubs(tested.checked.plan, file.stubs)
        elif file.stubs:
            self._problems.error("not_a_playbook", f"{tested.file} has no tasks to stand for", file.at)

    def _stubs(self, plan: Plan, stubs: Stubs, own: Collection[str] = ()) -> Iterator[tuple[TaskKey, tuple[Stub, ...]]]:
        names: dict[tuple[TaskKey, bool], str] = {}
        for name, found in stubs.items():
            task = self._task(plan, name, found.at)
            if task is None:
                continue
            step, task_plan = task
            key = TaskKey(plan.digest, step, task_plan.name)
            other = names.setdefault((key, name in own), name)
            if other != name:
                hint = "write one list under one of them"
                self._problems.error("duplicate_name", f"`{name}` and `{other}` are the same task", found.at, hint)
            for stub in found.stubs:
                self._check_stub(stub, step, task_plan)
            yield key, found.stubs

    def _task(self, plan: Plan, name: str, at: Node) -> tuple[str, TaskPlan] | None:
        """The task that ``STEP.TASK`` or ``STEP`` names, and its step."""
        step_name, dot, task_name = name.partition(".")
        if not self._check_step(plan, step_name, at):
            return None
        if len(found := tasks_named(plan, name)) == 1:
            return step_name, found[0]
        names = [f"{step_name}.{task.name}" for task in plan.steps[step_name].tasks]
        if dot:
            hint = did_you_mean(name, names) or f"its tasks: {list_names(names)}"
            self._problems.error("unknown_task", f"step `{step_name}` has no task `{task_name}`", at, hint)
        else:
            several = f"write one of {list_names(names)}" if names else None
            many = "several tasks" if names else "no tasks"
            self._problems.error("unknown_task", f"step `{step_name}` has {many}", at, several)
        return None

    def _check_step(self, plan: Plan, name: str, at: Node) -> bool:
        if plan.steps.get(name) is not None:
            return True
        hint = did_you_mean(name, plan.steps) or f"its steps: {list_names(plan.steps)}"
        self._problems.error("unknown_step", f"playbook {plan.path} has no step `{name}`", at, hint)
        return False

    def _check_stub(self, stub: Stub, step: str, task: TaskPlan) -> None:
        problems, label = self._problems, f"`{step}.{task.name}`"
        if task.kind in SUSPENDING_KINDS:
            hint = "give the playbook that it calls under `catalog`" if task.kind == "playbook" else "let time pass"
            problems.error("not_stubbed", f"{label} is of kind `{task.kind}`, which has no stub", stub.at, hint)
        if stub.real and task.kind not in (*REAL_KINDS, *ALWAYS_REAL):
            message = f"{label} is of kind `{task.kind}`, which does not run in a test"
            problems.error("not_real", message, stub.at, "write `result` or `error`")
        if task.kind == "http" and stub.result is not None:
            self._check_response(stub)

    def _check_response(self, stub: Stub) -> None:
        """Checks that a stub of ``http`` is a response."""
        at = stub.at.get("result") if isinstance(stub.at, MappingNode) else None
        if not isinstance(at, MappingNode):
            report_wrong_type(
                at or stub.at, "the result of `http`", "a mapping", self._problems, "{ status: 200, data: … }"
            )
            return
        for key in at.keys.values():
            if key.name not in _HTTP_KEYS:
                hint = did_you_mean(key.name, _HTTP_KEYS) or f"known keys: {list_names(_HTTP_KEYS)}; the body is `data`"
                self._problems.error("unknown_key", f"unknown key `{key.name}` in a response", key, hint)
        status, headers = at.get("status"), at.get("headers")
        if status is not None and not (type(status.plain()) is int and 100 <= status.plain() <= 599):
            report_wrong_type(status, "`status`", "a number from 100 to 599", self._problems)
        for key, value in pairs(headers, "`headers`", self._problems):
            if not isinstance(value.plain(), str):
                report_wrong_type(value, f"`{key.name}`", "text", self._problems, "quote it")

    def _check_names(self, plan: Plan, expected: Expected) -> None:
        then = expected.then
        for node in (then.path, then.never, then.waits_for):
            for one in entries(node, "steps", self._problems):
                self._check_step(plan, str(one.plain()), one)
        for key, _ in pairs(then.calls, "`calls`", self._problems):
            self._task(plan, key.name, Scalar(key.name, key.mark, key.pointer))


def needs_stub(task: TaskPlan) -> bool:
    """Whether calls of the task need a stub, or a test that asks for the real tool."""
    return task.kind not in ALWAYS_REAL | SUSPENDING_KINDS


def tasks_named(plan: Plan, name: str) -> list[TaskPlan]:
    """The tasks that ``STEP.TASK`` or ``STEP`` may name: exactly one if the name is right."""
    step, dot, task = name.partition(".")
    tasks = plan.steps[step].tasks
    if dot:
        return [one for one in tasks if one.name == task]
    return [one for one in tasks if needs_stub(one)] or list(tasks)
