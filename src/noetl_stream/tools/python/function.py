"""Runs a function of a plugin as ``kind: python`` runs code: in confined child processes, which cancelling kills."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from noetl_stream.settings.children import ChildSettings
from noetl_stream.tools.children.launcher import ENVIRONMENT
from noetl_stream.tools.contract import ToolCall
from noetl_stream.tools.python.tool import MAX_RESULT_BYTES, PythonTool


class ChildFunction:
    """A function that runs in child processes of its own, shared by the calls of one trust domain.

    It takes keyword arguments and returns what JSON can express. To fail with a kind, it raises
    :class:`~noetl_stream.tools.python.job.JobFailed`; any other exception is the error ``exception``.

    Args:
        function: ``module:name``. The module is imported once, before children are made, and must start no thread.
        settings: The settings of children.
        environment: Variables of the children in addition to ``PATH`` and ``LANG``.
        max_children: Calls at the same time; further ones wait.
    """

    def __init__(
        self,
        function: str,
        settings: ChildSettings,
        *,
        environment: Mapping[str, str] | None = None,
        max_children: int | None = None,
    ) -> None:
        module, _, self._name = function.partition(":")
        self._libraries = {self._name: {"from": module, "import": self._name}}
        self._python = PythonTool(
            settings,
            environment={**ENVIRONMENT, **(environment or {})},
            max_children=max_children,
            preload=[module],
        )

    async def __call__(
        self, call: ToolCall, arguments: Mapping[str, Any], *, max_result_bytes: int = MAX_RESULT_BYTES
    ) -> Any:
        """Calls the function for the task of ``call`` and returns its result.

        Raises:
            ToolFailure: as of :meth:`PythonTool.run`, or as the function said.
        """
        inputs = {"code": f"return {self._name}(**args)", "args": dict(arguments), "libs": self._libraries}
        knobs = {"max_result_bytes": max_result_bytes}
        return (await self._python.run(replace(call, inputs=inputs, knobs=knobs))).result

    async def close(self) -> None:
        """Kills the child processes."""
        await self._python.close()
