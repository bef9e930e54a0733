"""The pytest plugin: collects the tests in ``*.test.yaml``. The first such file imports the engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from noetl_stream.playbook_tests import ENDING, is_test_document

if TYPE_CHECKING:
    from noetl_stream.playbook_tests.loading import LoadedTest
    from noetl_stream.playbook_tests.run import TestOutcome, TestRunner


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> PlaybookTestFile | None:
    """Collects a test document of a playbook."""
    if not file_path.name.endswith(ENDING) or not is_test_document(file_path):
        return None
    collected: PlaybookTestFile = PlaybookTestFile.from_parent(parent, path=file_path)
    return collected


class PlaybookTestFile(pytest.File):
    """A test document, as a file of pytest."""

    def collect(self) -> Iterator[PlaybookTestItem]:
        """Collects the tests of the document.

        Raises:
            CollectError: the document, its playbook or its project has errors.
        """
        from noetl_stream.cli.playbook.project_tests import in_project
        from noetl_stream.errors import UsageError
        from noetl_stream.playbook_tests.loading import load
        from noetl_stream.telemetry.terminal import shown

        runner = _runner(self.config)
        try:
            with in_project(self.path):
                document = load(self.path, runner.compiled.kinds, runner.compiled.limits)
        except UsageError as error:
            raise self.CollectError(error.message) from None
        if document.diagnostics:
            raise self.CollectError(shown("\n".join(diagnostic.render() for diagnostic in document.diagnostics)))
        for test in document.tests:
            yield PlaybookTestItem.from_parent(self, name=test.test.name, test=test)


class PlaybookTestItem(pytest.Item):
    """A test of a playbook."""

    def __init__(self, *, test: LoadedTest, **of_pytest: Any) -> None:
        super().__init__(**of_pytest)
        self._test = test

    def runtest(self) -> None:
        """Runs the test."""
        from noetl_stream.cli.playbook.project_tests import in_project

        with in_project(self.path):
            outcome = _runner(self.config).run(self._test)
        if not outcome.passed:
            raise PlaybookTestFailed(outcome)
        for note in outcome.notes:
            self.warn(PlaybookTestNote(note))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The problems that the test found, without a traceback."""
        if not isinstance(excinfo.value, PlaybookTestFailed):
            return super().repr_failure(excinfo, style)
        from noetl_stream.playbook_tests.suite import problem_texts
        from noetl_stream.telemetry.terminal import shown

        return shown("\n".join(problem_texts(self._shown_file, excinfo.value.outcome)))

    def reportinfo(self) -> tuple[Path, int, str]:
        """The file, line and name of the test."""
        return self.path, self._test.test.at.mark.line - 1, self.name

    @property
    def _shown_file(self) -> str:
        root = self.config.rootpath
        return str(self.path.relative_to(root) if self.path.is_relative_to(root) else self.path)


class PlaybookTestFailed(Exception):
    """A test of a playbook failed."""

    def __init__(self, outcome: TestOutcome) -> None:
        super().__init__(outcome.problems[0].message)
        self.outcome = outcome


class PlaybookTestNote(pytest.PytestWarning):
    """A warning about a test that may not do what its author intended."""


_RUNNER: pytest.StashKey[TestRunner] = pytest.StashKey()


def _runner(config: pytest.Config) -> TestRunner:
    """The test runner of the session, with its cache of compiled playbooks."""
    if _RUNNER not in config.stash:
        from noetl_stream.cli.playbook.project_tests import test_runner

        config.stash[_RUNNER] = test_runner()
    return config.stash[_RUNNER]
