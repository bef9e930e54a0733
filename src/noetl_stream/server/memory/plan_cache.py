"""Playbooks by digest, compiled once and cached."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from noetl_stream.concurrency import SharedLoads
from noetl_stream.engine.advance import InvalidPlan
from noetl_stream.errors import BlobMissing, Unreachable
from noetl_stream.lru import LruCache
from noetl_stream.model.ids import digest_of
from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.model.rights import MAX_PATH_CHARS
from noetl_stream.playbook.compile.compiler import Checker, check_again
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.stores.store import PlaybookRow, Store
from noetl_stream.ports.streams.blobs import Blobs
from noetl_stream.protocol.subjects import playbook_key

PLANS_KEPT = 512

AT_HAND_S = 0.1
"""The time for which a start waits in the loop for its playbook before it is parked: once, while none is being loaded.
"""


class KnownPlaybook(NamedTuple):
    """A cached playbook; ``row`` is ``None`` without a source to store."""

    plan: Plan | InvalidPlan
    row: PlaybookRow | None


def check_path(plan: Plan | InvalidPlan) -> Plan | InvalidPlan:
    """Returns ``plan`` for a new execution, unless its path is too long for an index: clients may not check it."""
    if isinstance(plan, InvalidPlan) or len(plan.path) <= MAX_PATH_CHARS:
        return plan
    return InvalidPlan(f"`metadata.path` has {len(plan.path)} characters; the limit is {MAX_PATH_CHARS}", [])


class PlanCache:
    """Caches playbooks by digest. Misses are read from Postgres, then from the object store, where clients upload.

    Args:
        limits: The operator's limits, which a playbook may lower.
    """

    def __init__(
        self, store: Store, blobs: Blobs, kinds: Kinds, limits: Limits = DEFAULT_LIMITS, checker: Checker = check_again
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._kinds = kinds
        self._limits = limits
        self._checker = checker
        self._known: LruCache[str, KnownPlaybook] = LruCache(PLANS_KEPT)
        self._loads: SharedLoads[str, KnownPlaybook] = SharedLoads()

    def get(self, digest: str) -> KnownPlaybook | None:
        return self._known.get(digest)

    async def load_if_quick(self, digest: str) -> KnownPlaybook | None:
        """Loads a playbook like :meth:`load`; ``None`` if that takes long or a store is unreachable."""
        known = self._known.get(digest)
        if known is not None:
            return known
        patience_s = 0 if len(self._loads) else AT_HAND_S
        try:
            async with asyncio.timeout(patience_s):
                return await self.load(digest)
        except (TimeoutError, Unreachable):
            return None

    async def load(self, digest: str) -> KnownPlaybook:
        """Loads a playbook, or an invalid plan. An unknown digest is not cached: it may be uploaded later.

        Raises:
            Unreachable: a store is unreachable.
        """
        known = self._known.get(digest)
        return known or await self._loads.get(digest, lambda: self._load(digest))

    async def close(self) -> None:
        """Cancels the loading of playbooks."""
        await self._loads.close()

    async def _load(self, digest: str) -> KnownPlaybook:
        row = await self._store.playbook(digest)
        if row is None:
            try:
                source = (await self._blobs.get(playbook_key(digest))).decode()
            except BlobMissing:
                return KnownPlaybook(InvalidPlan(f"unknown playbook digest {digest}", []), None)
            except UnicodeDecodeError:
                return KnownPlaybook(InvalidPlan(f"the playbook stored as {digest} is not UTF-8", []), None)
            row = PlaybookRow(digest=digest, path="", version=None, source=source)
        known = await asyncio.to_thread(self._compile, row)
        self._known.put(digest, known)
        return known

    def _compile(self, row: PlaybookRow) -> KnownPlaybook:
        if digest_of(row.source) != row.digest:
            return KnownPlaybook(InvalidPlan(f"the playbook stored as {row.digest} has a different digest", []), None)
        checked = self._checker(row.source, self._kinds, limits=self._limits)
        if checked.plan is None:
            diagnostics = [diagnostic.to_json() for diagnostic in checked.diagnostics]
            first = next((d for d in checked.diagnostics if d.severity == "error"), None)
            reason = f"line {first.line}: {first.message}" if first else "the playbook has errors"
            return KnownPlaybook(InvalidPlan(reason, diagnostics), row)
        plan = checked.plan
        return KnownPlaybook(
            plan, PlaybookRow(digest=row.digest, path=plan.path, version=plan.version, source=row.source)
        )
