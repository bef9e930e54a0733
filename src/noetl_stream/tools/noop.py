"""``kind: noop``: does nothing and returns its ``args`` (LANGUAGE §9)."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.tools.contract import ToolCall, ToolResult
from noetl_stream.tools.inputs import Inputs, Knobs, validated


class NoopInputs(Inputs):
    """Inputs of ``noop``."""

    args: dict[str, Any] | None = Field(
        default=None, description="A mapping of any values, returned as the task's result."
    )


class NoopKnobs(Knobs):
    """``noop`` has no knobs."""


class NoopTool:
    """Does nothing, for tasks that only need a policy: routing, ``set_*``, a jump target."""

    spec = KindSpec(kind="noop", inputs=NoopInputs, knobs=NoopKnobs)

    async def run(self, call: ToolCall) -> ToolResult:
        """Returns ``args``, or ``{}`` without it.

        Raises:
            ToolFailure: kind ``invalid_input``.
        """
        return ToolResult(validated(NoopInputs, call.inputs).args or {})

    async def close(self) -> None:
        """Nothing to release."""
