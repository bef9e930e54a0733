"""Playbooks from servers: compiled plans cached by digest, and paths pinned to a digest."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from noetl_stream.concurrency import SharedLoads
from noetl_stream.errors import NoetlError, PayloadRefused
from noetl_stream.lru import LruCache
from noetl_stream.model.json import codec
from noetl_stream.model.limits import UNBOUNDED
from noetl_stream.model.messages import CatalogQuestion, PlaybookQuestion
from noetl_stream.playbook.compile.compiler import Checker, check_again
from noetl_stream.playbook.diagnostics import InvalidPlaybook
from noetl_stream.playbook.kinds.spec import Kinds, KindSpec, unchecked_kind
from noetl_stream.playbook.plan import Plan
from noetl_stream.protocol import subjects
from noetl_stream.worker.waiting import Asker
from noetl_stream.worker.worker_limits import PLANS_KEPT


class PlanUnknown(NoetlError):
    """The servers do not know a playbook with this digest, or sent a different one."""


class PlanUnusable(NoetlError):
    """The playbook does not compile on this worker, since the versions differ."""


class KindMissing(NoetlError):
    """The worker has no tool of a kind that the step needs."""


class PlaybookUnknown(NoetlError):
    """The catalog has no such playbook, or the version is ambiguous; the message comes from the server."""


class _KindsElsewhere(dict[str, KindSpec]):
    """The kinds of this worker, and all other kinds unchecked: a server has checked the playbook, and other steps may
    run in a pool with the plugin.
    """

    def __contains__(self, kind: object) -> bool:
        return True

    def __missing__(self, kind: str) -> KindSpec:
        return unchecked_kind(kind)


class PlanClient:
    """Asks servers for playbooks on :data:`~noetl_stream.protocol.subjects.ASK_PLAYBOOK`, and caches their plans."""

    def __init__(self, kinds: Kinds, *, kept: int = PLANS_KEPT, checker: Checker = check_again) -> None:
        self._kinds = _KindsElsewhere(kinds)
        self._checker = checker
        self._plans: LruCache[str, Plan] = LruCache(kept)
        self._loads: SharedLoads[str, Plan] = SharedLoads()

    def cached_plan(self, digest: str) -> Plan | None:
        return self._plans.get(digest)

    async def load(self, digest: str, asker: Asker) -> Plan:
        """Returns the plan of the asking command's ``digest``; waits until a server answers.

        Raises:
            PlanUnknown: a server answered, but not with this playbook. Worth retrying later.
            PlanUnusable: the playbook cannot run here, now or later.
        """
        return self.cached_plan(digest) or await self._loads.get(digest, lambda: self._ask(digest, asker))

    async def close(self) -> None:
        """Cancels pending requests."""
        await self._loads.close()

    async def _ask(self, digest: str, asker: Asker) -> Plan:
        answer = await asker.ask(subjects.ASK_PLAYBOOK, PlaybookQuestion(asker.command))
        source, path = read_answer(answer, "playbook", digest)
        try:
            # In a thread, so that other tasks of the worker continue.
            checked = await asyncio.to_thread(self._checker, source, self._kinds, file=path, limits=UNBOUNDED)
            plan = checked.require_plan()
        except InvalidPlaybook as error:
            raise PlanUnusable(f"the playbook does not compile on this worker: {error.message}") from error
        if plan.digest != digest:
            raise PlanUnknown(f"requested playbook {digest}, received {plan.digest}")
        self._plans.put(digest, plan)
        return plan


def read_answer(body: bytes, what: str, digest: str) -> tuple[str, str]:
    """Returns the source and path of a playbook or schema from a server's answer.

    Raises:
        PlanUnknown: the answer contains no playbook.
    """
    try:
        answer = codec.decode_json(body)
    except PayloadRefused as error:
        raise PlanUnknown(f"cannot read the answer for {what} {digest}: {error.message}") from None
    source = answer.get("source") if isinstance(answer, dict) else None
    if isinstance(answer, dict) and "refused" in answer:
        raise PlanUnknown(f"{what} {digest}: {answer['refused']}")
    if not isinstance(source, str):
        raise PlanUnknown(f"{what} {digest} is unknown to the servers")
    return source, str(answer.get("path") or digest)


class PinnedPlaybook(NamedTuple):
    """A pinned playbook. ``version`` is the author's, or else the revision; ``pin`` lets this execution call it."""

    digest: str
    path: str
    version: str
    pin: str


async def pin_playbook(asker: Asker, path: str, version: str | None) -> PinnedPlaybook:
    """Resolves the playbook at ``path``, the latest without ``version`` (LANGUAGE §12 *playbook*).

    Waits until a server answers. Answers are not cached, since the latest may change.

    Raises:
        PlaybookUnknown: the playbook is not registered, or refused. A retry helps only after a registration.
    """
    question = CatalogQuestion(asker.command, path, version)
    answer = codec.decode_json(await asker.ask(subjects.ASK_CATALOG, question))
    if not answer.get("known"):
        raise PlaybookUnknown(answer.get("reason") or answer["refused"])
    return PinnedPlaybook(answer["digest"], answer["path"], answer["version"], answer["pin"])
