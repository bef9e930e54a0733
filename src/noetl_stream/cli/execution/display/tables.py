"""Executions for people: in a table, in full, and with the reasons for their waits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import astuple

from noetl_stream.cli.base.output import (
    DOCUMENTS,
    Columns,
    Fields,
    cell_text,
    print_documents,
    print_result,
    print_table,
    say,
)
from noetl_stream.durations import duration_text
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.ports.operations.verbs import plain

if TYPE_CHECKING:  # shown documents are loaded already
    from noetl_stream.ports.operations import executions as documents
    from noetl_stream.ports.operations.reading.views import ExecutionStateDocument
    from noetl_stream.ports.operations.waits import WaitDocument

COLUMNS: Final[Columns] = {
    "execution": "execution_id",
    "status": "status",
    "path": "path",
    "version": "version",
    "started": "started",
    "duration": lambda one: duration_text(one.duration_s),
}
LISTED: Final = ("execution_id", "status", "path", "version", "started", "duration_s")
WAITS_SHOWN: Final = 20
WITH_STATUS: Final = frozenset({"tolerated"})
"""Kinds of warnings that are part of an execution's end."""


def print_executions(found: Sequence[documents.ListedExecutionDocument], output: str) -> None:
    """Prints a list. Documents begin with the members that tables show."""
    shown: Sequence[Fields] = found
    if output in DOCUMENTS:
        members = [plain(one) for one in found]
        shown = [{key: one[key] for key in dict.fromkeys((*LISTED, *one))} for one in members]
    print_documents(shown, output, COLUMNS, "execution_id")


def print_execution(found: documents.ExecutionDocument) -> None:
    """Prints an execution in full."""
    said = {"status": _status(found), "duration": duration_text(found.duration_s)}
    for key in ("execution_id", "path", "status", "duration", "rerun_of", "discarded_tokens", "error"):
        if value := said[key] if key in said else getattr(found, key):
            say(f"{key}: {_words(value)}")
    if found.status == "failed":
        say(f"cause: run `noetl-stream execution why {found.execution_id}`")
    if found.key is not None:
        say(f"key: {found.key}")
    if found.labels:
        say("labels: " + " ".join(f"{name}={cell_text(value)}" for name, value in found.labels.items()))
    if found.due is not None:
        say(f"due: {found.due}")
    if found.origin is not None and found.origin.kind != "client":
        say(f"started: by {_starter(found.origin)}")
    for token in found.discarded or ():
        say(f"token for {token.step} discarded: {token.reason}")
    _print_warnings([one for one in found.warnings or () if one.kind not in WITH_STATUS], err=False)
    if found.steps is None:
        say(f"steps: too many to show here; run `noetl-stream execution steps {found.execution_id}`")
    else:
        columns = ("step", "runs", "status", "duration", "retries")
        steps = ((one.step, one.runs, one.status, duration_text(one.duration_s), one.retries) for one in found.steps)
        print_table(columns, [*steps])
    waits = found.waits or []
    for wait in waits[:WAITS_SHOWN]:
        say(_waiting(wait))
    if len(waits) > WAITS_SHOWN:
        say(f"… and {len(waits) - WAITS_SHOWN} more waits")
    if found.workload:
        _print_inputs(found.execution_id, found.workload)
    if found.ctx:
        say(f"ctx, version {found.ctx_version}:")
        print_result(found.ctx)
    if found.result is not None:
        say("result:")
        print_result(found.result)


def _starter(origin: documents.OriginDocument) -> str:
    if origin.path is not None:
        return f"{origin.kind} {origin.path}, number {origin.number} of its history"
    return f"a {origin.kind} of {origin.execution_id}" if origin.kind == "rerun" else f"execution {origin.execution_id}"


def _print_inputs(execution_id: str, workload: dict[str, Any]) -> None:
    if workload.keys() == {"$large"}:
        size = workload["$large"]["size"]
        say(
            f"inputs: {size} bytes; run `noetl-stream execution events {execution_id} --name execution.started -o json`"
        )
    else:
        say("inputs:")
        print_result(workload)


def print_state(found: ExecutionStateDocument) -> None:
    """Prints a state: its tokens by step and place, then the values that templates read."""
    say(f"status: {found.status}, after event {found.position} of {found.last}, {found.at}")
    if found.error is not None:
        say(f"error: {_words(found.error)}")
    print_table(
        ("step", "place", "count"), [(one.step, *place) for one in found.places for place in one.places.items()]
    )
    if found.steps:
        columns = ("step", "waiting", "running", "done", "failed", "cancelled", "reused")
        print_table(columns, [astuple(step) for step in found.steps])
    if found.ctx:
        say(f"ctx, version {found.ctx_version}:")
        print_result(found.ctx)
    if found.results:
        say("results:")
        print_result({one.step: one.result if one.error is None else _words(one.error) for one in found.results})


