"""Tasks that hold no worker while they last: ``kind: wait`` and ``kind: playbook`` (LANGUAGE §8, §12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetl_stream.model.events import ChildCall, Path, Wait
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.kinds.spec import PlaybookInputs, WaitInputs
from noetl_stream.playbook.plan import TaskPlan
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.inputs import validated
from noetl_stream.worker.catalog_client import PlaybookUnknown
from noetl_stream.worker.dependencies import Dependencies

SUSPENDING_KINDS: Final = frozenset({"wait", "playbook"})
"""The language's own kinds that a worker meets: no tool runs them."""


async def begin_wait(task: TaskPlan, inputs: Mapping[str, Any], path: Path, dependencies: Dependencies) -> Wait:
    """What the pipeline of iteration ``path`` has to wait for.

    Args:
        inputs: Rendered.

    Raises:
        ToolFailure: the inputs cannot be used, there is no such playbook, or the task's timeout ends before the wait.
    """
    if task.kind == "playbook":
        return await _call(task, validated(PlaybookInputs, inputs), path, dependencies)
    return _wait(task, validated(WaitInputs, inputs), path, dependencies.clock.now_ms())


async def _call(task: TaskPlan, inputs: PlaybookInputs, path: Path, dependencies: Dependencies) -> Wait:
    try:
        pinned = await dependencies.catalog.resolve(inputs.path, inputs.version)
    except PlaybookUnknown as error:
        raise ToolFailure(ErrorInfo("invalid_playbook", str(error))) from error
    call = ChildCall(pinned.digest, pinned.path, pinned.version, inputs.args or {}, inputs.return_step)
    return Wait(path, task.name, child=call, timeout_s=task.timeouts.total)


def _wait(task: TaskPlan, inputs: WaitInputs, path: Path, now_ms: int) -> Wait:
    total_s = task.timeouts.total
    if inputs.signal is not None:
        bounds = [seconds for seconds in (inputs.timeout_s, total_s) if seconds is not None]
        return Wait(path, task.name, signal=inputs.signal, timeout_s=min(bounds))
    until_ms = inputs.until_ms
    left_s = inputs.for_s if until_ms is None else (until_ms - now_ms) / 1000
    if total_s is not None and left_s is not None and left_s > total_s:
        message = f"task {task.name} would wait {left_s:g} s, longer than its timeout of {total_s:g} s"
        raise ToolFailure(ErrorInfo("timeout", message))
    return Wait(path, task.name, for_s=inputs.for_s, until_ms=until_ms)
