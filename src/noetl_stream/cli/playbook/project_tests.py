"""Runs tests of playbooks in a project, with its packages and its tasks' requirements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from noetl_stream.cli.project.packages import packed
from noetl_stream.cli.project.project_file import package_folders
from noetl_stream.model.limits import operator_limits
from noetl_stream.playbook_tests.run import TestRunner
from noetl_stream.settings.sources.environment import limit_settings
from noetl_stream.tools.python.signatures import modules_in
from noetl_stream.tools.registry import ToolClass, load_tools


def test_runner(seed: int = 0, foreign: dict[str, ToolClass] | None = None) -> TestRunner:
    """Returns a runner with the installed tools and ``foreign`` ones. Tasks that really run get their environments."""
    tools = {**(foreign or {}), **load_tools()}
    return TestRunner(tools, operator_limits(limit_settings()), seed, bundle_of=_bundle_of)


test_runner.__test__ = False  # type: ignore[attr-defined]


@contextmanager
def in_project(file: Path) -> Iterator[None]:
    """Adds the packages of the project around a file to the module search path, for the block.

    Raises:
        UsageError: the project is invalid.
    """
    with modules_in(package_folders(file)):
        yield


def _bundle_of(file: str, source: str) -> tuple[str, bytes] | None:
    _, bundle = packed(Path(file), source)
    return None if bundle is None else (str(bundle.name), bundle.data)
