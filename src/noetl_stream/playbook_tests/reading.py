"""A reader of test documents. All problems are reported at once, with their places, like those of a playbook."""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Mapping as MappingOf
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from noetl_stream.model.json.values import deep_merge
from noetl_stream.model.outcome import ERROR_KINDS, ErrorInfo
from noetl_stream.playbook.diagnostics import BareLocation, Position, Problems, TooManyProblems
from noetl_stream.playbook.model.document import check_kind
from noetl_stream.playbook.model.sections import entries, is_null, pairs, report_wrong_type
from noetl_stream.playbook.suggestions import did_you_mean, list_names
from noetl_stream.playbook.yaml.nodes import Mapping, Node, Scalar, Sequence
from noetl_stream.playbook.yaml.source import read_source
from noetl_stream.playbook_tests import ENDING
from noetl_stream.playbook_tests.schema import (
    KIND,
    REAL_KINDS,
    STATUSES,
    VERBS,
    ActionSection,
    CatalogFileSection,
    ExpectedErrorSection,
    GivenSection,
    PlaybookTestSection,
    StubErrorSection,
    StubSection,
    TestDocumentSection,
    ThenSection,
    Verb,
)
from noetl_stream.playbook_tests.stub_files import StubFileRefused, with_files


class Stub(msgspec.Struct, frozen=True):
    """A stub, which stands for calls of a task: an outcome, or the real tool. ``None`` selects every call.

    Attributes:
        at: The node of the stub.
        takes_s: Simulated time.
        iteration: The path of indices.
    """

    at: Node
    result: Any = None
    error: ErrorInfo | None = None
    helper: MappingOf[str, Any] = {}
    attempt: int | None = None
    iteration: tuple[int, ...] | None = None
    call: int | None = None
    inputs: MappingOf[str, Any] | None = None
    takes_s: float = 0.0
    real: bool = False


class StubsOfTask(msgspec.Struct, frozen=True):
    """The stubs under one key, in order: the first that fits a call answers it. ``at`` is the key."""

    at: Node
    stubs: tuple[Stub, ...]


Stubs = MappingOf[str, StubsOfTask]
"""Stubs by ``STEP.TASK`` or ``STEP``."""


class CatalogFile(msgspec.Struct, frozen=True):
    """A document in the catalog of a test. ``at`` is the node that names it."""

    file: Path
    at: Node
    stubs: Stubs


class GivenStart(msgspec.Struct, frozen=True):
    """The start of a test. ``now_ms`` is ``None`` for the usual start of simulated time."""

    workload: MappingOf[str, Any] = {}
    ctx: MappingOf[str, Any] = {}
    now_ms: int | None = None
    due: str = ""
    secrets: MappingOf[str, Any] = {}
    real: frozenset[str] = frozenset()
    stubs: Stubs = {}
    catalog: tuple[CatalogFile, ...] = ()


class Expected(msgspec.Struct, frozen=True):
    """The expectations of a test, at their place. ``None`` is not compared."""

    at: Node
    then: ThenSection = ThenSection.model_construct()


class UserAction(msgspec.Struct, frozen=True):
    """An action of a user in a test, or passing time: ``after_s``; ``None``: once the execution waits."""

    at: Node
    verb: Verb
    after_s: float | None = None
    name: str = ""
    value: Any = None
    expected: Expected | None = None


class PlaybookTest(msgspec.Struct, frozen=True):
    """A test. ``expected`` is ``None`` if nothing is expected at the end; ``own_stubs`` excludes the common stubs."""

    name: str
    at: Node
    given: GivenStart
    actions: tuple[UserAction, ...] = ()
    expected: Expected | None = None
    own_stubs: frozenset[str] = frozenset()


class TestDocument(msgspec.Struct, frozen=True):
    """The tests of one file. ``playbook`` is the file that they test."""

    __test__ = False

    file: str
    playbook: Path
    tests: tuple[PlaybookTest, ...]


