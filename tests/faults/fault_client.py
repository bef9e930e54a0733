"""Clients of a storm: they call the gateway, and note in a history what they asked and were answered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

from fault_work import CANCELLED, SIGNAL, Job
from msgspec import to_builtins

from noetl_stream.adapters.gateway_client.connection import GatewayConnection, GatewayRequest
from noetl_stream.errors import NoetlError, OutcomeUnknown, Unreachable
from noetl_stream.ports.operations.executions import AcceptedDocument, ExecutionDocument
from noetl_stream.ports.operations.problems import PROBLEMS
from noetl_stream.ports.operations.reading.events import EventPage
from noetl_stream.ports.operations.verbs import Document
from noetl_testkit.history.check import LAST
from noetl_testkit.history.recorder import Recorder

ASK_AGAIN_S: Final = 0.2
FIELDS: Final = ("position", "name", "step", "step_run_id", "task", "iteration", "attempt", "data")
ONCE: Final = frozenset({"task.processed", "step.done", "loop.done"})
"""Events of which each stands once in the books: no job visits a task twice."""

Answer = TypeVar("Answer")
Shown = TypeVar("Shown", bound=Document)


class RecordedClient:
    """Calls a gateway, each time as the client whose name the running task has."""

    def __init__(self, gateway: GatewayConnection, history: Recorder) -> None:
        self._gateway = gateway
        self._history = history
        self._readers = count(1)

    async def start(self, job: Job, ledger: str, key: str, *, is_judged: bool) -> ExecutionDocument | None:
        """Starts the job, whose tasks write to this address; ``None``: it was refused, or no answer came."""
        expects: dict[str, Any] = {
            "status": job.status,
            "result": job.result,
            "effects": job.effects,
            "after": job.after,
        }
        expects["unless"] = ["objects deleted"] if job.name in ("large", "wide") else []
        body = {"playbook": job.source, "workload": {"ledger": ledger}}
        asked = GatewayRequest("POST", ("executions",), body=body, key=key)
        judged = {"wanted": job.name, "expects": expects if is_judged else {"end": "any"}}
        return await self._call("start", asked, ExecutionDocument, **judged)

    async def change(
        self, verb: str, execution_id: str, key: str, *parts: str, values: Mapping[str, Any] | None = None
    ) -> AcceptedDocument | None:
        """Asks for a change: of ``ctx`` if there are ``values``. The event carries the key as its correlation id."""
        method = "POST" if values is None else "PATCH"
        at = ("executions", execution_id, verb, *parts)
        asked = GatewayRequest(method, at, body=values, key=key, headers={"X-Correlation-Id": key})
        return await self._call(verb, asked, AcceptedDocument, execution=execution_id, values=values)

    async def read(self, execution_id: str) -> ExecutionDocument | None:
        asked = GatewayRequest("GET", ("executions", execution_id))
        return await self._call("read", asked, ExecutionDocument, execution=execution_id)

    async def read_events(self, execution_id: str) -> None:
        """Reads the events of an execution from the first on, page by page, up to the last one that is there.

        Raises:
            NoetlError: as of the connection.
        """
        reader, after, more = f"reader {next(self._readers)}", 0, True
        while more:
            query = [("after", str(after)), *(("field", name) for name in FIELDS)]
            asked = GatewayRequest("GET", ("executions", execution_id, "events"), query)
            page = await self._gateway.ask(asked, EventPage)
            for event in (to_builtins(one) for one in page.items):
                named = event["name"]
                once = [event[name] for name in ("step_run_id", "task", "iteration", "attempt")]
                told = {"position": event["position"], "event": named, "step": event["step"]}
                mark = event["data"].get("correlation_id") or None
                of = " ".join(map(str, once)) if named in ONCE else None
                self._history.note("fed", reader=reader, execution=execution_id, **told, of=of, mark=mark)
                after, more = event["position"], named != LAST
            more = more and page.next is not None

    async def _call(self, verb: str, asked: GatewayRequest, kind: type[Shown], **shown: Any) -> Shown | None:
        task = asyncio.current_task()
        assert task is not None
        call = self._history.asked(task.get_name(), verb, key=asked.key, **shown)
        try:
            answer = await self._gateway.ask(asked, kind)
        except NoetlError as error:
            status = _status_of(error)
            self._history.answered(call, "refused" if 400 <= status < 500 else "unknown", status=status)
            return None
        self._history.answered(call, "accepted", to_builtins(answer))
        return answer


def _status_of(error: NoetlError) -> int:
    """The status behind an error of the connection; 503 if there was no answer."""
    if isinstance(error, Unreachable | OutcomeUnknown):
        return 503
    return next((kind.status for kind in PROBLEMS if isinstance(error, kind.error)), 503)


async def insist(ask: Callable[[], Awaitable[Answer | None]]) -> Answer:
    """Asks until the answer is there."""
    while True:
        if (answer := await ask()) is not None:
            return answer
        await asyncio.sleep(ASK_AGAIN_S)


async def visit(client: RecordedClient, execution_id: str, job: Job, key: str, *, is_patched: bool) -> None:
    """What clients do with an execution while it runs: two patch its ``ctx`` and read, others do what its job needs."""
    async with asyncio.TaskGroup() as group:
        for name in (f"{key}-one", f"{key}-two") if is_patched else ():
            group.create_task(_patch_and_read(client, execution_id, name), name=name)
        if job.name == "told":
            signal = partial(client.change, "signals", execution_id, f"{key}-signal", SIGNAL)
            group.create_task(insist(signal), name=f"{key}-signal")
        if job is CANCELLED:
            group.create_task(insist(partial(client.change, "cancel", execution_id, f"{key}-cancel")))


async def _patch_and_read(client: RecordedClient, execution_id: str, name: str) -> None:
    """Whatever the answers are: a patch may be refused, or its answer be lost. Each changes two keys, of which other
    patches change one as well.
    """
    for number, keys in enumerate(("ab", "bc")):
        values = dict.fromkeys(keys, f"{name}-{number}")
        await client.change("ctx", execution_id, f"{name}-{number}", values=values)
        await client.read(execution_id)
    with contextlib.suppress(NoetlError):
        await client.read_events(execution_id)


async def audit(client: RecordedClient, execution_id: str, *, events: bool) -> None:
    """Reads an execution once nothing fails any more, with its events if they are to be compared as well."""
    await insist(partial(client.read, execution_id))
    if events:
        await client.read_events(execution_id)
