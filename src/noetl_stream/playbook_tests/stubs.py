"""Tools that answer calls by the stubs of a test, through the port of tools, and record the calls."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from noetl_stream.adapters.simulated_time import simulated_loop
from noetl_stream.errors import PayloadRefused, UsageError
from noetl_stream.model.json import codec
from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.playbook.plan import TablePlan
from noetl_stream.playbook_tests.loading import ALWAYS_REAL, TaskKey
from noetl_stream.playbook_tests.reading import Stub
from noetl_stream.playbook_tests.stub_files import with_references
from noetl_stream.settings.children import ChildSettings
from noetl_stream.settings.sources.environment import environment_settings, python_path
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.tools.contract import BadRows, ChecksTables, Tool, ToolCall, ToolFailure, ToolResult
from noetl_stream.tools.http.response import header_mapping, status_failure
from noetl_stream.tools.python.signatures import given_folders
from noetl_stream.tools.registry import ToolClass, create_tools

MAX_CALLS: Final = 10_000
"""The most calls of all tasks of one test. More indicate a loop that its stubs never end."""


class RecordedCall(msgspec.Struct, frozen=True):
    """A call of a task: the ``number``-th of the test."""

    key: TaskKey
    kind: str
    attempt: int
    iteration: tuple[int, ...]
    number: int
    inputs: Mapping[str, Any]


class MissingStub(msgspec.Struct, frozen=True):
    """A call without a fitting stub. ``others`` is the number of its task's stubs."""

    call: RecordedCall
    others: int


class StubbedCalls:
    """Answers the calls of one test.

    Attributes:
        calls: All calls, in order.
        missing: The first call without an answer. The call never returns: the test ends.
        is_endless: Whether there were more than :data:`MAX_CALLS` calls; none returns then.
        used: The stubs that have answered a call, by identity.
        bundle: Returns the name and the bytes of a playbook's bundle, by digest; ``None`` if it needs none.
    """

    def __init__(
        self,
        stubs: Mapping[TaskKey, tuple[Stub, ...]],
        real: frozenset[str],
        bundle: Callable[[str], tuple[str, bytes] | None],
    ) -> None:
        self.bundle = bundle
        self.calls: list[RecordedCall] = []
        self.missing: MissingStub | None = None
        self.is_endless = False
        self.used: set[int] = set()
        self._stubs = stubs
        self._real = real | ALWAYS_REAL
        self._numbers: Counter[TaskKey] = Counter()

    async def answer(self, tool: StubbedTool, call: ToolCall) -> ToolResult:
        """Answers a call by its stub, or by the real tool.

        Raises:
            ToolFailure: an error that the test gives, or that the real tool raises.
        """
        recorded = self._record(tool.spec.kind, call)
        stubs = self._stubs.get(recorded.key, ())
        stub = next((one for one in stubs if _fits(one, recorded)), None)
        if stub is not None:
            self.used.add(id(stub))
        if stub is None and (recorded.kind not in self._real or recorded.inputs.get("attach")):
            self.missing = self.missing or MissingStub(recorded, len(stubs))
        if len(self.calls) > MAX_CALLS:
            self.is_endless = True
        if self.missing is not None or self.is_endless:
            await asyncio.get_running_loop().create_future()
        if stub is None or stub.real:
            return await tool.run_really(call)
        if stub.takes_s:
            await asyncio.sleep(stub.takes_s)
        result = await with_references(stub.result, call.data)
        return _outcome(msgspec.structs.replace(stub, result=result), tool.spec, call)

    def _record(self, kind: str, call: ToolCall) -> RecordedCall:
        key = TaskKey(_digest_of(call), call.step, call.task)
        self._numbers[key] += 1
        recorded = RecordedCall(
            key=key,
            kind=kind,
            attempt=call.attempt,
            iteration=_path(call.scope["iter"]),
            number=self._numbers[key],
            inputs=_plain(call.inputs),
        )
        self.calls.append(recorded)
        return recorded


