"""Everything a person can see of a run and do to it: what the gateway serves and the command line calls.

Two implementations: :mod:`noetl_stream.client` works on NATS and Postgres itself, :mod:`noetl_stream.adapters.gateway`
asks a gateway over HTTP. Answers are documents (:mod:`noetl_stream.ports.operations.documents`).
"""

from __future__ import annotations

from typing import NamedTuple

from noetl_stream.ports.operations.access import Access
from noetl_stream.ports.operations.cluster import Cluster
from noetl_stream.ports.operations.credentials import CredentialStore
from noetl_stream.ports.operations.executions import Executions
from noetl_stream.ports.operations.feed import Feed
from noetl_stream.ports.operations.playbooks import Playbooks


class Operations(NamedTuple):
    """The verbs, by noun."""

    executions: Executions
    feed: Feed
    playbooks: Playbooks
    credentials: CredentialStore
    cluster: Cluster
    access: Access
