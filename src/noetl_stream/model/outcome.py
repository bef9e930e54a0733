"""What a tool run gave: the outcome envelope (formal specification §5, LANGUAGE §5)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl_stream.model.reference import Payload

ERROR_KINDS: dict[str, str] = {
    "exception": "the python code raised",
    "syntax": "the python code, SQL or input text does not parse",
    "invalid_input": "a rendered tool input has the wrong type or is missing",
    "timeout": "the task, or something it waited for, took longer than its timeout",
    "connection": "the other side could not be reached or hung up",
    "http_status": "the answer's status was 400 or above",
    "sql": "the database refused a statement",
    "result_not_json": "the result holds something JSON has no form for",
    "result_too_large": "the result is larger than a limit allows",
    "output_too_large": "an answer was cut off at its cap",
    "credential": "a credential is missing or not usable",
    "crashed": "the child process that ran the code died",
    "exit_status": "the command ended with an exit status other than 0",
    "not_found": "what the task names does not exist on the other side",
    "conflict": "it was changed by somebody else since it was read",
    "refused": "the other side refused to do it",
    "forbidden_address": "the address is not public, and the operator has not opened it",
    "not_allowed": "the operator of the worker does not allow it",
    "cancelled": "the run was told to stop",
    "expression_error": "a template or guard could not be evaluated",
    "retries_exhausted": "a retry rule matched after its last attempt",
    "policy_fail": "a policy rule said fail",
    "limit_exceeded": "a named limit of the engine was reached",
    "lease_exhausted": "the command was delivered too often without an end",
    "admission_timeout": "a token waited at its step's admission longer than admit.wait allows",
    "join_unsatisfied": "fewer tokens can still arrive than the join asks for",
    "child_failed": "the called playbook failed or was cancelled",
    "result_lost": "a result kept in the object store cannot be read any more",
    "rerun_refused": "what a rerun asks for does not fit its original",
    "invalid_playbook": "the requested playbook is unknown here, or has errors",
    "internal": "a defect of this project",
}
"""Stable error kinds and what they say. A playbook may compare ``outcome.error.kind`` with any of them."""


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
    """About one run of a task. Times are the worker's own, shown and never decided on (PROTOCOL §2)."""

    attempt: int = 1
    started_at: str = ""
    ended_at: str = ""
    duration_s: float = 0.0
    worker: str = ""
    trace_id: str = ""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The envelope of one tool run.

    ``helper`` is the block of the task's own kind: ``http {status, headers}``, ``pg {code, sqlstate, message}`` or
    ``py {exception_type, traceback}``; templates read it as ``outcome.http`` and so on. ``output`` is captured text.
    """

    status: Literal["ok", "error"]
    result: Payload = Payload()
    error: ErrorInfo | None = None
    meta: Meta = Meta()
    helper: dict[str, Any] = {}
    output: str = ""


class StepValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """What later templates can read of a step: its last task's outcome, and every task's (LANGUAGE §2 *Results*)."""

    outcome: Outcome
    results: dict[str, Outcome] = {}
