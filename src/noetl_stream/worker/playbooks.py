"""Playbooks from any server: compiled plans by digest, the last used cached; and paths pinned to a digest."""

from __future__ import annotations

from typing import NamedTuple

from noetl_stream.concurrency import SharedLoads
from noetl_stream.errors import NoetlError, PayloadRefused
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
from noetl_stream.worker.waiting import ask


class PlanUnknown(NoetlError):
    """The servers do not know a playbook with this digest, or sent a different one."""


class PlanUnusable(NoetlError):
    """The playbook does not compile on this worker: a tool kind is missing, or the versions differ."""


class PlaybookUnknown(NoetlError):
    """The catalog has no such playbook, or the version is ambiguous; the message comes from the server."""


class PlanClient:
    """Asks any server for ``{"source": …, "path": …}`` on :func:`~noetl_stream.ports.subjects.ask_playbook`."""

    def __init__(
        self, bus: Bus, clock: Clock, kinds: Kinds, *, kept: int = PLANS_KEPT, checker: Checker = check
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._kinds = kinds
        self._checker = checker
        self._plans: LruCache[str, Plan] = LruCache(kept)
        self._loads: SharedLoads[str, Plan] = SharedLoads()

    def cached(self, digest: str) -> Plan | None:
        """The plan, if it is cached."""
        return self._plans.get(digest)

    async def load(self, digest: str) -> Plan:
        """The plan of this digest; waits until a server answers.

        Raises:
            PlanUnknown: a server answered, but not with this playbook. Worth retrying later.
            PlanUnusable: the playbook cannot run here, now or later.
        """
        return self.cached(digest) or await self._loads.get(digest, lambda: self._ask(digest))

    async def close(self) -> None:
        """Cancels pending requests."""
        await self._loads.close()

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


class PinnedPlaybook(NamedTuple):
    """A playbook pinned when it was resolved. ``version`` is the author's, or the revision if there is none."""

    digest: str
    path: str
    version: str


async def pin_playbook(bus: Bus, clock: Clock, path: str, version: str | None) -> PinnedPlaybook:
    """The playbook at ``path``, the latest without ``version`` (LANGUAGE §12 *playbook*).

    Waits until a server answers. Answers are not cached, since the latest may change.

    Raises:
        PlaybookUnknown: it is not registered. A retry helps only after somebody registers it.
    """
    question = codec.encode({"path": path, "version": version})
    answer = codec.decode_json(await ask(bus, clock, subjects.ASK_CATALOG, question))
    if not answer["known"]:
        raise PlaybookUnknown(answer["reason"])
    return PinnedPlaybook(answer["digest"], answer["path"], answer["version"])
