"""Makes calls of tools, for the tests of a kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import Timeouts
from noetl_stream.tools.contract import ToolCall, ToolFailure


def tool_call(
    inputs: Mapping[str, Any],
    *,
    knobs: Mapping[str, Any] | None = None,
    timeouts: Timeouts | None = None,
    scope: Mapping[str, Any] | None = None,
    credentials: Mapping[str, str | dict[str, Any]] | None = None,
    trust_domain: str = "",
    execution_id: str = "execution-1",
    traceparent: str = "",
) -> ToolCall:
    """Makes the call of the first attempt of a task ``task`` in a step ``step``, as a worker would.

    Args:
        credentials: The credentials' values by name; any other name is the error ``credential``.
    """

    async def credential(name: str) -> str | dict[str, Any]:
        if name not in (credentials or {}):
            raise ToolFailure(ErrorInfo(kind="credential", message=f"no credential {name!r}"))
        return (credentials or {})[name]

    return ToolCall(
        inputs=inputs,
        knobs=knobs or {},
        timeouts=timeouts or Timeouts(),
        idempotency_key="key-1",
        execution_id=execution_id,
        step="step",
        task="task",
        attempt=1,
        trust_domain=trust_domain,
        scope=scope if scope is not None else {"workload": {}, "ctx": {}, "iter": {}, "execution_id": "execution-1"},
        credential=credential,
        traceparent=traceparent,
    )
