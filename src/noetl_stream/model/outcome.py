"""The outcome envelope: the result of a tool run (formal specification §5, LANGUAGE §5)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl_stream.model.reference import Payload

ERROR_KINDS: dict[str, str] = {
    "exception": "the Python code raised an exception",
    "syntax": "the Python code, SQL or input text does not parse",
    "invalid_input": "a rendered tool input has the wrong type or is missing",
    "timeout": "the task, or something it waited for, exceeded its timeout",
    "connection": "the remote end could not be reached or closed the connection",
    "http_status": "the response status was 400 or above",
    "sql": "the database rejected a statement",
    "result_not_json": "the result holds something JSON cannot represent",
    "result_too_large": "the result exceeds a limit",
    "output_too_large": "a response was cut off at its limit",
    "credential": "a credential is missing or unusable",
    "crashed": "the child process that ran the code died",
    "exit_status": "the command ended with an exit status other than 0",
    "not_found": "what the task names does not exist on the remote end",
    "conflict": "it was changed by someone else since it was read",
    "refused": "the remote end refused the operation",
    "forbidden_address": "the address is not public, and the operator has not allowed it",
    "not_allowed": "the worker's operator does not allow it",
    "cancelled": "the run was cancelled",
    "expression_error": "a template or guard could not be evaluated",
    "retries_exhausted": "a retry rule matched after its last attempt",
    "policy_fail": "a policy rule failed the task",
    "limit_exceeded": "a named limit of the engine was reached",
    "lease_exhausted": "the command was delivered too often without ending",
    "admission_timeout": "a token exceeded admit.wait at its step's admission",
    "join_unsatisfied": "fewer tokens can still arrive than the join needs",
    "child_failed": "the called playbook failed or was cancelled",
    "result_lost": "a result kept in the object store can no longer be read",
    "rerun_refused": "the rerun does not match its original",
    "invalid_playbook": "the requested playbook is unknown here, or has errors",
    "internal": "a defect in this project",
}
"""Error kinds, stable, with their meanings. A playbook may compare ``outcome.error.kind`` with any of them."""


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a task, a step or an execution failed. ``kind`` is one of :data:`ERROR_KINDS` or a plugin's own."""

    kind: str
    message: str
    retryable: bool = False
    retry_after_s: float | None = None
    task: str | None = None
    index: int | None = None
    code: str | None = None


class Meta(msgspec.Struct, frozen=True, omit_defaults=True):
    """Metadata of one task run. Times are the worker's own, shown but never decided on (PROTOCOL §2)."""

    attempt: int = 1
    started_at: str = ""
    ended_at: str = ""
    duration_s: float = 0.0
    worker: str = ""
    trace_id: str = ""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The envelope of one tool run.

    ``helper`` is the block specific to the task's kind: ``http {status, headers}``, ``pg {code, sqlstate, message}`` or
    ``py {exception_type, traceback}``; templates read it as ``outcome.http`` and so on. ``output`` is captured text.
    """

    status: Literal["ok", "error"]
    result: Payload = Payload()
    error: ErrorInfo | None = None
    meta: Meta = Meta()
    helper: dict[str, Any] = {}
    output: str = ""


class StepValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """What later templates read of a step: its last task's outcome, and every task's (LANGUAGE §2 *Results*)."""

    outcome: Outcome
    results: dict[str, Outcome] = {}
