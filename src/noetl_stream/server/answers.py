"""Questions any server answers from Postgres and its caches: requests, playbooks, gathered results (PROTOCOL §4)."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from noetl_stream.errors import NoetlError
from noetl_stream.model import codec
from noetl_stream.model.events import LoopIterationDone, TaskProcessed
from noetl_stream.model.reference import Payload, Reference
from noetl_stream.ports import subjects
from noetl_stream.ports.blobs import Blobs
from noetl_stream.ports.bus import Bus, Subscription
from noetl_stream.ports.store import Store, StoredEvent
from noetl_stream.server.plans import Plans

log = logging.getLogger(__name__)
GROUP = "noetl-servers"


class Answers:
    """Listens in one queue group with all servers; each question is answered by one of them."""

    def __init__(self, bus: Bus, store: Store, blobs: Blobs, plans: Plans, owner: str) -> None:
        self._bus = bus
        self._store = store
        self._blobs = blobs
        self._plans = plans
        self._owner = owner
        self._subscriptions: list[Subscription] = []

    async def open(self) -> None:
        """Begins to answer."""
        for subject, answer in (
            (subjects.PING, self._ping),
            (f"{subjects.ASK_REQUEST}.*.*", self._request),
            (f"{subjects.ASK_PLAYBOOK}.*", self._playbook),
            (f"{subjects.ASK_RESULT}.*.*", self._result),
        ):
            self._subscriptions.append(await self._bus.listen(subject, self._answering(answer), GROUP))

    async def close(self) -> None:
        for subscription in self._subscriptions:
            await subscription.close()

    def _answering(self, answer: Callable[[list[str]], Awaitable[Any]]) -> Callable[[str, bytes, str], Awaitable[None]]:
        async def handle(subject: str, body: bytes, reply: str) -> None:
            if not reply:
                return
            try:
                found = await answer(subject.split(".")[3:])
            except NoetlError as error:
                log.warning("cannot answer %s: %s", subject, error)
                found = None
            self._bus.send(reply, codec.encode(found))

        return handle

    async def _ping(self, names: list[str]) -> dict[str, Any]:
        return {"server": self._owner}

    async def _request(self, names: list[str]) -> dict[str, Any]:
        execution_id, request_id = names
        row = await self._store.request(execution_id, request_id)
        if row is None:
            return {"known": False}
        return {"known": True, "answer": codec.decode_json(row.answer), "position": row.position}

    async def _playbook(self, names: list[str]) -> dict[str, Any]:
        known = await self._plans.load(names[0])
        if known.row is None:
            return {"known": False}
        return {"known": True, "source": known.row.source, "path": known.row.path}

    async def _result(self, names: list[str]) -> Any:
        execution_id, step_run_id = names
        data = await gather_iterations(self._store, self._blobs, execution_id, step_run_id)
        reference = Reference(
            "nats", f"{execution_id}/{step_run_id}/loop", len(data), "sha256:" + hashlib.sha256(data).hexdigest()
        )
        await self._blobs.put(reference.key, data)
        return reference


async def gather_iterations(store: Store, blobs: Blobs, execution_id: str, step_run_id: str) -> bytes:
    """A loop's result from the journal: JSON of the list of iteration results in index order (LANGUAGE §6)."""
    last: dict[int, Payload] = {}
    found: dict[int, Payload] = {}
    count = 0
    for row in await store.iteration_results(execution_id, step_run_id):
        index, fact = _iteration(row)
        if index is None:
            continue
        count = max(count, index + 1)
        if isinstance(fact, TaskProcessed):
            last[index] = fact.outcome.result
        elif isinstance(fact, LoopIterationDone):
            found[index] = last.get(index, Payload())
    parts = []
    for index in range(count):
        payload = found.get(index, Payload())
        parts.append(await blobs.get(payload.reference.key) if payload.reference else bytes(payload.value))
    return b"[" + b",".join(parts) + b"]"


def _iteration(row: StoredEvent) -> tuple[int | None, Any]:
    fact = codec.decode_fact(row.data)
    path = getattr(fact, "path", ())
    return (path[0] if path else None), fact