def print_begun(found: documents.ExecutionDocument) -> None:
    """Prints the :func:`warnings_at_start` of an execution to stderr."""
    if found.already:
        say(f"execution {found.execution_id} has the key {found.key} already: nothing was started", err=True)
    _print_warnings(warnings_at_start(found), err=True)


def warnings_at_start(found: documents.ExecutionDocument) -> list[documents.WarningDocument]:
    """The warnings of an execution that has just started. Those of its tasks are printed at its end."""
    return [one for one in found.warnings or () if not one.step and one.kind not in WITH_STATUS]


def _print_warnings(warnings: Iterable[documents.WarningDocument], *, err: bool) -> None:
    for warning in warnings:
        say(f"warning: {warning.message}", err=err)


def print_ended(
    found: documents.ExecutionDocument,
    *,
    has_said_error: bool = False,
    warned: Collection[documents.WarningDocument] = (),
) -> None:
    """Prints the result of an ended execution to stdout, and its end to stderr.

    Args:
        has_said_error: Whether stderr has its error already.
        warned: The warnings that were printed at its start (:func:`print_begun`). They are not repeated.
    """
    if found.result is not None:
        print_result(found.result)
    if discarded := found.discarded_tokens:
        say(f"{discarded} token{'' if discarded == 1 else 's'} discarded at the end", err=True)
    left = [one for one in found.warnings or () if one.kind not in WITH_STATUS and one not in warned]
    _print_warnings(left, err=True)
    if (error := found.error) is not None and not has_said_error:
        target = f" in task {error.task}" if error.task else ""
        say(f"{error.kind}{target}: {error.message}", err=True)
    runs = sum(step.runs for step in found.steps or ())
    counted = f", {runs} step run{'' if runs == 1 else 's'}" if runs else ""
    status = _status(found)
    comma = "," if status != found.status else ""
    say(f"{status}{comma} in {duration_text(found.duration_s)}{counted} ({found.execution_id})", err=True)


def _status(found: documents.ExecutionDocument) -> str:
    """``completed``, ``completed, 4 of 200 iterations of fetch failed``, or ``cancelled, undone: charge, reserve``."""
    said = [one.message for one in found.warnings or () if one.kind in WITH_STATUS]
    undone = list(dict.fromkeys(one.step for one in found.compensations if one.undone))
    return ", ".join([found.status, *said, *([f"undone: {', '.join(undone)}"] if undone else [])])


def _waiting(wait: WaitDocument) -> str:
    target = [wait.step, *map(str, wait.iteration), *([wait.task] if wait.task else [])]
    until = f", until {wait.until}" if wait.until else ""
    return f"{'.'.join(target)} waits for {wait.what}{until}"


def _words(value: Any) -> str:
    return f"{value.kind}: {value.message}" if isinstance(value, ErrorInfo) else str(value)


def print_why(found: documents.WhyDocument) -> None:
    """Prints the summary, then each reason: since when, and what would move the execution."""
    if [found.summary] != [reason.sentence for reason in found.reasons]:
        say(found.summary)
    for reason in found.reasons:
        say(f"- {reason.sentence}{_since(reason)}")
        if reason.moves:
            say(f"  → {reason.moves}")
    if found.more:
        say(f"… and {found.more} more")
    for number, cause in enumerate(found.causes):
        say(f"{'caused by' if number else 'failed'}: {_failure(cause)}")
    if found.causes and (traceback := found.causes[-1].traceback):
        say(traceback.rstrip())


def _failure(one: documents.FailureDocument) -> str:
    """``team/report 019a… at fetch[3].get, attempt 4 of 10: http_status: 503``."""
    place = (one.step or "") + "".join(f"[{index}]" for index in one.iteration) + (f".{one.task}" if one.task else "")
    most = f" of {one.attempts}" if one.attempts else ""
    attempt = f", attempt {one.attempt}{most}" if one.attempt else ""
    error = f": {_words(one.error)}" if one.error is not None else ""
    return f"{one.path} {one.execution_id}{f' at {place}' if place else ''}{attempt}{error}"


def _since(reason: documents.ReasonDocument) -> str:
    times = [f"{word} {time}" for word, time in (("since", reason.since), ("until", reason.until)) if time]
    return f" ({', '.join(times)})" if times else ""