RETRYABLE: Final = frozenset({"connection", "timeout"})
LONGEST_S: Final = 366 * 86_400.0
"""The longest time that a test may let pass at once."""

LONGEST_CALL_S: Final = 86_400.0
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h|d)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def read_tests(text: bytes, file: Path, problems: Problems) -> TestDocument | None:
    """Reads the tests in a file; ``None`` if it has problems, which are reported."""
    try:
        source = read_source(text, problems)
        document = None if source is None else _document(source.root, file, problems)
    except TooManyProblems:
        return None
    return None if problems.has_errors else document


def playbook_beside(file: Path) -> Path:
    """The playbook that ``NAME.test.yaml`` tests by default: ``NAME.yaml``, or ``NAME.yml`` if only that exists."""
    name = file.name.removesuffix(ENDING)
    found, other = file.with_name(f"{name}.yaml"), file.with_name(f"{name}.yml")
    return other if other.exists() and not found.exists() else found


def _document(root: Node, file: Path, problems: Problems) -> TestDocument:
    top = TestDocumentSection.from_node(root, problems, at=BareLocation(Position(1, 1)))
    check_kind(root, KIND, problems)
    reader = _Reader(file, problems)
    given = reader.start(top.given, GivenStart())
    tests = [reader.test(node, given) for node in entries(top.tests, "`tests`", problems)]
    if isinstance(top.tests, Sequence) and not tests:
        problems.error("missing_key", "`tests` is empty", top.tests, "write a test, or remove the file")
    names: set[str] = set()
    for test in tests:
        if test.name in names:
            problems.error("duplicate_name", f"another test is named `{test.name}`", test.at, "choose another name")
        names.add(test.name)
    playbook = playbook_beside(file) if top.playbook is None else file.parent / top.playbook
    return TestDocument(str(file), playbook, tuple(tests))


