"""The senders of a simulation: they register triggers, send them events, change them, and persist until they have an
answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.errors import NoetlError
from noetl_stream.model.aggregates import (
    EventReceived,
    RequestedFact,
    TriggerDeleted,
    TriggerPaused,
    TriggerRegistered,
    TriggerResumed,
    TriggerTerms,
    aggregate_id,
)
from noetl_stream.model.ids import derive
from noetl_stream.model.json import codec
from noetl_stream.operations.executions.submit import RequestRefused, Requests, ask_aggregate
from noetl_stream.ports.stores.identities import TokenRights
from noetl_stream.ports.stores.store import Store
from noetl_testkit.keys import SIGNER
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.simulation.story import TriggerAct

RETRY_S: Final = 0.5


class SimulatedRights:
    """:class:`~noetl_stream.ports.stores.identities.Rights`: every token is an operator's, unless it is revoked. Each
    trigger has a token of its own, with the name of its path.
    """

    def __init__(self) -> None:
        self.revoked: set[str] = set()

    async def of(self, names: Collection[str], now_ms: int) -> dict[str, TokenRights]:
        return {name: TokenRights("operator") for name in names if name not in self.revoked}


class SimulatedSenders:
    """All senders.

    Attributes:
        answers: What became of each event, by path and number of the event: the answer, or the code of a refusal.
        sent_s: When each of them was first sent.
        deleted: The numbers of the events that were answered before their trigger was deleted.
        problems: Answers that are wrong.
    """

    def __init__(self, clock: ManualClock, broker: StagedBroker, store: Store, rights: SimulatedRights) -> None:
        self.answers: dict[tuple[str, int], dict[str, Any] | str] = {}
        self.sent_s: dict[tuple[str, int], float] = {}
        self.registered_s: dict[str, float] = {}
        self.deleted: set[tuple[str, int]] = set()
        self.problems: list[str] = []
        self._clock = clock
        self._broker = broker
        self._store = store
        self._rights = rights
        self._requests = Requests(broker.event_log, SIGNER)
        self._revisions: dict[str, int] = {}

    async def run(self, path: str, acts: tuple[TriggerAct, ...]) -> None:
        """Does to one trigger what a story says, one after the other; events are sent without waiting for answers, but
        a deletion waits for them.
        """
        began_s, sending = self._clock.monotonic_s(), set[asyncio.Task[None]]()
        for number, act in enumerate(acts):
            await self._clock.sleep(max(0.0, began_s + act.at_s - self._clock.monotonic_s()))
            if act.what == "event":
                sending |= {asyncio.create_task(self._send(path, act, late_s)) for late_s in act.times_s}
                continue
            if act.what == "delete":
                await asyncio.gather(*sending)
                self.deleted |= {key for key in self.answers if key[0] == path}
            await self._do(path, number, act)
        await asyncio.gather(*sending)

    async def _do(self, path: str, number: int, act: TriggerAct) -> None:
        request_id = derive(path, "act", number)
        match act.what:
            case "register":
                await self._register(path, request_id, act.terms)
            case "pause":
                await self._ask(TriggerPaused(request_id, path))
            case "resume":
                self._rights.revoked.discard(path)
                await self._ask(TriggerResumed(request_id, path))
            case "revoke":
                self._rights.revoked.add(path)
            case "delete":
                await self._ask(TriggerDeleted(request_id, path))
            case "resend":
                await self._resend(path, request_id)

    async def _register(self, path: str, request_id: str, terms: TriggerTerms | None) -> None:
        assert terms is not None
        revision = self._revisions[path] = self._revisions.get(path, 0) + 1
        fact = TriggerRegistered(request_id, path, f"token:{path}", terms=terms, revision=revision)
        answer = await self._ask(fact)
        if isinstance(answer, str):
            self.problems.append(f"{path}: is refused: {answer}")
        self.registered_s.setdefault(path, self._clock.monotonic_s())

    async def _send(self, path: str, act: TriggerAct, late_s: float) -> None:
        """Sends an event, as a sender does that got no answer the last time."""
        await self._clock.sleep(late_s)
        key = path, act.number
        self.sent_s.setdefault(key, self._clock.monotonic_s())
        fact = EventReceived(derive(path, "event", act.number), path, event={"json": {"n": act.number}})
        answer = await self._ask(fact)
        before = self.answers.setdefault(key, answer)
        if before != answer and isinstance(before, dict) and isinstance(answer, dict):
            told = [one.get("execution_id") for one in (before, answer) if one["status"] == "started"]
            if len(set(told)) > 1:
                self.problems.append(f"{path}: event {act.number} is answered {before}, and then {answer}")

    async def _resend(self, path: str, request_id: str) -> None:
        """Sends the newest event that was ignored again."""
        ignored = await self._store.aggregate_history(aggregate_id("starter", path), 1, None, ["ignored"])
        for row in ignored:
            event = codec.decode_json(row.body)["event"]
            await self._ask(EventReceived(request_id, path, event=event, resent=row.number))

    async def _ask(self, fact: RequestedFact) -> dict[str, Any] | str:
        """Asks until there is an answer."""
        while True:
            try:
                return await ask_aggregate(self._requests, self._broker.bus, self._clock, "starter", fact)
            except RequestRefused as refused:
                return refused.code
            except NoetlError:
                await self._clock.sleep(RETRY_S)
