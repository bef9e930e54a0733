"""A client for noetl-stream: ``Client().run("team/report")``."""

from __future__ import annotations

from noetl_stream_client._async.client import AsyncClient
from noetl_stream_client._async.executions import AsyncExecutionHandle
from noetl_stream_client._sync.client import Client
from noetl_stream_client._sync.executions import ExecutionHandle
from noetl_stream_client.errors import (
    ApiError,
    ClientError,
    ConfigurationError,
    ExecutionCancelled,
    ExecutionError,
    ExecutionFailed,
    LocalStackError,
    ResultTooLarge,
    StillRunning,
    UnexpectedAnswer,
)
from noetl_stream_client.problems import (
    Conflict,
    Forbidden,
    NotFound,
    OutcomeUnknown,
    PlaybookRefused,
    TooBusy,
    Unauthenticated,
    Unreachable,
    UsageError,
    VersionMismatch,
)

__all__ = [
    "ApiError",
    "AsyncClient",
    "AsyncExecutionHandle",
    "Client",
    "ClientError",
    "ConfigurationError",
    "Conflict",
    "ExecutionCancelled",
    "ExecutionError",
    "ExecutionFailed",
    "ExecutionHandle",
    "Forbidden",
    "LocalStackError",
    "NotFound",
    "OutcomeUnknown",
    "PlaybookRefused",
    "ResultTooLarge",
    "StillRunning",
    "TooBusy",
    "Unauthenticated",
    "UnexpectedAnswer",
    "Unreachable",
    "UsageError",
    "VersionMismatch",
]