class StubbedTool:
    """A tool of one kind whose calls a test answers. The real one is created for the first call that runs it."""

    def __init__(self, real: ToolClass, calls: StubbedCalls) -> None:
        self.spec: KindSpec = replace(real.spec, reads_scope=True)  # a call has its iteration in `iter`
        self._class = real
        self._calls = calls
        self._real: Tool | None = None

    async def run(self, call: ToolCall) -> ToolResult:
        """Answers a call: see :meth:`StubbedCalls.answer`."""
        return await self._calls.answer(self, call)

    async def run_really(self, call: ToolCall) -> ToolResult:
        """Runs a call with the real tool and its task's requirements. Simulated time stands still meanwhile."""
        real = self._really
        with simulated_loop().real_work():
            try:
                bundle = self._calls.bundle(_digest_of(call))
            except UsageError as error:
                message = f"{error.message}{f'; {error.hint}' if error.hint else ''}"
                raise ToolFailure.of("environment", message) from None
            if bundle is not None:
                call = msgspec.structs.replace(call, bundle=bundle[0], read_bundle=lambda: _given(bundle[1]))
            return await real.run(call)

    async def bad_rows(self, call: ToolCall, table: Any, plan: TablePlan) -> BadRows:
        """Checks a table with the real tool, including a table from a stub."""
        checker = self._really
        assert isinstance(checker, ChecksTables), "only duckdb is asked"
        with simulated_loop().real_work():
            return await checker.bad_rows(call, table, plan)

    @property
    def _really(self) -> Tool:
        if self._real is None:
            children = ChildSettings(python_path=(*given_folders(), *map(str, python_path())))
            settings = ToolSettings(children=children, python_environments=environment_settings(at_home=True))
            self._real = create_tools({self.spec.kind: self._class}, settings)[self.spec.kind]
        return self._real

    async def close(self) -> None:
        """Ends the processes of the real tool."""
        if self._real is not None:
            with simulated_loop().real_work():
                await self._real.close()


def _digest_of(call: ToolCall) -> str:
    """The digest of a call's playbook."""
    return call.trust_domain.partition(" ")[0]


async def _given(data: bytes) -> bytes:
    return data


def _fits(stub: Stub, call: RecordedCall) -> bool:
    return (
        stub.attempt in (None, call.attempt)
        and stub.call in (None, call.number)
        and stub.iteration in (None, call.iteration)
        and (stub.inputs is None or all(call.inputs.get(name) == value for name, value in stub.inputs.items()))
    )


def _outcome(stub: Stub, spec: KindSpec, call: ToolCall) -> ToolResult:
    result, helper = stub.result, dict(stub.helper)
    if spec.kind == "http" and isinstance(result, dict):
        result = _response(result)
        helper = {"status": result["status"], "headers": result["headers"], **helper}
    elif spec.statements and isinstance(result, dict) and isinstance(result.get("rows"), list):
        result = _rows(result)
    if stub.error is not None:
        raise ToolFailure(stub.error, result=result, helper=helper)
    if spec.kind == "http" and isinstance(result, dict) and result["status"] >= 400:
        method, url = (
            str(call.inputs.get("method") or "GET"),
            str(call.inputs.get("url") or call.inputs.get("endpoint")),
        )
        raise status_failure(method, url.partition("?")[0], result)
    return ToolResult(result, helper=helper)


def _response(given: dict[str, Any]) -> dict[str, Any]:
    given_headers = (given.get("headers") or {}).items()
    headers = header_mapping((name.encode(), str(value).encode()) for name, value in given_headers)
    body = {"file": given["file"]} if "file" in given else {"data": given.get("data")}
    return {"status": given.get("status") or 200, "headers": headers, **body}


def _rows(given: dict[str, Any]) -> dict[str, Any]:
    rows = given["rows"]
    columns = list(rows[0]) if rows and isinstance(rows[0], dict) else []
    return {"row_count": len(rows), "columns": columns, "statements": [], **given}


def _path(iteration: Mapping[str, Any]) -> tuple[int, ...]:
    """The indices of an iteration, the outermost first; ``()`` outside loops."""
    path: list[int] = []
    level: Any = iteration
    while isinstance(level, Mapping) and "index" in level and "count" in level:
        path.insert(0, level["index"])
        level = level.get("parent")
    return tuple(path)


def _plain(inputs: Mapping[str, Any]) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = codec.decode_json(codec.encode(dict(inputs)))
    except PayloadRefused:
        return dict(inputs)
    return plain
