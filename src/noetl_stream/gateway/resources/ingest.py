"""``POST /api/v1/events``: reports of workers that only speak HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import FailFast, Field

from noetl_stream.engine.evolve.worker_facts import malformed
from noetl_stream.errors import PayloadRefused
from noetl_stream.gateway.http.bodies import Body, RequestModel, pointer_to, validated
from noetl_stream.gateway.http.parameters import Nothing
from noetl_stream.gateway.http.problems import HttpProblem
from noetl_stream.gateway.http.routes import JSON, Answer, Call, Reply, Routes
from noetl_stream.model import codec
from noetl_stream.model.ids import report_id
from noetl_stream.model.messages import FORMAT, Report
from noetl_stream.model.status import ExecutionStatus
from noetl_stream.ports.operations.documents import Document
from noetl_stream.ports.operations.http import API
from noetl_stream.ports.operations.problems import FaultDocument

MOST: Final = 2**31 - 1
Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Count = Annotated[int, Field(ge=0, le=MOST)]

routes = Routes()


class ReportRequest(RequestModel):
    """The next events of one run of a command, numbered from `first`. `number` is the report's own in the run: the same
    report again, under the same number, is stored once.
    """

    type: Literal["report"]
    execution_id: Id
    step_run_id: Annotated[str, Field(min_length=1, max_length=128)]
    command_id: Id
    issue: Annotated[int, Field(ge=1, le=MOST)]
    num_delivered: Annotated[int, Field(ge=1, le=MOST)]
    nonce: Id
    number: Count
    first: Count
    events: Annotated[
        list[dict[str, Any]],
        Field(min_length=1, description="Worker events (`docs/reference/events.md`)."),
        FailFast(),
    ]
    format: Annotated[int, Field(ge=1, le=FORMAT)] = FORMAT


class Reported(Document, frozen=True):
    """``sequence`` is where it stands in EVENTS. Whether it changes anything is for the fold to say: nothing of an
    execution whose ``status`` says that it has ended.
    """

    report_id: str
    sequence: int
    status: ExecutionStatus


def read_report(data: bytes, media: str) -> Report:
    """
    Raises:
        HttpProblem: it is not a report, or has an event that no worker can send.
    """
    validated(ReportRequest, data)
    report = codec.decode_reported(data)
    assert isinstance(report, Report)
    faults = []
    for index, raw in enumerate(report.events):
        try:
            words = malformed(codec.decode_fact(raw))
        except PayloadRefused as error:
            words = error.message
        if words:
            faults.append(FaultDocument(words, pointer=pointer_to(("events", index))))
    if faults:
        raise HttpProblem("invalid-request", "The report has events that no worker can send", faults)
    return report


STORED: Final = {202: Answer("It is stored, and will be folded", Reported)}
REPORT: Final = Body({JSON: ReportRequest}, read_report)
REFUSED: Final = ("not-found", "outcome-unknown")


@routes("POST", f"{API}/events", "reportEvents", "operator", STORED, REPORT, refuses=REFUSED, adds_work=True)
async def report(call: Call[Nothing, Report]) -> Reply:
    """Report what a run of a command has done."""
    if call.caller.paths:
        await call.operations.executions.get(call.body.execution_id)  # not found outside of them
    call.require_all_paths("report for workers")
    stored = await call.ingest.report(call.body)
    return Reply(Reported(report_id(call.body.run, call.body.number), stored.sequence, stored.status), 202)
