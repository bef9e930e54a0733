"""The operations for a token with paths: everything outside them does not exist, or is forbidden.

A playbook's path outside the token's is Forbidden, whether it exists or not. An execution outside is NotFound, as
if it did not exist. Lists leave both out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any, Final, NamedTuple, TypeVar, cast

from msgspec.structs import replace

from noetl_stream.errors import Forbidden, NotFound
from noetl_stream.lru import LruCache
from noetl_stream.model.rights import covers
from noetl_stream.model.status import ExecutionStatus
from noetl_stream.playbook.check.calls import paths_missing
from noetl_stream.ports.operations import PORTS, Operations, port_of
from noetl_stream.ports.operations.cluster import Cluster, WorkerDocument
from noetl_stream.ports.operations.documents import DocumentPage
from noetl_stream.ports.operations.executions import (
    ExecutionDocument,
    ExecutionFilter,
    ExecutionPage,
    Executions,
    RequestIds,
    Start,
)
from noetl_stream.ports.operations.playbooks import CheckedDocument, Playbooks, RegisteredDocument
from noetl_stream.ports.operations.reading.feed import Feed, FeedEvent, only
from noetl_stream.ports.operations.selections import (
    MAX_GROUPS,
    BulkDocument,
    BulkItemDocument,
    BulkOrder,
    BulkOutcome,
    ExecutionGroupDocument,
    ExecutionGroupsDocument,
    ExecutionHistogramDocument,
    Selections,
)
from noetl_stream.ports.operations.verbs import EXECUTIONS, PATH, Verb, Verbs, verb_of
from noetl_stream.ports.stores.catalog import NotRegistered
from noetl_stream.sealing.keys import KeyRing, new_key, read_key
from noetl_stream.sealing.signing import CursorSealer

Read = TypeVar("Read")
OfPaths = TypeVar("OfPaths", bound=DocumentPage[Any])
"""A page of what has a ``path``."""

PASSES: Final = 20
"""How many pages are read to fill one: then a short one is returned, with its ``next``."""

REMEMBERED_PATHS: Final = 20_000


class Scopes:
    """Narrows operations to paths, a ``Scope``. One for a gateway: it remembers the
    paths of executions, which never change.

    Args:
        keys: Seal the cursors of lists; those of all gateways, so that one opens what another sealed. Default: a key
            of its own.
    """

    def __init__(self, keys: KeyRing | None = None) -> None:
        self._paths: LruCache[str, str] = LruCache(REMEMBERED_PATHS)
        self._cursors = CursorSealer(keys or KeyRing(read_key(new_key(), "a new key")))

    def __call__(self, operations: Operations, paths: tuple[str, ...]) -> Operations:
        """What a caller with these paths may use. Admins have no paths, so what only they may use is not narrowed."""
        if not paths:
            return operations

        async def path_of(execution_id: str) -> str:
            path = self._paths.get(execution_id)
            if path is None:
                path = (await operations.executions.get(execution_id)).path
                self._paths.put(execution_id, path)
            return path

        scope = _Scope(paths, path_of, self._cursors)
        playbooks = ScopedPlaybooks(Playbooks, operations.playbooks, scope)
        executions = cast(Executions, ScopedExecutions(operations.executions, playbooks, scope))
        parts: dict[str, Any] = {noun: Scoped(port_of(noun), getattr(operations, noun), scope) for noun in PORTS}
        parts |= {
            "executions": executions,
            "feed": ScopedFeed(operations.feed, scope),
            "playbooks": playbooks,
            "cluster": ScopedCluster(Cluster, operations.cluster, scope),
            "selections": ScopedSelections(operations.selections, executions, scope),
        }
        return Operations(**parts)


class _Scope(NamedTuple):
    paths: tuple[str, ...]
    path_of: Callable[[str], Awaitable[str]]
    cursors: CursorSealer

    def has(self, path: str) -> bool:
        return covers(self.paths, path)

    def require(self, path: str | None) -> None:
        if path is not None and not self.has(path.removeprefix("/")):
            raise Forbidden(f"this token does not cover {path}", hint=f"its paths are {', '.join(self.paths)}")

    async def require_execution(self, execution_id: str) -> None:
        if not self.has(await self.path_of(execution_id)):
            raise NotFound(f"execution {execution_id} not found")

    async def page(
        self, read: Callable[[int, str | None], Awaitable[OfPaths]], limit: int, cursor: str | None
    ) -> OfPaths:
        """Never asks for more than is missing, so the last cursor is the page's own.

        It is sealed: it names the last item that was read, which may be one that is left out.
        """
        found: list[Any] = []
        reader = " ".join(self.paths)
        cursor = None if cursor is None else self.cursors.open(cursor, reader)
        for _ in range(PASSES):
            page = await read(limit - len(found), cursor)
            found += [item for item in page.items if self.has(item.path)]
            cursor = page.next
            if cursor is None or len(found) == limit:
                break
        return replace(page, items=found, next=None if cursor is None else self.cursors.seal(cursor, reader))

    async def unhinted(self, reading: Awaitable[Read]) -> Read:
        """What ``reading`` returns. Of its error, a playbook that is similar and elsewhere is left out."""
        try:
            return await reading
        except NotRegistered as error:
            if error.near and not self.has(error.near):
                raise NotRegistered(error.message) from None
            raise


class Scoped(Verbs):
    """A port for a token with paths. A subclass has the verbs whose scope is special."""

    def __init__(self, port: type, verbs: Any, scope: _Scope) -> None:
        super().__init__(port)
        self._verbs = verbs
        self._scope = scope

    async def _ask(self, verb: Verb, *args: Any, **options: Any) -> Any:
        given, act = verb.arguments(args, options), getattr(self._verbs, verb.name)
        if verb.denied or verb.scope == "special":
            raise Forbidden(f"a token with paths may not {verb.denied or verb.name}", hint="use one for all playbooks")
        if verb.scope == "items":
            limit, cursor = given.pop("limit"), given.pop("cursor")
            return await self._scope.page(lambda size, after: act(**given, limit=size, cursor=after), limit, cursor)
        self._scope.require(given.get(PATH))
        for name in EXECUTIONS:
            if name in given:
                await self._scope.require_execution(given[name])
        return await self._scope.unhinted(act(*args, **options))


class ScopedPlaybooks(Scoped):
    """:class:`~noetl_stream.ports.operations.playbooks.Playbooks`, where each method is described."""

    async def check(
        self, source: bytes, name: str, paths: Sequence[str] = (), *, graph: bool = False
    ) -> CheckedDocument:
        """Says nothing of called playbooks outside: whether they are registered is not for everyone to know. Schemas
        outside are not looked up.
        """
        checked: CheckedDocument = await self._verbs.check(source, name, self._scope.paths, graph=graph)
        hidden = {one for one, path in paths_missing(checked.diagnostics, source).items() if not self._scope.has(path)}
        return replace(checked, diagnostics=[one for one in checked.diagnostics if one not in hidden])

    async def require_text(self, source: bytes, name: str) -> None:
        """Raises :class:`~noetl_stream.errors.Forbidden` for a path outside; a text with errors is refused later."""
        self._scope.require((await self._verbs.check(source, name)).path)

    async def register(self, source: bytes, name: str, by: str) -> RegisteredDocument:
        await self.require_text(source, name)
        registered: RegisteredDocument = await self._verbs.register(source, name, by)
        return registered


class ScopedExecutions(Scoped):
    """:class:`~noetl_stream.ports.operations.executions.Executions`, where each method is described."""

    def __init__(self, executions: Executions, playbooks: ScopedPlaybooks, scope: _Scope) -> None:
        super().__init__(Executions, executions, scope)
        self._playbooks = playbooks

    async def start(self, wanted: Start, by: str, ids: RequestIds | None = None) -> ExecutionDocument:
        if wanted.digest is not None:
            hint = "name the playbook by its path"
            raise Forbidden("a token with paths cannot start by digest", hint=hint)
        self._scope.require(wanted.path)
        if wanted.playbook is not None:
            await self._playbooks.require_text(wanted.playbook.encode(), "playbook")
        started: ExecutionDocument = await self._scope.unhinted(self._verbs.start(wanted, by, ids))
        return started

    async def page(self, chosen: ExecutionFilter, limit: int, cursor: str | None) -> ExecutionPage:
        self._scope.require(chosen.path)
        page: ExecutionPage = await self._ask(verb_of(Executions.page), chosen, limit, cursor)
        return page


class ScopedCluster(Scoped):
    """:class:`~noetl_stream.ports.operations.cluster.Cluster`, where each method is described."""

    async def workers(self) -> list[WorkerDocument]:
        """Says nothing of what they run."""
        return [replace(worker, running=[]) for worker in await self._verbs.workers()]


class ScopedSelections(Scoped):
    """:class:`~noetl_stream.ports.operations.selections.Selections`, where each method is described.

    Args:
        executions: Those that are covered.
    """

    def __init__(self, selections: Selections, executions: Executions, scope: _Scope) -> None:
        super().__init__(Selections, selections, scope)
        self._selections = selections
        self._executions = executions

    async def act(self, wanted: BulkOrder, by: str, ids: RequestIds | None = None) -> BulkDocument:
        if wanted.ids is None:
            page = await self._executions.page(wanted.selected, wanted.limit, wanted.cursor)
            named = replace(wanted, ids=[one.execution_id for one in page.items], cursor=None)
            return replace(await self._selections.act(named, by, ids), next=page.next)
        tried = await self._selections.act(replace(wanted, dry_run=True), by, ids)
        own = [one.execution_id for one in tried.items if one.path is not None and self._scope.has(one.path)]
        acted = await self._selections.act(replace(wanted, ids=own), by, ids)
        answers = {one.execution_id: one for one in acted.items}
        outcome: BulkOutcome = "skipped" if wanted.dry_run else "refused"
        items = [
            answers.get(one.execution_id)
            or BulkItemDocument(one.execution_id, outcome, detail=f"execution {one.execution_id} not found")
            for one in tried.items
        ]
        return BulkDocument(items, dict(Counter(item.outcome for item in items)), None)

    async def histogram(self, chosen: ExecutionFilter, bars: int) -> ExecutionHistogramDocument:
        """Of several paths, each is counted for the times of the first."""
        paths = self._paths(chosen)
        found = await self._selections.histogram(replace(chosen, path=paths[0]), bars)
        times = replace(chosen, started_from_ms=_ms(found.since), started_before_ms=_ms(found.until))
        for path in paths[1:]:
            other = await self._selections.histogram(replace(times, path=path), bars)
            columns = {status: found.bars.get(status, []) for status in found.bars | other.bars}
            summed = {
                status: [a + b for a, b in zip_longest(columns[status], other.bars.get(status, []), fillvalue=0)]
                for status in columns
            }
            counts = dict(Counter(found.counts) + Counter(other.counts))
            found = replace(found, bars=summed, counts=counts, complete=found.complete and other.complete)
        return found

    async def groups(self, chosen: ExecutionFilter, key: str) -> ExecutionGroupsDocument:
        found = [await self._selections.groups(replace(chosen, path=path), key) for path in self._paths(chosen)]
        counted: defaultdict[str | None, Counter[ExecutionStatus]] = defaultdict(Counter)
        for group in (group for one in found for group in one.items):
            counted[group.value].update(group.counts)
        groups = [ExecutionGroupDocument(value, dict(counts)) for value, counts in counted.items()]
        groups.sort(key=lambda group: -sum(group.counts.values()))
        more = sum(one.more for one in found) + max(0, len(groups) - MAX_GROUPS)
        return ExecutionGroupsDocument(groups[:MAX_GROUPS], more, all(one.complete for one in found))

    def _paths(self, chosen: ExecutionFilter) -> Sequence[str]:
        """The paths to count below: no two of them have anything in common."""
        self._scope.require(chosen.path)
        if chosen.path is not None:
            return (chosen.path,)
        every = sorted({path.strip("/") for path in self._scope.paths})
        return [path for path in every if not any(covers((other,), path) for other in every if other != path)]


def _ms(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp() * 1000)


class ScopedFeed:
    """:class:`~noetl_stream.ports.operations.reading.feed.Feed`, where each method is described."""

    def __init__(self, feed: Feed, scope: _Scope) -> None:
        self._feed = feed
        self._scope = scope

    async def execution(self, execution_id: str, after: int) -> AsyncIterator[list[FeedEvent]]:
        await self._scope.require_execution(execution_id)
        return await self._feed.execution(execution_id, after)

    async def everything(self, after: str | None) -> AsyncIterator[list[FeedEvent]]:
        feed = await self._feed.everything(after)
        return (only(some, lambda event: self._scope.has(event.path)) async for some in feed)
