"""A test document as it was read: tests with positions, for :mod:`~noetl_stream.playbook_tests.reading`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.yaml.nodes import Node

Verb = Literal["patch", "merge", "signal", "inject", "cancel", "pause", "resume", "nothing"]


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
    helper: Mapping[str, Any] = {}
    attempt: int | None = None
    iteration: tuple[int, ...] | None = None
    call: int | None = None
    inputs: Mapping[str, Any] | None = None
    takes_s: float = 0.0
    real: bool = False


class StubsOfTask(msgspec.Struct, frozen=True):
    """The stubs under one key, in order: the first that fits a call stands for it. ``at`` is the key."""

    at: Node
    stubs: tuple[Stub, ...]


Stubs = Mapping[str, StubsOfTask]
"""Stubs by ``STEP.TASK`` or ``STEP``."""


class CatalogFile(msgspec.Struct, frozen=True):
    """A document in the catalog of a test. ``at`` is the node that names it."""

    file: Path
    at: Node
    stubs: Stubs


class GivenStart(msgspec.Struct, frozen=True):
    """The start of a test. ``now_ms`` is ``None`` for the usual start of simulated time."""

    workload: Mapping[str, Any] = {}
    ctx: Mapping[str, Any] = {}
    now_ms: int | None = None
    secrets: Mapping[str, Any] = {}
    real: frozenset[str] = frozenset()
    stubs: Stubs = {}
    catalog: tuple[CatalogFile, ...] = ()


class Expected(msgspec.Struct, frozen=True):
    """The expectations of a test. Nodes hold values with their positions; ``None`` is not compared."""

    at: Node
    status: Node | None = None
    result: Node | None = None
    error: Node | None = None
    ctx: Node | None = None
    path: Node | None = None
    never: Node | None = None
    calls: Node | None = None
    waits_for: Node | None = None


class UserAction(msgspec.Struct, frozen=True):
    """An action of a user in a test, or time that passes: ``after_s``; ``None``: once the execution waits."""

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
