"""A scenario's journal as Postgres would keep it, explained."""

from __future__ import annotations

from typing import Any

from noetl_stream.operations.why.answer import explain
from noetl_stream.operations.why.journal import JournalHistory
from noetl_stream.operations.why.reason import Environment
from noetl_stream.ports.operations.cluster import PartitionDocument, WorkerDocument
from noetl_stream.ports.operations.executions import ReasonDocument, WhyDocument
from noetl_stream.ports.operations.waits import WaitingOnDocument
from noetl_testkit.scenario.scenario import Scenario
from noetl_testkit.scenario.scripted_run import WORKER as RUNNER

WORKER = WorkerDocument(
    name=RUNNER, pool="default", slots=4, busy=1, since="", kinds=[], draining=False, version="1", running=[]
)
SERVED = PartitionDocument(partition=7, owner="server", epoch=1, live=True, folded=0, behind=0)

HEAD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: why, path: tests/why}
"""


def history_of(scenario: Scenario) -> JournalHistory:
    history = JournalHistory(scenario.execution_id)
    history.take(scenario.rows())
    return history


def why(scenario: Scenario, **around: Any) -> WhyDocument:
    """The answer, with one worker alive unless ``around`` says otherwise."""
    given = {"workers": [WORKER], "partition": SERVED, **around}
    found = explain(scenario.execution_id, history_of(scenario), scenario.plan, Environment(scenario.now_ms, **given))
    assert all((one.waiting_on is None) == scenario.execution.ended for one in found.reasons if one.kind != "unknown")
    return found


def waiting_on(scenario: Scenario, kind: str, **around: Any) -> WaitingOnDocument:
    """What its reason of this kind waits on."""
    found = reasons(scenario, **around)[kind].waiting_on
    assert found is not None
    return found


def reasons(scenario: Scenario, **around: Any) -> dict[str, ReasonDocument]:
    """The reasons of the answer by kind."""
    return {reason.kind: reason for reason in why(scenario, **around).reasons}
