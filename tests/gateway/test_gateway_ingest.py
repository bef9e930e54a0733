"""Reports over HTTP: a step is run by a worker that speaks nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from gateway_stage import GatewayStage
from openapi_checks import Described

from noetl_stream.model import codec
from noetl_stream.model.messages import StepCommand

ELSEWHERE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: elsewhere, path: tests/elsewhere}
workflow:
  - step: start
    spec: {pool: elsewhere}
    tool: {kind: noop}
"""


def report_of(command: StepCommand, **changes: Any) -> dict[str, Any]:
    """What a worker says that has run the command and got 42."""
    done = {"name": "task.processed", "task": "start", "attempt": 1, "do": "continue"}
    return {
        "type": "report",
        "execution_id": command.execution_id,
        "step_run_id": command.step_run_id,
        "command_id": command.command_id,
        "issue": 1,
        "num_delivered": 1,
        "nonce": "hand-1",
        "number": 0,
        "first": 0,
        "capability": command.capability,
        "events": [
            {"name": "step.started", "worker": "by-hand"},
            done | {"outcome": {"status": "ok", "result": {"value": 42}}},
            {"name": "step.done", "step_run_id": command.step_run_id},
        ],
    } | changes


async def taken(stage: GatewayStage, api: Described) -> StepCommand:
    """The command of an execution whose only worker is the test."""
    assert (await api.call("startExecution", body={"playbook": ELSEWHERE})).status == 202
    source = await stage.broker.command_queue.open_source("elsewhere")
    source.request(1)
    return codec.decode_command((await source.next()).body)


async def test_a_step_is_run_by_reports_over_http(stage: GatewayStage, api: Described) -> None:
    command = await taken(stage, api)
    first = await api.call("reportEvents", body=report_of(command))
    assert (first.status, first.body["status"]) == (202, "running")
    ended = await api.call("getExecution", execution_id=command.execution_id, query={"wait": "20s"})
    assert (ended.body["status"], ended.body["result"]) == ("completed", 42)
    again = await api.call("reportEvents", body=report_of(command))
    assert again.body == {**first.body, "status": "completed"}, "it is stored once"


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"name": "nothing.happened"}, "cannot read"),
        ({"name": "execution.resume_requested", "request_id": "request-1"}, "cannot be reported by a worker"),
        ({"name": "task.started", "task": "start", "path": [-1]}, "has an invalid path"),
    ],
)
async def test_a_report_no_worker_can_send_is_refused_by_its_pointer(
    stage: GatewayStage, api: Described, event: dict[str, Any], words: str
) -> None:
    command = await taken(stage, api)
    started = {"name": "step.started", "worker": "by-hand"}
    refused = await api.call("reportEvents", body=report_of(command, events=[started, event]))
    assert refused.status == 400
    [fault] = refused.body["errors"]
    assert fault["pointer"] == "/events/1"
    assert words in fault["detail"]


async def test_a_report_of_nothing_known_is_refused(stage: GatewayStage, api: Described) -> None:
    command = await taken(stage, api)
    assert (await api.call("reportEvents", body=report_of(command, execution_id="execution-0"))).status == 404
    refused = await api.call("reportEvents", body=report_of(command, nonce="a.b", number=-1))
    assert [fault["pointer"] for fault in refused.body["errors"]] == ["/nonce", "/number"]