class _Reader:
    """A reader of the parts of one document."""

    def __init__(self, file: Path, problems: Problems) -> None:
        self._file = file
        self._problems = problems

    def test(self, node: Node, common: GivenStart) -> PlaybookTest:
        found = PlaybookTestSection.from_node(node, self._problems)
        given = self.start(found.given, common)
        actions = tuple(self._action(one) for one in entries(found.when, "`when`", self._problems))
        expected = self._read_expected(found.then)
        own = found.given.get("stubs") if isinstance(found.given, Mapping) else None
        own_stubs = frozenset(own.keys if isinstance(own, Mapping) else ())
        return PlaybookTest(found.name or "", node, given, actions, expected, own_stubs)

    def start(self, node: Node | None, over: GivenStart) -> GivenStart:
        """Reads the start of a test in ``node``, over the start of all tests."""
        found = GivenSection.from_node(node, self._problems)
        real = frozenset(self._real_kind(one) for one in entries(found.real, "`real`", self._problems))
        return GivenStart(
            workload=deep_merge(over.workload, self._mapping(found.workload, "`workload`")),
            ctx={**over.ctx, **self._mapping(found.ctx, "`ctx`")},
            now_ms=over.now_ms if found.now is None else self._moment("now", found.now, node),
            due=over.due if found.due is None or self._moment("due", found.due, node) is None else found.due,
            secrets={**over.secrets, **self._mapping(found.keychain, "`keychain`")},
            real=over.real | real,
            stubs={**over.stubs, **self._stubs(found.stubs)},
            catalog=tuple({one.file: one for one in (*over.catalog, *self._catalog(found.catalog))}.values()),
        )

    def _real_kind(self, node: Node) -> str:
        kind = str(node.plain())
        if kind not in REAL_KINDS:
            hint = did_you_mean(kind, REAL_KINDS) or f"give its tasks stubs; {list_names(REAL_KINDS)} may run"
            self._problems.error("not_real", f"tasks of kind `{kind}` do not run in a test", node, hint)
        return kind

    def _catalog(self, node: Node | None) -> Iterator[CatalogFile]:
        for key, value in pairs(node, "`catalog`", self._problems):
            found = CatalogFileSection.from_node(value, self._problems)
            at = Scalar(key.name, key.mark, key.pointer)
            yield CatalogFile(self._file.parent / key.name, at, self._stubs(found.stubs))

    def _stubs(self, node: Node | None) -> Stubs:
        found = {}
        for key, value in pairs(node, "`stubs`", self._problems):
            nodes = value.items if isinstance(value, Sequence) else [value]
            at = Scalar(key.name, key.mark, key.pointer)
            found[key.name] = StubsOfTask(at, tuple(self._stub(one) for one in nodes))
        return found

    def _stub(self, node: Node) -> Stub:
        problems = self._problems
        found = StubSection.from_node(node, problems)
        given = [name for name in ("result", "error", "real") if getattr(found, name) is not None]
        if not given and isinstance(node, Mapping):
            hint = "write `result: null` if it has none"
            problems.error("missing_key", "a stub needs `result`, `error` or `real`", node, hint)
        if found.real is not None and len(given) > 1:
            hint = "drop `real` or the others"
            problems.error("conflicting_keys", "a task that runs has its own outcome", node, hint)
        return Stub(
            node,
            result=self._result(found.result),
            error=self._error(found.error),
            helper=self._mapping(found.helper, "`helper`"),
            attempt=found.attempt,
            iteration=self._iteration(found.iteration),
            call=found.call,
            inputs=None if found.inputs is None else self._mapping(found.inputs, "`inputs`"),
            takes_s=self._seconds(found.takes, "takes", LONGEST_CALL_S) or 0.0,
            real=found.real or False,
        )

    def _result(self, node: Node | None) -> Any:
        try:
            return None if node is None else with_files(node.plain(), self._file.parent)
        except StubFileRefused as refused:
            self._problems.error("invalid_value", str(refused), node or _TOP, None)
            return None

    def _error(self, node: Node | None) -> ErrorInfo | None:
        if node is None:
            return None
        if isinstance(node, Scalar) and isinstance(node.value, str):
            found, kind = StubErrorSection.model_construct(), node.value
        else:
            found = StubErrorSection.from_node(node, self._problems)
            kind = found.kind or ""
        self._check_error_kind(kind, self._part(node, "kind"))
        is_retryable = kind in RETRYABLE if found.retryable is None else found.retryable
        message = f"{kind}, says the test" if found.message is None else found.message
        return ErrorInfo(kind, message, retryable=is_retryable, retry_after_s=found.retry_after_s, code=found.code)

    def _check_error_kind(self, kind: str, at: Node) -> None:
        """Reports an error kind that looks misspelt; a plugin may have kinds of its own."""
        if kind and kind not in ERROR_KINDS and (hint := did_you_mean(kind, ERROR_KINDS)):
            self._problems.error("invalid_value", f"no error has kind `{kind}`", at, hint)

    def _iteration(self, node: Node | None) -> tuple[int, ...] | None:
        if node is None:
            return None
        value = node.plain()
        path = value if isinstance(value, list) else [value]
        if not path or not all(type(index) is int and index >= 0 for index in path):
            report_wrong_type(node, "`iteration`", "an index from 0, or a list of them", self._problems)
            return None
        return tuple(path)

    def _action(self, node: Node) -> UserAction:
        problems = self._problems
        found = ActionSection.from_node(node, problems)
        verbs = [verb for verb in VERBS if getattr(found, verb) is not None]
        if len(verbs) > 1:
            message = f"an entry of `when` does one thing, not {list_names(verbs)}"
            problems.error("conflicting_keys", message, node, "write an entry for each")
        if not verbs and found.after is None and found.then is None:
            hint = f"write `after` with a duration, or one of {list_names(VERBS)}"
            problems.error("missing_key", "this entry of `when` does nothing", node, hint)
        for name, owner in (("payload", "signal"), ("args", "inject")):
            if getattr(found, name) is not None and owner not in verbs:
                problems.error("missing_key", f"`{name}` goes with `{owner}`", node, f"write `{owner}`")
        verb: Verb = verbs[0] if verbs else "nothing"
        name = getattr(found, verb) if verb in ("signal", "inject", "cancel", "pause", "resume") else ""
        value: Any = None
        if verb in ("patch", "merge"):
            value = self._mapping(getattr(found, verb), f"`{verb}`")
        elif verb == "signal":
            value = None if found.payload is None else found.payload.plain()
        elif verb == "inject":
            value = self._mapping(found.args, "`args`")
        after_s = self._seconds(found.after, "after", LONGEST_S)
        return UserAction(node, verb, after_s, name, value, self._read_expected(found.then))

    def _read_expected(self, node: Node | None) -> Expected | None:
        if node is None or is_null(node):
            return None
        problems = self._problems
        found = ThenSection.from_node(node, problems)
        if found.status is not None and found.status not in STATUSES:
            at = self._part(node, "status")
            hint = did_you_mean(found.status, STATUSES) or f"write one of {list_names(STATUSES)}"
            problems.error("invalid_value", f"no execution is `{found.status}` at the end of a test", at, hint)
        self._check_expected_error(found.error)
        for name in ("path", "never", "waits_for"):
            for one in entries(getattr(found, name), f"`{name}`", problems):
                if not (isinstance(one, Scalar) and isinstance(one.value, str)):
                    report_wrong_type(one, "a step", "text", problems)
        pairs(found.ctx, "`ctx`", problems)
        for key, value in pairs(found.calls, "`calls`", problems):
            is_count = isinstance(value, Scalar) and type(value.value) is int and value.value >= 0
            if not is_count and not (isinstance(value, Sequence) and all(isinstance(i, Mapping) for i in value.items)):
                report_wrong_type(value, f"`{key.name}`", "a number, or a list of mappings", problems)
        return Expected(node, found)

    def _check_expected_error(self, node: Node | None) -> None:
        if isinstance(node, Scalar) and isinstance(node.value, str):
            self._check_error_kind(node.value, node)
        elif node is not None:
            found = ExpectedErrorSection.from_node(node, self._problems)
            if found.kind is not None:
                self._check_error_kind(found.kind, self._part(node, "kind"))

    def _part(self, node: Node, name: str) -> Node:
        found = node.get(name) if isinstance(node, Mapping) else None
        return node if found is None else found

    def _mapping(self, node: Node | None, what: str) -> dict[str, Any]:
        if node is None or is_null(node):
            return {}
        if not isinstance(node, Mapping):
            report_wrong_type(node, what, "a mapping", self._problems)
            return {}
        plain: dict[str, Any] = node.plain()
        return plain

    def _seconds(self, node: Node | None, name: str, most_s: float) -> float | None:
        if node is None:
            return None
        value = node.plain()
        found = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if found is not None:
            seconds = float(found[1]) * _UNITS[found[2]]
        elif isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            seconds = float(value)
        else:
            hint = "write `30s`, `5m`, `12h`, `3d`, or a number of seconds"
            self._problems.error("invalid_value", f"`{name}` must be a duration", node, hint)
            return None
        if seconds > most_s:
            days = most_s / _UNITS["d"]
            self._problems.error("invalid_value", f"`{name}` may be {days:g} days at most", node, None)
        return seconds

    def _moment(self, key: str, text: str, node: Node | None) -> int | None:
        at = node if node is None else self._part(node, key)
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            found = None
        if found is None or found.tzinfo is None:
            hint = "write a time such as 2030-01-31T09:00:00Z"
            self._problems.error("invalid_value", f"`{key}` must be a time with an offset or `Z`", at or _TOP, hint)
            return None
        return round(found.timestamp() * 1000)


_TOP: Final = BareLocation(Position(1, 1))
