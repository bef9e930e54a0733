"""A scenario's journal as Postgres would keep it, explained."""

from __future__ import annotations

from typing import Any

from noetl_stream.client.why.answer import explain
from noetl_stream.client.why.reason import Environment
from noetl_stream.model import codec
from noetl_stream.model.ids import report_id
from noetl_stream.ports.operations.cluster import PartitionDocument, WorkerDocument
from noetl_stream.ports.operations.executions import ReasonDocument, WhyDocument
from noetl_stream.ports.store import StoredEvent
from noetl_stream.testing.scenario.scenario import Scenario
from noetl_stream.testing.scenario.scripted_run import WORKER as RUNNER

WORKER = WorkerDocument(
    name=RUNNER, pool="default", slots=4, busy=1, since="", kinds=[], draining=False, version="1", running=[]
)
SERVED = PartitionDocument(partition=7, owner="server", epoch=1, live=True, folded=0, behind=0)

HEAD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: why, path: tests/why}
"""


def stored(scenario: Scenario) -> list[StoredEvent]:
    """Its journal, as rows."""
    rows = []
    for position, (recorded, decided) in enumerate(scenario.journal, start=1):
        fact, run = recorded.fact, recorded.run
        source = "worker" if run is not None else "server" if decided else "client"
        report = report_id(run, 1) if run is not None else None
        number = recorded.number if run is not None else None
        at_ms = recorded.at_ms or scenario.now_ms
        data = codec.encode(fact)
        step_run_id = _step_run(scenario, run.command_id) if run is not None else None
        rows.append(
            StoredEvent(
                position=position,
                name="",
                source=source,
                at_ms=at_ms,
                step_run_id=step_run_id,
                report_id=report,
                number=number,
                data=data,
            )
        )
    return rows


def why(scenario: Scenario, **around: Any) -> WhyDocument:
    """The answer, with one worker alive unless ``around`` says otherwise."""
    given = {"workers": [WORKER], "partition": SERVED, **around}
    return explain(scenario.execution_id, stored(scenario), scenario.plan, Environment(scenario.now_ms, **given))


def reasons(scenario: Scenario, **around: Any) -> dict[str, ReasonDocument]:
    """The reasons of the answer by kind."""
    return {reason.kind: reason for reason in why(scenario, **around).reasons}


def _step_run(scenario: Scenario, command_id: str) -> str:
    for entry in scenario.journal:
        fact: Any = entry.recorded.fact
        if getattr(fact, "command_id", None) == command_id:
            found: str = fact.step_run_id
            return found
    return ""
