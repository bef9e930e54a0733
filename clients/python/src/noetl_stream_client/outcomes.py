"""The results and exceptions of ended executions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl_stream_client.errors import (
    ClientError,
    ExecutionCancelled,
    ExecutionError,
    ExecutionFailed,
    StillRunning,
)
from noetl_stream_client.problems import OutcomeUnknown, TooBusy, Unreachable

if TYPE_CHECKING:
    from noetl_stream_client.documents import Execution, Why

ENDED: Final = ("completed", "failed", "cancelled")
LOST: Final = (Unreachable, OutcomeUnknown, TooBusy)
"""The errors that a wait for an end survives."""

REFERENCE: Final = "$reference"


def reference_of(result: Any) -> dict[str, Any] | None:
    """The reference to a result that is not in the answer."""
    if isinstance(result, dict) and result.keys() == {REFERENCE}:
        found: dict[str, Any] = result[REFERENCE]
        return found
    return None


def ended_badly(found: Execution, why: Why | None) -> ExecutionError:
    """The exception for a failed or cancelled execution."""
    name = f"execution {found.execution_id} of {found.path}"
    if found.status == "cancelled":
        return ExecutionCancelled(f"{name} was cancelled", found, why)
    where = f" at step {found.failed_step}" if found.failed_step else ""
    what = f": {found.error.message}" if found.error is not None else ""
    return ExecutionFailed(f"{name} has failed{where}{what}", found, why)


def still_running(found: Execution, timeout: float | None, why: Why | None) -> StillRunning:
    text = f"execution {found.execution_id} of {found.path} is {found.status} after {timeout:g} s"
    return StillRunning(text, found, why, hint="it goes on: ask for its result again, or cancel it")


def out_of_time(execution_id: str, timeout: float | None, error: ClientError) -> TimeoutError:
    """The exception for a timeout that ends while no gateway answers."""
    return TimeoutError(f"nothing is known of execution {execution_id} after {timeout:g} s: {error}")
