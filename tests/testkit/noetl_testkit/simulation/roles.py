"""Servers and workers of a simulation, each on a host."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final

from noetl_stream.adapters.evaluation.pool import MemoryEvaluator
from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.model.placement import PoolLabels
from noetl_stream.playbook.compile.compiler import CheckResult, check
from noetl_stream.playbook.kinds.spec import Kinds, KindSpec
from noetl_stream.ports.evaluator import Evaluator
from noetl_stream.ports.stores.catalog import Catalog
from noetl_stream.ports.stores.identities import Rights
from noetl_stream.ports.traces import Tracing
from noetl_stream.server.answers.credential_values import SecretsResponder
from noetl_stream.server.assembly import ServerPorts, ServerTimes, StateBounds
from noetl_stream.server.formats import Formats
from noetl_stream.server.server import Server
from noetl_stream.server.upkeep.upkeep import Upkeep
from noetl_stream.settings.grants import GrantsSource
from noetl_stream.storage.object_places import PlacedBlobs
from noetl_stream.storage.sealed_blobs import SealedBlobs
from noetl_stream.tools.contract import Tool
from noetl_stream.worker.child_playbooks import PlanClient
from noetl_stream.worker.worker import Worker
from noetl_testkit.keys import CAPABILITIES, OBJECT_KEYS, SIGNER
from noetl_testkit.simulation.host import SimulatedHost

PLAYBOOKS_KEPT: Final = 512
RENEWAL_S: Final = 10.0


class ServerOfMany(Server):
    """A server to which each playbook's path is a namespace, so that it passes messages over all the time."""

    def namespace_of(self, path: str) -> str:
        return path


def server_on(
    host: SimulatedHost,
    catalog: Catalog,
    kinds: Kinds,
    times: ServerTimes,
    limits: Limits = DEFAULT_LIMITS,
    *,
    evaluator: Evaluator | None = None,
    secrets: SecretsResponder | None = None,
    grants: GrantsSource | None = None,
    upkeep: Upkeep | None = None,
    states: StateBounds | None = None,
    formats: Formats | None = None,
    tracing: Tracing | None = None,
    rights: Rights | None = None,
    open_streams: Collection[str] = (),
    max_stored_bytes: int | None = None,
    pool_labels: PoolLabels | None = None,
    places: PlacedBlobs | None = None,
    server_type: type[Server] = Server,
) -> Server:
    """A server whose ports are those of ``host``. It evaluates templates in this process by default."""
    ports = ServerPorts(
        log=host.log,
        queue=host.queue,
        store=host.store,
        blobs=SealedBlobs(host.blobs, OBJECT_KEYS),
        task_logs=host.task_logs,
        bus=host.bus,
        clock=host.clock,
        catalog=catalog,
        evaluator=evaluator or MemoryEvaluator(),
        capabilities=CAPABILITIES,
        signer=SIGNER,
        rights=rights,
        secrets=secrets,
        grants=grants,
        upkeep=upkeep,
        tracing=tracing,
        trigger_streams=host.trigger_streams,
        open_streams=open_streams,
        max_stored_bytes=max_stored_bytes,
        pool_labels=pool_labels,
        places=places,
    )
    return server_type(host.name, ports, kinds, times, limits, checker=check_once, states=states, formats=formats)


async def run_worker(
    host: SimulatedHost,
    tools: Mapping[str, Tool],
    slots: int,
    tracing: Tracing | None = None,
    pool: str = "default",
) -> None:
    """Runs a worker whose ports are those of ``host``.

    Its leases are renewed by simulated time: the worker's own thread renews them by real time, which hardly passes.
    """
    worker = Worker(
        name=host.name,
        pool=pool,
        slots=slots,
        event_log=host.log,
        queue=host.queue,
        bus=host.bus,
        blobs=host.blobs,
        task_logs=host.task_logs,
        clock=host.clock,
        tools=tools,
        plans=PlanClient({kind: tool.spec for kind, tool in tools.items()}, checker=_check_as_servers),
        tracing=tracing,
    )
    renewing = asyncio.create_task(_renew_leases(host))
    try:
        await worker.run()
    finally:
        renewing.cancel()


def check_once(
    text: str | bytes, kinds: Kinds, *, file: str = "<playbook>", limits: Limits = DEFAULT_LIMITS
) -> CheckResult:
    """As :func:`~noetl_stream.playbook.compile.compiler.check`; the same arguments give the same result again, so that
    the servers and workers of all simulations compile each playbook once, whatever they call its file.
    """
    return _checked(text, tuple(kinds.items()), limits)


def _check_as_servers(
    text: str | bytes, kinds: Kinds, *, file: str = "<playbook>", limits: Limits = DEFAULT_LIMITS
) -> CheckResult:
    """Workers do not know the operator's limits; here they may have the plans that servers have compiled."""
    return check_once(text, kinds, file=file)


@lru_cache(maxsize=PLAYBOOKS_KEPT)
def _checked(text: str | bytes, kinds: tuple[tuple[str, KindSpec], ...], limits: Limits) -> CheckResult:
    return check(text, dict(kinds), file="<playbook>", limits=limits)


async def _renew_leases(host: SimulatedHost) -> None:
    while host.alive:
        await host.clock.sleep(RENEWAL_S)
        host.renew_leases()
