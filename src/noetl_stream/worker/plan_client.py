"""Compiled plans, from sources that any server returns; the last used are cached."""

from __future__ import annotations

import asyncio

from noetl_stream.errors import PayloadRefused
from noetl_stream.lru import LruCache
from noetl_stream.model import codec
from noetl_stream.model.limits import UNBOUNDED
from noetl_stream.playbook.compile.compiler import Checker, check
from noetl_stream.playbook.diagnostics import InvalidPlaybook
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports import subjects
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.clock import Clock
from noetl_stream.worker.limits import PLANS_KEPT
from noetl_stream.worker.plans import PlanUnknown, PlanUnusable
from noetl_stream.worker.waiting import ask


class PlanClient:
    """Asks any server for ``{"source": …, "path": …}`` on :func:`~noetl_stream.ports.subjects.ask_playbook`.

    Concurrent callers of one digest ask once.
    """

    def __init__(
        self, bus: Bus, clock: Clock, kinds: Kinds, *, kept: int = PLANS_KEPT, checker: Checker = check
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._kinds = kinds
        self._checker = checker
        self._plans: LruCache[str, Plan] = LruCache(kept)
        self._asking: dict[str, asyncio.Task[Plan]] = {}

    def cached(self, digest: str) -> Plan | None:
        """See :class:`~noetl_stream.worker.plans.PlanSource`."""
        return self._plans.get(digest)

    async def load(self, digest: str) -> Plan:
        """See :class:`~noetl_stream.worker.plans.PlanSource`."""
        plan = self.cached(digest)
        if plan is not None:
            return plan
        asking = self._asking.get(digest)
        if asking is None:
            asking = self._asking[digest] = asyncio.ensure_future(self._ask(digest))
            asking.add_done_callback(lambda _task: self._asking.pop(digest, None))
        # One caller that is cancelled must not take the answer from the others.
        return await asyncio.shield(asking)

    async def close(self) -> None:
        """Cancels pending requests."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def _ask(self, digest: str) -> Plan:
        source, path = _read(await ask(self._bus, self._clock, subjects.ask_playbook(digest)), digest)
        try:
            plan = self._checker(source, self._kinds, file=path, limits=UNBOUNDED).require_plan()
        except InvalidPlaybook as error:
            raise PlanUnusable(f"the playbook does not compile on this worker: {error.message}") from error
        if plan.digest != digest:
            raise PlanUnknown(f"requested playbook {digest}, received {plan.digest}")
        self._plans.put(digest, plan)
        return plan


def _read(body: bytes, digest: str) -> tuple[str, str]:
    try:
        answer = codec.decode_json(body)
    except PayloadRefused as error:
        raise PlanUnknown(f"cannot read the answer for playbook {digest}: {error.message}") from None
    source = answer.get("source") if isinstance(answer, dict) else None
    if not isinstance(source, str):
        raise PlanUnknown(f"playbook {digest} is unknown to the servers")
    return source, str(answer.get("path") or digest)
