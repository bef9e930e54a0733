"""What the rendered objects say: pods, containers, environments, edges of the network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from helm import Rendered

WITH_PODS = ("Deployment", "Job")

Labels = Mapping[str, str]


def of_kind(found: Iterable[Rendered], *kinds: str) -> list[Rendered]:
    return [one for one in found if one["kind"] in kinds]


def named(found: Iterable[Rendered], kind: str, name: str) -> Rendered:
    (one,) = (one for one in of_kind(found, kind) if one["metadata"]["name"] == name)
    return one


def name_of(one: Rendered) -> str:
    return f"{one['kind']}/{one['metadata']['name']}"


class PodOf(NamedTuple):
    """A pod template, with the name of the object that makes its pods."""

    owner: str
    labels: Labels
    spec: Rendered

    @property
    def component(self) -> str:
        return self.labels["app.kubernetes.io/component"]

    @property
    def role(self) -> str:
        """``server``, ``gateway``, ``worker``, ``migration`` or ``test``."""
        return "worker" if self.component.startswith("pool-") else self.component

    @property
    def containers(self) -> list[Rendered]:
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    @property
    def environment(self) -> dict[str, Rendered]:
        """The variables of all its containers."""
        return {one["name"]: one for container in self.containers for one in container.get("env", [])}


def pods(found: Iterable[Rendered]) -> Iterator[PodOf]:
    for one in found:
        if one["kind"] in WITH_PODS:
            template = one["spec"]["template"]
            yield PodOf(name_of(one), template["metadata"]["labels"], template["spec"])
        elif one["kind"] == "Pod":
            yield PodOf(name_of(one), one["metadata"]["labels"], one["spec"])


def roles(found: Iterable[Rendered]) -> list[PodOf]:
    """The pods of Deployments."""
    return [pod for pod in pods(found) if pod.owner.startswith("Deployment/")]


def secret_references(pod: PodOf) -> set[tuple[str, str]]:
    """The name and the key of each Secret that a variable needs."""
    sources = (one.get("valueFrom", {}).get("secretKeyRef", {}) for one in pod.environment.values())
    return {(source["name"], source["key"]) for source in sources if source and not source.get("optional")}


def matches(selector: Mapping[str, Any] | None, labels: Labels) -> bool:
    """Whether a label selector has these labels. ``None`` selects nothing."""
    return selector is not None and selector.get("matchLabels", {}).items() <= labels.items()


ANYBODY: Rendered = {}
"""The peer of a rule that names none."""


class Edge(NamedTuple):
    """A connection that a policy allows: to or from a peer on a port."""

    direction: str
    peer: str
    port: int | None


def edges(found: Sequence[Rendered], labels: Labels) -> set[Edge]:
    """What the policies that select these labels allow together."""
    allowed = set()
    for policy in of_kind(found, "NetworkPolicy"):
        if not matches(policy["spec"]["podSelector"], labels):
            continue
        for direction, side in (("ingress", "from"), ("egress", "to")):
            for rule in policy["spec"].get(direction) or []:
                for peer in rule.get(side, [ANYBODY]):
                    for port in rule.get("ports", [{"port": None}]):
                        allowed.add(Edge(side, peer_name(peer), port["port"]))
    return allowed


def peer_name(peer: Rendered) -> str:
    """The address, or the labels of a peer that tell it from others."""
    if peer == ANYBODY:
        return "anybody"
    if "ipBlock" in peer:
        return str(peer["ipBlock"]["cidr"])
    labels = {
        **peer.get("namespaceSelector", {}).get("matchLabels", {}),
        **peer.get("podSelector", {}).get("matchLabels", {}),
    }
    told = [value for key, value in labels.items() if key not in ("app.kubernetes.io/instance",)]
    ours = [value for value in told if value != "noetl-stream"]
    return (ours or ["pods of the namespace"])[-1]
