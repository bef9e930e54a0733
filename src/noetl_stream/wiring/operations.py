"""The operations of commands and gateways, on connected stores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, cast

from noetl_stream.concurrency import Deferred
from noetl_stream.operations.executions.submit import Client
from noetl_stream.sealing.keys import KeyRing, key_ring
from noetl_stream.wiring.endpoint import Endpoint
from noetl_stream.wiring.stores import OperatorPorts

if TYPE_CHECKING:  # each process imports only what it uses
    from noetl_stream.adapters.postgres.store import PostgresStore
    from noetl_stream.operations.executions.prepare import CheckedText, PlaybookChecker
    from noetl_stream.operations.recording import OnRecord
    from noetl_stream.operations.starters import DirectSchedules, DirectTriggers, StarterPorts
    from noetl_stream.operations.views.index import ExecutionIndexes
    from noetl_stream.playbook.kinds.spec import Kinds
    from noetl_stream.ports.evaluator import Evaluator
    from noetl_stream.ports.operations.access import Access, CredentialStore, GrantsRegistry
    from noetl_stream.ports.operations.cluster import Cluster, Diagnosis
    from noetl_stream.ports.operations.executions import Executions
    from noetl_stream.ports.operations.playbooks import Playbooks
    from noetl_stream.ports.operations.reading.events import Feed
    from noetl_stream.ports.operations.reading.views import Views
    from noetl_stream.ports.operations.selections import Selections
    from noetl_stream.ports.self_reports import StoreUses
    from noetl_stream.settings.grants import GrantsSource
    from noetl_stream.storage.used_secrets import UsedSecrets
    from noetl_stream.tools.registry import ToolClass


@cache
def installed_kinds() -> Mapping[str, ToolClass]:
    """Returns the tool kinds installed here, looked up once, so that unusable ones are reported once."""
    from noetl_stream.tools.registry import load_tools

    return load_tools()


def kinds_without(kinds_off: Collection[str] = ()) -> Kinds:
    from noetl_stream.tools.registry import kinds_of

    return kinds_of(installed_kinds(), kinds_off)


def make_client(connected: OperatorPorts) -> Client:
    return Client(connected.requests, connected.objects, connected.bus)


class DirectOperations:
    """The operations, executed directly on these connections. A part is imported on first use.

    Args:
        unanswered: Called whenever no server has answered a request, so that a command can start one.
        checked: Playbooks that were already checked here.
        evaluator: Makes comparisons that would block this process.
        watch: The observer of the stores' growth, for the doctor.
    """

    def __init__(
        self,
        connected: OperatorPorts,
        endpoint: Endpoint,
        *,
        unanswered: Callable[[], Awaitable[None]] | None = None,
        checked: Sequence[CheckedText] = (),
        evaluator: Evaluator | None = None,
        watch: StoreUses | None = None,
    ) -> None:
        self._connected, self._endpoint = connected, endpoint
        self._unanswered, self._checked = unanswered, checked
        self._evaluator = evaluator
        self._watch = watch
        self._keys = credential_keys(endpoint)
        self._over_replica: Executions | None = None

    @cached_property
    def executions(self) -> Executions:
        from noetl_stream.operations.executions.redacted import RedactedExecutions
        from noetl_stream.ports.operations.executions import Executions

        given = self._connected
        found = self._executions_over(given.store)
        if given.replica is not None:
            from noetl_stream.operations.executions.replica import Replicated

            replicated = partial(self._replica_executions, given.replica)
            found = cast("Executions", Replicated(Executions, found, replicated, given.clock))
        return cast("Executions", RedactedExecutions(found, self._secrets))

    async def _replica_executions(self, replica: Deferred[PostgresStore]) -> Executions:
        if self._over_replica is None:
            self._over_replica = self._executions_over(await replica.get())
        return self._over_replica

    def _executions_over(self, store: PostgresStore) -> Executions:
        from noetl_stream.operations.executions.direct import DirectExecutions, ExecutionPorts
        from noetl_stream.operations.executions.reading.logs import ExecutionLogs

        given = self._connected
        logs = ExecutionLogs(given.task_logs, self._secrets, given.clock)
        ports = ExecutionPorts(
            requests=given.requests,
            bus=given.bus,
            blobs=given.objects,
            store=store,
            catalog=store.catalog,
            clock=given.clock,
            logs=logs,
            object_keys=given.object_keys,
            evaluator=self._evaluator,
        )
        return DirectExecutions(ports, self._checking, lambda: self.cluster, self._unanswered)

    @cached_property
    def feed(self) -> Feed:
        from noetl_stream.operations.feed.live import LiveFeed

        given, store = self._connected, self._connected.store
        return LiveFeed(store, store.feed, given.bus, given.clock, self._secrets)

    @cached_property
    def playbooks(self) -> Playbooks:
        from noetl_stream.operations.playbooks import DirectPlaybooks, PlaybookPorts
        from noetl_stream.operations.starters import RegisteredStarters

        given, store = self._connected, self._connected.store
        ports = PlaybookPorts(store, store.catalog, given.clock, given.objects, given.bus)
        starters = RegisteredStarters(lambda: self.schedules, lambda: self.triggers)
        return DirectPlaybooks(ports, self._checking, starters.begin)

    @cached_property
    def schedules(self) -> DirectSchedules:
        from noetl_stream.operations.starters import DirectSchedules

        return DirectSchedules(self._starter_ports, self._checking, self._unanswered)

    @cached_property
    def credentials(self) -> CredentialStore:
        from noetl_stream.operations.access import DirectCredentials

        return DirectCredentials(self._connected.store.credentials, self._keys)

    @cached_property
    def grants(self) -> GrantsRegistry:
        from noetl_stream.operations.grants import DirectGrants, GrantsPorts

        given, endpoint = self._connected, self._endpoint
        in_force = grants_of(endpoint, given.store)
        return DirectGrants(GrantsPorts(given.store.grants, in_force, given.bus, given.clock))

    @cached_property
    def cluster(self) -> Cluster:
        from noetl_stream.operations.cluster import ClusterPorts, DirectCluster

        given, store = self._connected, self._connected.store
        ports = ClusterPorts(
            log=given.log,
            queue=given.queue,
            bus=given.bus,
            store=store,
            dead_letters=store.dead_letters,
            clock=given.clock,
        )
        return DirectCluster(ports, self._secrets)

    @cached_property
    def access(self) -> Access:
        from noetl_stream.operations.access import DirectAccess

        store = self._connected.store
        return DirectAccess(store.tokens, store.audit, self._connected.clock)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        from noetl_stream.operations.doctor.doctor import DirectDiagnosis
        from noetl_stream.operations.doctor.readings import DoctorPorts

        given, store = self._connected, self._connected.store
        ports = DoctorPorts(
            database=store.diagnosis,
            nats=given.diagnosis,
            store=store,
            log=given.log,
            queue=given.queue,
            bus=given.bus,
            dead_letters=store.dead_letters,
            tokens=store.tokens,
            credentials=store.credentials,
            clock=given.clock,
            keys=self._keys,
            postgres_max_bytes=self._endpoint.postgres_max_bytes,
            watch=self._watch,
            places=given.places,
        )
        return DirectDiagnosis(ports)

    @cached_property
    def views(self) -> Views:
        from noetl_stream.operations.executions.redacted import Redacted
        from noetl_stream.operations.views.direct import DirectViews
        from noetl_stream.ports.operations.reading.views import Views

        direct = DirectViews(self._connected.store, self._checking, self._secrets, lambda: self.indexes)
        return cast("Views", Redacted(Views, direct, self._secrets))

    @cached_property
    def selections(self) -> Selections:
        from noetl_stream.operations.executions.selections import DirectSelections

        store, clock, record = self._connected.store, self._connected.clock, record_in(self._connected)
        direct = DirectSelections(self.executions, store, clock, record)
        replica = self._connected.replica
        if replica is None:
            return direct

        async def open_replica() -> Selections:
            return DirectSelections(self.executions, await replica.get(), clock, record)

        from noetl_stream.operations.executions.replica import Replicated
        from noetl_stream.ports.operations.selections import Selections

        return cast("Selections", Replicated(Selections, direct, open_replica, clock))

    @cached_property
    def triggers(self) -> DirectTriggers:
        from noetl_stream.operations.starters import DirectTriggers

        return DirectTriggers(self._starter_ports, self._checking, self._unanswered)

    @cached_property
    def _starter_ports(self) -> StarterPorts:
        from noetl_stream.operations.starters import StarterPorts

        given, store = self._connected, self._connected.store
        return StarterPorts(given.requests, given.bus, store, store.catalog, given.clock)

    @cached_property
    def indexes(self) -> ExecutionIndexes:
        """The indexes behind views."""
        from noetl_stream.operations.views.index import ExecutionIndexes

        return ExecutionIndexes(self._connected.store)

    @cached_property
    def _checking(self) -> PlaybookChecker:
        from noetl_stream.operations.executions.prepare import PlaybookChecker

        off = self._endpoint.tools.kinds_off
        return PlaybookChecker(lambda: kinds_without(off), self._endpoint.limits, self._checked)

    @cached_property
    def _secrets(self) -> UsedSecrets:
        from noetl_stream.storage.used_secrets import UsedSecrets

        return UsedSecrets(self._connected.store.credentials, self._keys)


def record_in(connected: OperatorPorts) -> OnRecord:
    """Returns the recorder of changes in the audit of these stores."""

    def record(operation: str, target: str, by: str, reason: str = "") -> AbstractAsyncContextManager[None]:
        from noetl_stream.operations.access import AuditRecord  # most commands change nothing

        return AuditRecord(connected.store.audit, connected.clock)(operation, target, by, reason)

    return record


def grants_of(endpoint: Endpoint, store: PostgresStore) -> GrantsSource:
    """Returns the source of the grants for the process of an endpoint. Errors: as for :func:`grants_in_force`."""
    from noetl_stream.storage.grants import grants_in_force

    return grants_in_force(endpoint.grants_file, endpoint.grants_default, store.grants, is_open=endpoint.grants_open)


def credential_keys(endpoint: Endpoint) -> KeyRing | None:
    """Returns the keys that open credentials; ``None`` if the endpoint has none."""
    return key_ring(endpoint.credential_keys, "a credential key")
