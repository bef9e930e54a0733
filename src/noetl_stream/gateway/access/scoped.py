"""The operations for a token with paths: everything outside its paths does not exist or is forbidden.

A playbook's path outside the token's paths is Forbidden, whether it exists or not. An execution outside is NotFound, as
if it did not exist. Lists omit both.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar, cast

from msgspec.structs import replace

from noetl_stream.concurrency import SharedLoads
from noetl_stream.errors import Forbidden, NotFound
from noetl_stream.lru import LruCache
from noetl_stream.model.bundles import bundle_name
from noetl_stream.model.ids import digest_of
from noetl_stream.model.rights import covers
from noetl_stream.playbook.check.calls import constant_at, paths_missing
from noetl_stream.ports.operations import PORTS, Operations, port_of
from noetl_stream.ports.operations import executions as documents
from noetl_stream.ports.operations import selections as bulk
from noetl_stream.ports.operations.access import CredentialDocument, CredentialStore
from noetl_stream.ports.operations.cluster import Cluster, LimitPage, LimitWithSlotsDocument, WorkerDocument
from noetl_stream.ports.operations.playbooks import CheckedDocument, Playbooks, RegisteredDocument
from noetl_stream.ports.operations.reading.events import Feed, FeedEvent, only
from noetl_stream.ports.operations.verbs import EXECUTIONS, PATH, Verb, Verbs
from noetl_stream.ports.stores.catalog import NotRegistered
from noetl_stream.settings.grants import GrantsSource

Read = TypeVar("Read")

REMEMBERED_PATHS: Final = 20_000

REMEMBERED_TEXTS: Final = 1_000
"""The texts whose paths are remembered: a check takes up to seconds of the processor, and a text may start often."""


class TextPaths:
    """The paths that texts name, remembered by digest."""

    def __init__(self) -> None:
        self._known: LruCache[str, Sequence[str]] = LruCache(REMEMBERED_TEXTS)
        self._reading = SharedLoads[str, Sequence[str]]()

    async def get(self, digest: str, read: Callable[[], Coroutine[Any, Any, Sequence[str]]]) -> Sequence[str]:
        """Returns the paths of a text; calls ``read`` if they are unknown, once for all callers. Raises its errors."""
        found = self._known.get(digest)
        if found is None:
            found = await self._reading.get(digest, read)
            self._known.put(digest, found)
        return found


class Scopes:
    """Narrows operations to paths, a ``Scope``. There is one for each gateway: it remembers the paths of executions,
    which never change.

    Args:
        grants: The grants of playbooks; ``None``: they may use everything.
    """

    def __init__(self, grants: GrantsSource | None = None) -> None:
        self._grants = grants
        self._paths: LruCache[str, str] = LruCache(REMEMBERED_PATHS)
        self._texts = TextPaths()

    def __call__(self, operations: Operations, paths: tuple[str, ...]) -> Operations:
        """The operations for a caller with these paths. Admins have no paths, so their operations are not narrowed."""
        if not paths:
            return operations

        async def path_of(execution_id: str) -> str:
            path = self._paths.get(execution_id)
            if path is None:
                path = (await operations.executions.get(execution_id)).path
                self._paths.put(execution_id, path)
            return path

        scope = _Scope(paths, path_of)
        playbooks = ScopedPlaybooks(operations.playbooks, scope, self._texts)
        executions = cast(documents.Executions, ScopedExecutions(operations.executions, playbooks, scope))
        parts: dict[str, Any] = {noun: Scoped(port_of(noun), getattr(operations, noun), scope) for noun in PORTS}
        parts |= {
            "executions": executions,
            "feed": ScopedFeed(operations.feed, scope),
            "playbooks": playbooks,
            "credentials": ScopedCredentials(operations.credentials, scope, self._grants),
            "cluster": ScopedCluster(Cluster, operations.cluster, scope),
            "selections": ScopedSelections(operations.selections, executions, scope),
        }
        return Operations(**parts)


class _Scope(NamedTuple):
    paths: tuple[str, ...]
    path_of: Callable[[str], Awaitable[str]]

    def has(self, path: str) -> bool:
        return covers(self.paths, path)

    @property
    def outermost(self) -> tuple[str, ...]:
        """The paths of the scope, without those below another of them."""
        every = sorted({path.strip("/") for path in self.paths})
        return tuple(path for path in every if not any(covers((other,), path) for other in every if other != path))

    def narrowed(self, chosen: documents.ExecutionFilter) -> documents.ExecutionFilter:
        """The filter for executions below the paths; paths that it does not cover are not searched.

        Raises:
            Forbidden: its path is not covered.
        """
        self.require(chosen.path)
        return replace(chosen, scope=self.outermost)

    def require(self, path: str | None) -> None:
        if path is not None and not self.has(path.removeprefix("/")):
            raise Forbidden(f"this token does not cover {path}", hint=f"its paths are {', '.join(self.paths)}")

    async def require_execution(self, execution_id: str) -> None:
        if not self.has(await self.path_of(execution_id)):
            raise NotFound(f"execution {execution_id} not found")

    async def unhinted(self, reading: Awaitable[Read]) -> Read:
        """Returns the result of ``reading``. In its error, a similar playbook outside the paths is not named."""
        try:
            return await reading
        except NotRegistered as error:
            if error.near and not self.has(error.near):
                raise NotRegistered(error.message) from None
            raise


class Scoped(Verbs):
    """A port for a token with paths. A subclass has the verbs with a special scope."""

    def __init__(self, port: type, verbs: Any, scope: _Scope) -> None:
        super().__init__(port)
        self._verbs = verbs
        self._scope = scope

    async def _ask(self, verb: Verb, *args: Any, **options: Any) -> Any:
        given, act = verb.arguments(args, options), getattr(self._verbs, verb.name)
        if verb.denied or verb.scope == "special":
            raise Forbidden(f"a token with paths may not {verb.denied or verb.name}", hint="use one for all playbooks")
        if verb.scope == "items":
            return await act(**given, scope=self._scope.outermost)
        self._scope.require(given.get(PATH))
        for name in EXECUTIONS:
            if name in given:
                await self._scope.require_execution(given[name])
        return await self._scope.unhinted(act(*args, **options))


class ScopedPlaybooks(Scoped):
    """:class:`~noetl_stream.ports.operations.playbooks.Playbooks`, where each method is described.

    Args:
        texts: Shared by all callers: the paths in a text do not depend on who sends it.
    """

    def __init__(self, playbooks: Playbooks, scope: _Scope, texts: TextPaths) -> None:
        super().__init__(Playbooks, playbooks, scope)
        self._texts = texts

    async def check(
        self, source: bytes, name: str, paths: Sequence[str] = (), *, graph: bool = False
    ) -> CheckedDocument:
        """Reports nothing about called playbooks outside the paths: whether they are registered is not public. Schemas
        outside are not looked up.
        """
        checked: CheckedDocument = await self._verbs.check(source, name, self._scope.paths, graph=graph)
        missing = await asyncio.to_thread(paths_missing, checked.diagnostics, source)
        hidden = {one for one, path in missing.items() if not self._scope.has(path)}
        return replace(checked, diagnostics=[one for one in checked.diagnostics if one not in hidden])

    async def require_text(self, source: bytes, name: str) -> None:
        """Raises :class:`~noetl_stream.errors.Forbidden` for a path outside the scope, also that of the project whose
        packages the text names; a text with errors is refused later.
        """
        for path in await self._texts.get(digest_of(source), lambda: self._paths_in(source, name)):
            self._scope.require(path)

    async def _paths_in(self, source: bytes, name: str) -> Sequence[str]:
        checked: CheckedDocument = await self._verbs.check(source, name)
        found = [checked.path]
        if b"bundle" in source:
            text: str | None = await asyncio.to_thread(constant_at, source, "/bundle")
            bundle = bundle_name(text or "")
            found.append(bundle.project if bundle else None)
        return [path for path in found if path is not None]

    async def register(self, source: bytes, name: str, by: str) -> RegisteredDocument:
        await self.require_text(source, name)
        registered: RegisteredDocument = await self._verbs.register(source, name, by)
        return registered


class ScopedExecutions(Scoped):
    """:class:`~noetl_stream.ports.operations.executions.Executions`, where each method is described."""

    def __init__(self, executions: documents.Executions, playbooks: ScopedPlaybooks, scope: _Scope) -> None:
        super().__init__(documents.Executions, executions, scope)
        self._playbooks = playbooks

    async def start(
        self, wanted: documents.Start, by: str, ids: documents.RequestIds | None = None
    ) -> documents.ExecutionDocument:
        if wanted.digest is not None:
            hint = "name the playbook by its path"
            raise Forbidden("a token with paths cannot start by digest", hint=hint)
        self._scope.require(wanted.path)
        if wanted.playbook is not None:
            await self._playbooks.require_text(wanted.playbook.encode(), "playbook")
        started: documents.ExecutionDocument = await self._scope.unhinted(self._verbs.start(wanted, by, ids))
        return started

    async def why(self, execution_id: str) -> documents.WhyDocument:
        """Names only executions at the paths and those that the execution called."""
        await self._scope.require_execution(execution_id)
        explained: documents.WhyDocument = await self._verbs.why(execution_id, self._scope.paths)
        return explained

    async def page(self, chosen: documents.ExecutionFilter, limit: int, cursor: str | None) -> documents.ExecutionPage:
        page: documents.ExecutionPage = await self._verbs.page(self._scope.narrowed(chosen), limit, cursor)
        return page


class ScopedCredentials(Scoped):
    """:class:`~noetl_stream.ports.operations.access.CredentialStore`, where each method is described.

    Args:
        grants: The grants of playbooks; ``None``: they may use everything.
    """

    def __init__(self, credentials: CredentialStore, scope: _Scope, grants: GrantsSource | None) -> None:
        super().__init__(CredentialStore, credentials, scope)
        self._grants = grants

    async def list_all(self) -> list[CredentialDocument]:
        """Lists only those that a playbook of these paths may use."""
        return [one for one in await self._verbs.list_all() if self._may_use(one.name)]

    async def get(self, name: str) -> CredentialDocument:
        """Treats any other credential as missing, and suggests none."""
        if self._may_use(name):
            with suppress(NotFound):
                found: CredentialDocument = await self._verbs.get(name)
                return found
        raise NotFound(f"credential {name!r} not found", hint="list those that playbooks of this token may use")

    def _may_use(self, name: str) -> bool:
        grants = None if self._grants is None else self._grants.current()
        return grants is None or any(grants.allows_below(path, "credentials", name) for path in self._scope.paths)


class ScopedCluster(Scoped):
    """:class:`~noetl_stream.ports.operations.cluster.Cluster`, where each method is described."""

    async def workers(self) -> list[WorkerDocument]:
        """Omits the commands that workers run."""
        return [replace(worker, running=[]) for worker in await self._verbs.workers()]

    async def limits(self, limit: int, cursor: str | None) -> LimitPage:
        """Omits limits of other namespaces, unless a playbook at the paths shares them."""
        page: LimitPage = await self._verbs.limits(limit, cursor, self._scope.paths)
        return page

    async def limit(self, key: str, namespace: str | None = None) -> LimitWithSlotsDocument:
        """Names only executions at the paths."""
        found: LimitWithSlotsDocument = await self._verbs.limit(key, namespace, self._scope.paths)
        return found


class ScopedSelections(Scoped):
    """:class:`~noetl_stream.ports.operations.selections.Selections`, where each method is described.

    Args:
        executions: The executions in the scope.
    """

    def __init__(self, selections: bulk.Selections, executions: documents.Executions, scope: _Scope) -> None:
        super().__init__(bulk.Selections, selections, scope)
        self._selections = selections
        self._executions = executions

    async def act(self, wanted: bulk.BulkOrder, by: str, ids: documents.RequestIds | None = None) -> bulk.BulkDocument:
        if wanted.ids is None:
            page = await self._executions.page(wanted.selected, wanted.limit, wanted.cursor)
            named = replace(wanted, ids=[one.execution_id for one in page.items], cursor=None)
            return replace(await self._selections.act(named, by, ids), next=page.next)
        tried = await self._selections.act(replace(wanted, dry_run=True), by, ids)
        own = [one.execution_id for one in tried.items if one.path is not None and self._scope.has(one.path)]
        acted = await self._selections.act(replace(wanted, ids=own), by, ids)
        answers = {one.execution_id: one for one in acted.items}
        outcome: bulk.BulkOutcome = "skipped" if wanted.dry_run else "refused"
        items = [
            answers.get(one.execution_id)
            or bulk.BulkItemDocument(one.execution_id, outcome, detail=f"execution {one.execution_id} not found")
            for one in tried.items
        ]
        return bulk.BulkDocument(items, dict(Counter(item.outcome for item in items)), None)

    async def histogram(self, chosen: documents.ExecutionFilter, bars: int) -> bulk.ExecutionHistogramDocument:
        return await self._selections.histogram(self._scope.narrowed(chosen), bars)

    async def groups(self, chosen: documents.ExecutionFilter, key: str) -> bulk.ExecutionGroupsDocument:
        return await self._selections.groups(self._scope.narrowed(chosen), key)


class ScopedFeed:
    """:class:`~noetl_stream.ports.operations.reading.events.Feed`, where each method is described."""

    def __init__(self, feed: Feed, scope: _Scope) -> None:
        self._feed = feed
        self._scope = scope

    async def execution(self, execution_id: str, after: int) -> AsyncIterator[list[FeedEvent]]:
        await self._scope.require_execution(execution_id)
        return await self._feed.execution(execution_id, after)

    async def everything(self, after: str | None) -> AsyncIterator[list[FeedEvent]]:
        feed = await self._feed.everything(after)
        return (only(some, lambda event: self._scope.has(event.path)) async for some in feed)
