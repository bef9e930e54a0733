"""A client for noetl-stream: ``Client().run("team/report")``.

What is imported from here is loaded then, so that a function that runs as a task does not load a client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noetl_stream_client._async.client import AsyncClient as AsyncClient
    from noetl_stream_client._async.executions import AsyncExecutionHandle as AsyncExecutionHandle
    from noetl_stream_client._sync.client import Client as Client
    from noetl_stream_client._sync.executions import ExecutionHandle as ExecutionHandle
    from noetl_stream_client.errors import ApiError as ApiError
    from noetl_stream_client.errors import ClientError as ClientError
    from noetl_stream_client.errors import ConfigurationError as ConfigurationError
    from noetl_stream_client.errors import ExecutionCancelled as ExecutionCancelled
    from noetl_stream_client.errors import ExecutionError as ExecutionError
    from noetl_stream_client.errors import ExecutionFailed as ExecutionFailed
    from noetl_stream_client.errors import LocalStackError as LocalStackError
    from noetl_stream_client.errors import ResultTooLarge as ResultTooLarge
    from noetl_stream_client.errors import StillRunning as StillRunning
    from noetl_stream_client.errors import UnexpectedAnswer as UnexpectedAnswer
    from noetl_stream_client.problems import Conflict as Conflict
    from noetl_stream_client.problems import Forbidden as Forbidden
    from noetl_stream_client.problems import NotFound as NotFound
    from noetl_stream_client.problems import OutcomeUnknown as OutcomeUnknown
    from noetl_stream_client.problems import PlaybookRefused as PlaybookRefused
    from noetl_stream_client.problems import TooBusy as TooBusy
    from noetl_stream_client.problems import Unauthenticated as Unauthenticated
    from noetl_stream_client.problems import Unreachable as Unreachable
    from noetl_stream_client.problems import UsageError as UsageError
    from noetl_stream_client.problems import VersionMismatch as VersionMismatch
    from noetl_stream_client.tasks import Context as Context
    from noetl_stream_client.tasks import Fatal as Fatal
    from noetl_stream_client.tasks import Retryable as Retryable

_NAMES = {
    "_async.client": ("AsyncClient",),
    "_async.executions": ("AsyncExecutionHandle",),
    "_sync.client": ("Client",),
    "_sync.executions": ("ExecutionHandle",),
    "errors": (
        "ApiError",
        "ClientError",
        "ConfigurationError",
        "ExecutionCancelled",
        "ExecutionError",
        "ExecutionFailed",
        "LocalStackError",
        "ResultTooLarge",
        "StillRunning",
        "UnexpectedAnswer",
    ),
    "problems": (
        "Conflict",
        "Forbidden",
        "NotFound",
        "OutcomeUnknown",
        "PlaybookRefused",
        "TooBusy",
        "Unauthenticated",
        "Unreachable",
        "UsageError",
        "VersionMismatch",
    ),
    "tasks": ("Context", "Fatal", "Retryable"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [*_MODULES]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found
