"""``kind: noop``: does nothing and returns its ``args`` (LANGUAGE §9)."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.tools.contract import ToolCall, ToolResult
from noetl_stream.tools.inputs import Inputs, Knobs, validated


class NoopInputs(Inputs):
    """Inputs of ``noop``."""

    args: dict[str, Any] | None = Field(default=None, description="A mapping of any values; it is the task's result.")


class NoopKnobs(Knobs):
    """``noop`` has no knobs."""


class NoopTool:
    """A task for its policy alone: routing, ``set_*``, a place to jump to."""

    spec = KindSpec(kind="noop", inputs=NoopInputs, knobs=NoopKnobs)

    async def run(self, call: ToolCall) -> ToolResult:
        """Gives ``args`` back; ``{}`` without ``args``.

        Raises:
            ToolFailure: kind ``invalid_input``.
        """
        return ToolResult(validated(NoopInputs, call.inputs).args or {})

    async def close(self) -> None:
        """Holds nothing."""
