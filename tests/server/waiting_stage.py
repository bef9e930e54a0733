"""Playbooks that wait, and helpers to inspect what they wait for."""

from __future__ import annotations

from typing import Any

from server_stage import Stage

from noetl_stream.model.events import InterventionFact, SignalReceived
from noetl_stream.model.ids import partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import Request
from noetl_stream.ports.stores.store import ExecutionRow
from noetl_testkit.keys import SIGNER
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.work import playbook, work

EXECUTION = "execution-1"
SIGNAL = "go"
_LIMITS = {"max_ctx_bytes": 2000, "max_queued_signals": 3}
_HELD = {
    "policy": {
        "admit": {
            "rules": [{"when": "{{ ctx.open | default(false) }}", "then": {"allow": True}}],
            "wait": {"timeout_s": 3000},
        }
    }
}
_STEPS: list[dict[str, Any]] = [
    {"step": "gate", "spec": _HELD, "tool": work("{{ ctx }}")},
    {"step": "aside", "tool": work("{{ args }}"), "next": {"arcs": []}},
]
GATE = playbook("gate", _STEPS, executor={"spec": {"policy": {"limits": _LIMITS}}})
"""The first step is held until a patch admits it; only injected tokens reach the second."""


def hear(timeout_s: float = 3000, **more: Any) -> dict[str, Any]:
    """A task that waits for the signal :data:`SIGNAL`."""
    return {"name": "hear", "kind": "wait", "signal": SIGNAL, "timeout_s": timeout_s, **more}


def rest(for_s: float) -> dict[str, Any]:
    """A task that waits ``for_s`` seconds."""
    return {"name": "rest", "kind": "wait", "for_s": for_s}


def before_and_after(waiting: dict[str, Any], **more: Any) -> str:
    """Work, a wait, work that reads the first one's result."""
    tasks = [{"name": "before", **work("kept")}, waiting, {"name": "after", **work("{{ before }}")}]
    return playbook("waits", [{"step": "patient", "tool": tasks}], **more)


def signal(number: int = 0, payload: Any = None) -> SignalReceived:
    return SignalReceived(f"signal-{number}", signal=SIGNAL, payload=payload)


def id_in(partition: int) -> str:
    """An execution id of this partition."""
    return next(one for n in range(10_000) if partition_of(one := f"execution-{n}") == partition)


def result_of(row: ExecutionRow) -> Any:
    return codec.decode_json(codec.decode_payload(row.result).value) if row.result is not None else None


def error_of(row: ExecutionRow) -> dict[str, Any]:
    assert row.error is not None
    error: dict[str, Any] = codec.decode_json(row.error)
    return error


async def is_waiting(stage: Stage, execution_id: str) -> ExecutionRow:
    """The execution's row, once it waits."""
    rows = stage.tables.executions
    await stage.until(lambda: execution_id in rows and rows[execution_id].status == "waiting")
    return rows[execution_id]


async def seconds_until(stage: Stage, execution_id: str, name: str) -> float:
    """From the first entry of its journal to the first of this name."""
    journal = await stage.journal(execution_id)
    return (next(row.at_ms for row in journal if row.name == name) - journal[0].at_ms) / 1000


async def whole(stage: Stage, execution_id: str) -> list[str]:
    """The event names of the journal, whose positions have no gaps."""
    journal = await stage.journal(execution_id)
    assert [row.position for row in journal] == list(range(1, len(journal) + 1))
    return [row.name for row in journal]


class Dies(FaultInjector):
    """Kills the host at its ``left``-th visit to ``point``."""

    def __init__(self, point: str, left: int = 1) -> None:
        self.point = point
        self.left = left

    async def inject(self, host: SimulatedHost, point: str) -> None:
        if point == self.point:
            self.left -= 1
            if self.left == 0:
                host.kill()


class LostMessages(FaultInjector):
    """Loses the next ``left`` messages on this subject, by default all."""

    def __init__(self, subject: str, left: float = float("inf")) -> None:
        self.subject = subject
        self.left = left

    def loses(self, host: SimulatedHost, what: str) -> bool:
        if what != self.subject or not self.left:
            return False
        self.left -= 1
        return True


async def begin_gate(stage: Stage) -> None:
    """An execution of :data:`GATE` that waits, with a server and a worker."""
    await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", GATE)
    await is_waiting(stage, EXECUTION)


async def publish(stage: Stage, fact: InterventionFact, execution_id: str = EXECUTION) -> None:
    """Publishes a request without waiting for its answer, even if the same was published before."""
    body = SIGNER.encode(Request(execution_id, fact.request_id, fact))
    stage.broker.event_log.forget_message_ids()
    await stage.broker.event_log.publish_request(execution_id, f"{execution_id}.{fact.request_id}", body)


async def answer_row(stage: Stage, request_id: str = "ask", execution_id: str = EXECUTION) -> dict[str, Any]:
    row = await stage.store.real.request(execution_id, request_id)
    assert row is not None
    answer: dict[str, Any] = codec.decode_json(row.answer)
    assert row.position == answer.get("position", 0)
    return answer
