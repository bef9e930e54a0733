"""The network policies allow each connection that the code makes, and no other."""

from __future__ import annotations

import ipaddress

import pytest
from helm import CHART, Rendered, render
from manifests import Edge, edges, matches, named, pods

pytestmark = pytest.mark.xdist_group("helm")

NATS, POSTGRES, DNS, COLLECTOR = 4222, 5432, 53, 4318


def allowed(found: tuple[Rendered, ...]) -> dict[str, set[Edge]]:
    """The edges of each component."""
    return {pod.component: edges(found, pod.labels) for pod in pods(found)}


TO_DNS, TO_NATS, TO_POSTGRES, TO_COLLECTOR = (
    Edge("to", "kube-dns", DNS),
    Edge("to", "nats", NATS),
    Edge("to", "noetl-postgres", POSTGRES),
    Edge("to", "opentelemetry-collector", COLLECTOR),
)
FROM_PROMETHEUS = Edge("from", "monitoring", 9464)


def test_everything_is_denied_that_no_policy_allows(production: tuple[Rendered, ...]) -> None:
    denied = named(production, "NetworkPolicy", "noetl-default-deny")["spec"]
    assert denied["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & denied.keys()
    assert all(matches(denied["podSelector"], pod.labels) for pod in pods(production))


def test_servers_reach_their_stores_and_the_collector_and_nobody_reaches_them(
    production: tuple[Rendered, ...],
) -> None:
    assert allowed(production)["server"] == {TO_DNS, TO_NATS, TO_POSTGRES, TO_COLLECTOR, FROM_PROMETHEUS}


def test_gateways_are_reached_by_the_proxy_and_reach_the_identity_provider(production: tuple[Rendered, ...]) -> None:
    assert allowed(production)["gateway"] == {
        *(TO_DNS, TO_NATS, TO_POSTGRES, TO_COLLECTOR, FROM_PROMETHEUS),
        Edge("to", "203.0.113.10/32", 443),
        *(Edge("from", "gateways", 8080), Edge("from", "test", 8080)),
    }


def test_a_worker_reaches_nats_the_collector_and_what_its_pool_may_and_never_postgres(
    production: tuple[Rendered, ...],
) -> None:
    internet = {Edge("to", "0.0.0.0/0", None), Edge("to", "2000::/3", None)}
    own = {TO_DNS, TO_NATS, TO_COLLECTOR, FROM_PROMETHEUS}
    assert allowed(production)["pool-untrusted"] == own
    assert allowed(production)["pool-default"] == own | internet
    assert allowed(production)["pool-reports"] == own | internet | {Edge("to", "10.1.0.0/16", 5432)}


SMALL = CHART / "values" / "small.yaml"
TRACES = 'traces.endpoint="http://collector.monitoring.svc:4318"'
ELSEWHERE = 'networkPolicy.{}=[{{"ipBlock": {{"cidr": "10.9.0.0/16"}}}}]'


def opened(*settings: str) -> dict[str, set[Edge]]:
    """The edges of each component that there are only by these settings."""
    before, after = allowed(render(SMALL)), allowed(render(SMALL, settings=settings))
    assert all(before[name] <= after[name] for name in before)
    return {name: after[name] - before[name] for name in after if after[name] - before[name]}


def test_traces_open_the_edge_to_the_collector_for_those_who_make_spans() -> None:
    assert opened(TRACES) == {name: {TO_COLLECTOR} for name in ("server", "gateway", "pool-default")}
    site = (TRACES, ELSEWHERE.format("collector"), "networkPolicy.collectorPort=443")
    edge = {Edge("to", "10.9.0.0/16", 443)}
    assert opened(*site) == dict.fromkeys(("server", "gateway", "pool-default"), edge)


def test_a_collector_that_nobody_names_opens_nothing() -> None:
    assert opened(ELSEWHERE.format("collector")) == {}
    assert opened(TRACES, "networkPolicy.collector=[]") == {}


def test_a_replica_opens_an_edge_for_gateways_where_postgres_does_not_cover_it() -> None:
    read, replica = 'postgres.readSecret="noetl-replica"', ELSEWHERE.format("postgresReplica")
    assert opened(read) == opened(replica) == {}
    assert opened(read, replica) == {"gateway": {Edge("to", "10.9.0.0/16", POSTGRES)}}


def test_the_migration_reaches_nats_and_postgres_alone(production: tuple[Rendered, ...]) -> None:
    assert allowed(production)["migration"] == {TO_DNS, TO_NATS, TO_POSTGRES}


def test_the_migration_that_makes_the_first_token_reaches_kubernetes_too() -> None:
    anywhere = {Edge("to", "anybody", 443), Edge("to", "anybody", 6443)}
    assert allowed(render(SMALL))["migration"] == {TO_DNS, TO_NATS, TO_POSTGRES, *anywhere}
    narrowed = allowed(render(SMALL, settings=(ELSEWHERE.format("kubernetes"),)))["migration"]
    assert narrowed == {TO_DNS, TO_NATS, TO_POSTGRES, *(Edge("to", "10.9.0.0/16", port) for port in (443, 6443))}


def test_the_test_reaches_a_gateway_alone(production: tuple[Rendered, ...]) -> None:
    assert allowed(production)["test"] == {TO_DNS, Edge("to", "gateway", 8080)}


def test_the_internet_of_a_pool_has_no_private_address(production: tuple[Rendered, ...]) -> None:
    policy = named(production, "NetworkPolicy", "noetl-worker-default")
    blocks = [peer["ipBlock"] for rule in policy["spec"]["egress"] for peer in rule["to"] if "ipBlock" in peer]
    for address in ("10.1.2.3", "172.20.0.1", "192.168.1.1", "169.254.169.254", "127.0.0.1", "100.64.0.1", "fd00::1"):
        found = ipaddress.ip_address(address)
        for block in blocks:
            network = ipaddress.ip_network(block["cidr"])
            excepted = [ipaddress.ip_network(one) for one in block.get("except", [])]
            assert found not in network or any(found in one for one in excepted), address
