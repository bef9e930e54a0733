"""The operations: everything that people can see of executions and do to them, by the gateway and the command line.

There are two implementations: :mod:`noetl_stream.operations` works on NATS and Postgres itself,
:mod:`noetl_stream.adapters.gateway_client` asks a gateway over HTTP. Answers are documents
(:mod:`noetl_stream.ports.operations.verbs`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:  # a command imports what it calls
    from noetl_stream.ports.operations.access import Access, CredentialStore, GrantsRegistry
    from noetl_stream.ports.operations.cluster import Cluster, Diagnosis
    from noetl_stream.ports.operations.executions import Executions
    from noetl_stream.ports.operations.playbooks import Playbooks
    from noetl_stream.ports.operations.reading.events import Feed
    from noetl_stream.ports.operations.reading.views import Views
    from noetl_stream.ports.operations.selections import Selections
    from noetl_stream.ports.operations.starters import Schedules, Triggers


PORTS: Final = {
    "executions": "executions:Executions",
    "feed": "reading.events:Feed",
    "playbooks": "playbooks:Playbooks",
    "credentials": "access:CredentialStore",
    "cluster": "cluster:Cluster",
    "access": "access:Access",
    "diagnosis": "cluster:Diagnosis",
    "views": "reading.views:Views",
    "selections": "selections:Selections",
    "schedules": "starters:Schedules",
    "triggers": "starters:Triggers",
    "grants": "access:GrantsRegistry",
}
"""The ports by noun: a module of this package, and its class."""


def port_of(noun: str) -> type:
    """The port of a noun.

    Raises:
        AttributeError: there is no such noun.
    """
    if noun not in PORTS:
        raise AttributeError(f"operations have no {noun}")
    module, name = PORTS[noun].split(":")
    port: type = getattr(import_module(f"{__name__}.{module}"), name)
    return port


class Operations(msgspec.Struct, frozen=True):
    """The verbs, by noun. Objects that make or wrap the parts on first use are cast to it."""

    executions: Executions
    feed: Feed
    playbooks: Playbooks
    credentials: CredentialStore
    cluster: Cluster
    access: Access
    diagnosis: Diagnosis
    views: Views
    selections: Selections
    schedules: Schedules
    triggers: Triggers
    grants: GrantsRegistry
