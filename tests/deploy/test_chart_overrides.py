"""What operators ordinarily override is taken, and stands where Kubernetes looks for it: all of it at the same time.

`test_chart_checkers.py` holds the rendered objects against the schemas of Kubernetes and of other projects.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helm import Rendered, render
from manifests import Edge, edges, name_of, named, of_kind, pods, roles, secret_references
from ruamel.yaml import YAML

pytestmark = pytest.mark.xdist_group("helm")

OVERRIDES = Path(__file__).with_name("overrides.yaml")
WANTED: dict[str, Any] = YAML(typ="safe", pure=True).load(OVERRIDES)
OF_PODS: dict[str, Any] = WANTED["podDefaults"]
ROLES = ("flows-server", "flows-gateway", "flows-worker-default", "flows-worker-night", "flows-migration", "flows-test")


@pytest.fixture(scope="module")
def found() -> tuple[Rendered, ...]:
    return render(OVERRIDES)


def templates(found: tuple[Rendered, ...]) -> dict[str, Rendered]:
    """The pod of each role, by the name of what makes it."""
    return {
        one["metadata"]["name"]: one["spec"].get("template", one)
        for one in found
        if one["kind"] in ("Deployment", "Job", "Pod")
    }


def programs(pod: Rendered) -> list[Rendered]:
    """Its containers that run the image of the chart."""
    return [
        one for one in (*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]) if "/noetl-" in one["image"]
    ]


def has(part: Rendered, field: str, wanted: Any) -> bool:
    """Whether a field has at least these entries."""
    if isinstance(wanted, dict):
        return wanted.items() <= part[field].items()
    return all(one in part[field] for one in wanted) if isinstance(wanted, list) else bool(part[field] == wanted)


IN_SPEC = ("dnsConfig", "dnsPolicy", "hostAliases", "runtimeClassName", "schedulerName", "affinity")
IN_EVERY_POD: dict[str, Callable[[Rendered], bool]] = {
    **{field: lambda pod, field=field: has(pod["spec"], field, OF_PODS[field]) for field in IN_SPEC},  # type: ignore[misc]
    "extraEnv": lambda pod: all(has(one, "env", OF_PODS["extraEnv"]) for one in programs(pod)),
    "envFrom": lambda pod: all(one["envFrom"] == OF_PODS["envFrom"] for one in programs(pod)),
    "extraVolumes": lambda pod: has(pod["spec"], "volumes", OF_PODS["extraVolumes"]),
    "extraVolumeMounts": lambda pod: all(
        has(one, "volumeMounts", OF_PODS["extraVolumeMounts"]) for one in programs(pod)
    ),
    "initContainers": lambda pod: has(pod["spec"], "initContainers", OF_PODS["initContainers"]),
    "sidecars, which do not keep a Job from ending": lambda pod: (
        pod["spec"]["initContainers"][0] == {**OF_PODS["sidecars"][0], "restartPolicy": "Always"}
    ),
    "securityContext": lambda pod: all(
        has(one, "securityContext", OF_PODS["securityContext"]) for one in programs(pod)
    ),
    "podSecurityContext without ids, for the ranges of OpenShift": lambda pod: (
        pod["spec"]["securityContext"]
        == {"runAsNonRoot": True, "supplementalGroups": [1000650000], "seccompProfile": {"type": "RuntimeDefault"}}
    ),
    "podSpec": lambda pod: OF_PODS["podSpec"].items() <= pod["spec"].items() and not pod["spec"]["enableServiceLinks"],
    "commonLabels": lambda pod: pod["metadata"]["labels"]["team"] == "data",
}


@pytest.mark.parametrize("override", IN_EVERY_POD)
def test_settings_of_pods_hold_for_every_role_the_migration_and_the_test(
    found: tuple[Rendered, ...], override: str
) -> None:
    made = templates(found)
    assert set(made) == set(ROLES)
    assert [name for name in ROLES if not IN_EVERY_POD[override](made[name])] == []


@pytest.mark.parametrize("field", ["podLabels", "podAnnotations"])
def test_labels_and_annotations_of_pods_are_those_of_every_pod(found: tuple[Rendered, ...], field: str) -> None:
    kind = field.removeprefix("pod").lower()
    for name, pod in templates(found).items():
        assert OF_PODS[field].items() <= pod["metadata"][kind].items(), name


def test_resources_that_make_pods_have_labels_and_annotations_of_their_own(found: tuple[Rendered, ...]) -> None:
    for one in of_kind(found, "Deployment", "Job"):
        assert one["metadata"]["labels"]["tier"] == "engine", name_of(one)
        assert one["metadata"]["annotations"]["reloader.stakater.com/auto"] == "true", name_of(one)


def test_every_object_has_the_common_labels_and_annotations_and_begins_with_the_name(
    found: tuple[Rendered, ...],
) -> None:
    for one in found:
        assert one["metadata"]["labels"]["team"] == "data", name_of(one)
        assert one["metadata"]["annotations"]["example.com/owner"] == "data@example.com", name_of(one)
        assert one["metadata"]["name"].partition("-")[0] == "flows", name_of(one)


def test_accounts_get_the_annotations_of_clouds_and_an_existing_one_is_not_created(found: tuple[Rendered, ...]) -> None:
    accounts = {one["metadata"]["name"]: one["metadata"] for one in of_kind(found, "ServiceAccount")}
    assert set(accounts) == set(ROLES) - {"flows-server", "flows-test"}
    for metadata in accounts.values():
        assert OF_PODS["serviceAccount"]["annotations"].items() <= metadata["annotations"].items()
        assert OF_PODS["serviceAccount"]["labels"].items() <= metadata["labels"].items()
    used = {name: pod["spec"]["serviceAccountName"] for name, pod in templates(found).items()}
    assert used["flows-server"] == "ours" and used["flows-test"] == "flows-gateway"


def test_placement_of_pods_is_set_for_all_and_by_role(found: tuple[Rendered, ...]) -> None:
    made = {name: pod["spec"] for name, pod in templates(found).items()}
    arch = {"kubernetes.io/arch": "amd64"}
    assert made["flows-migration"]["nodeSelector"] == made["flows-test"]["nodeSelector"] == arch
    assert made["flows-gateway"]["nodeSelector"] == {**arch, "pool": "edge"}
    assert {name for name, spec in made.items() if "tolerations" not in spec} == {"flows-gateway"}
    classes = {name: spec["priorityClassName"] for name, spec in made.items()}
    assert {name for name, found in classes.items() if found != "business"} == {"flows-worker-night"}


def test_pods_of_each_deployment_are_spread_as_configured(found: tuple[Rendered, ...]) -> None:
    for pod in roles(found):
        (constraint,) = pod.spec["topologySpreadConstraints"]
        assert constraint["topologyKey"] == "rack" and "matchLabelKeys" not in constraint
        assert constraint["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == pod.component


def test_an_image_is_set_by_role_and_by_pool(found: tuple[Rendered, ...]) -> None:
    images = {name: programs(pod)[0] for name, pod in templates(found).items()}
    ours = "registry.example.com:5000/noetl-stream"
    assert {name: one["image"] for name, one in images.items()} == {
        **dict.fromkeys(ROLES, f"{ours}:1.2.3"),
        "flows-server": f"{ours}:1.2.4",
        "flows-worker-night": "registry.example.com/noetl-night@sha256:" + "0" * 64,
    }
    assert images["flows-worker-night"]["imagePullPolicy"] == "Always"
    secrets = {name: pod["spec"]["imagePullSecrets"] for name, pod in templates(found).items()}
    assert secrets.pop("flows-worker-night") == [{"name": "night"}]
    assert all(one == [{"name": "registry"}] for one in secrets.values())


def test_a_tag_of_a_role_goes_before_the_digest_of_all() -> None:
    settings = ('image.repository="noetl"', f'image.digest="sha256:{"0" * 64}"', 'server.image.tag="9.9.9"')
    images = {pod.role: pod.spec["containers"][0]["image"] for pod in roles(render(settings=settings))}
    assert images == {
        "server": "noetl:9.9.9",
        "gateway": f"noetl@sha256:{'0' * 64}",
        "worker": f"noetl@sha256:{'0' * 64}",
    }


def test_secrets_are_the_operators_by_their_names(found: tuple[Rendered, ...]) -> None:
    names = {name for pod in pods(found) for name, _ in secret_references(pod)}
    assert names == {"our-seeds", "our-dsns", "our-keys"}


def test_every_program_shows_nats_its_certificate(found: tuple[Rendered, ...]) -> None:
    for pod in pods(found):
        for container in programs({"spec": pod.spec}):
            mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            shown = {one["name"]: one.get("value") for one in container["env"]}
            assert pod.role == "test" or shown["NOETL_NATS_CERTIFICATE"] == mounts["nats-tls"], pod.owner
        secrets = [volume["secret"]["secretName"] for volume in pod.spec["volumes"] if volume["name"] == "nats-tls"]
        assert secrets == ["our-certificate"], pod.owner


def test_probes_keep_what_is_not_overridden(found: tuple[Rendered, ...]) -> None:
    for pod in roles(found):
        (container,) = pod.spec["containers"]
        assert container["startupProbe"]["failureThreshold"] == 300
        assert container["livenessProbe"]["periodSeconds"] == 30
        assert container["readinessProbe"]["timeoutSeconds"] == 15
        assert {container[one]["httpGet"]["port"] for one in ("startupProbe", "livenessProbe")} == {"status"}


def test_a_deployment_rolls_out_as_configured(found: tuple[Rendered, ...]) -> None:
    for one in of_kind(found, "Deployment"):
        spec = one["spec"]
        assert (spec["minReadySeconds"], spec["revisionHistoryLimit"]) == (10, 10)
        assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 120
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}}
        assert spec["strategy"] == ({"type": "Recreate"} if one["metadata"]["name"] == "flows-gateway" else rolling)


def test_a_disruption_budget_is_a_percentage_a_least_number_or_not_made(found: tuple[Rendered, ...]) -> None:
    bounds = ("maxUnavailable", "minAvailable")
    budgets = {
        one["metadata"]["name"]: {bound: one["spec"][bound] for bound in bounds if bound in one["spec"]}
        for one in of_kind(found, "PodDisruptionBudget")
    }
    percentage = {"maxUnavailable": "25%"}
    assert budgets == {
        "flows-server": {"minAvailable": 1},
        "flows-worker-default": percentage,
        "flows-worker-night": percentage,
    }


def test_hooks_of_containers_replace_those_of_the_chart(found: tuple[Rendered, ...]) -> None:
    for pod in roles(found):
        assert pod.spec["containers"][0]["lifecycle"] == OF_PODS["lifecycle"], pod.owner
    for program in programs(templates(found)["flows-migration"]):
        assert "lifecycle" not in program


def test_servers_know_labels_of_pools_and_streams_of_triggers(found: tuple[Rendered, ...]) -> None:
    (server,) = programs(templates(found)["flows-server"])
    shown = {one["name"]: one.get("value") for one in server["env"]}
    assert WANTED["server"]["settings"].items() <= shown.items()


def test_objects_of_ones_own_are_templates(found: tuple[Rendered, ...]) -> None:
    assert named(found, "ConfigMap", "flows-own")["metadata"]["labels"] == {"team": "data"}


def test_resources_are_those_of_the_role(found: tuple[Rendered, ...]) -> None:
    (server,) = programs(templates(found)["flows-server"])
    assert server["resources"] == WANTED["server"]["resources"]
    for container in programs(templates(found)["flows-migration"]):
        assert container["resources"]["limits"] == {"cpu": "1", "memory": "1Gi"}
    assert named(found, "Job", "flows-migration")["spec"]["activeDeadlineSeconds"] == 1800


def test_servers_scale_by_lag_pools_to_zero_and_gateways_by_cpu(found: tuple[Rendered, ...]) -> None:
    (scaler,) = of_kind(found, "HorizontalPodAutoscaler")
    assert scaler["metadata"]["name"] == "flows-gateway"
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 300}, "scaleUp": {"stabilizationWindowSeconds": 15}}
    assert scaler["spec"]["behavior"] == behavior
    servers, night = (named(found, "ScaledObject", f"flows-{name}")["spec"] for name in ("server", "worker-night"))
    (lag,) = servers["triggers"]
    assert lag["metadata"]["query"] == 'sum(max by (partition) (noetl_partition_lag{namespace="noetl"}))'
    assert (lag["metadata"]["threshold"], servers["minReplicaCount"]) == ("500", 2)
    assert night["minReplicaCount"] == 0
    assert night["fallback"]["replicas"] == 1, "one takes what comes while KEDA cannot ask"
    scaled = {one["metadata"]["name"] for one in of_kind(found, "Deployment") if "replicas" not in one["spec"]}
    assert scaled == {"flows-server", "flows-gateway", "flows-worker-night"}


def test_a_service_is_what_a_cloud_wants(found: tuple[Rendered, ...]) -> None:
    service = named(found, "Service", "flows-gateway")
    wanted = dict(WANTED["gateway"]["service"])
    assert wanted.pop("labels").items() <= service["metadata"]["labels"].items()
    assert wanted.pop("annotations").items() <= service["metadata"]["annotations"].items()
    (port,) = service["spec"]["ports"]
    assert (port["port"], port["nodePort"]) == (wanted.pop("port"), wanted.pop("nodePort"))
    assert wanted.items() <= service["spec"].items()


def test_an_ingress_has_its_class_paths_and_certificates(found: tuple[Rendered, ...]) -> None:
    (ingress,) = of_kind(found, "Ingress")
    wanted = WANTED["gateway"]["ingress"]
    assert wanted["annotations"].items() <= ingress["metadata"]["annotations"].items()
    assert ingress["spec"]["ingressClassName"] == "nginx"
    assert ingress["spec"]["tls"] == [{"secretName": "noetl-tls", "hosts": wanted["hosts"]}, *wanted["tls"]]
    assert [rule["host"] for rule in ingress["spec"]["rules"]] == wanted["hosts"]
    for rule in ingress["spec"]["rules"]:
        paths = [{"path": path["path"], "pathType": path["pathType"]} for path in rule["http"]["paths"]]
        assert paths == wanted["paths"]


def test_a_route_of_the_gateway_api_has_its_parents_matches_and_filters(found: tuple[Rendered, ...]) -> None:
    (route,) = of_kind(found, "HTTPRoute")
    wanted = WANTED["gateway"]["httpRoute"]
    assert wanted["labels"].items() <= route["metadata"]["labels"].items()
    assert (route["spec"]["parentRefs"], route["spec"]["hostnames"]) == (wanted["parentRefs"], wanted["hosts"])
    (rule,) = route["spec"]["rules"]
    assert {key: rule[key] for key in ("matches", "filters", "timeouts")} == {
        key: wanted[key] for key in ("matches", "filters", "timeouts")
    }
    assert rule["backendRefs"] == [{"name": "flows-gateway", "port": 443}]


def test_further_rules_open_edges_of_every_pod(found: tuple[Rendered, ...]) -> None:
    opened = {Edge("from", "10.7.0.0/16", 9464), Edge("to", "10.8.0.0/16", 8200)}
    for pod in pods(found):
        assert opened <= edges(found, pod.labels), pod.owner


def test_a_monitor_is_found_by_its_prometheus_and_relabels(found: tuple[Rendered, ...]) -> None:
    (monitor,) = of_kind(found, "ServiceMonitor")
    wanted = WANTED["monitoring"]["serviceMonitor"]
    assert wanted["labels"].items() <= monitor["metadata"]["labels"].items()
    assert (monitor["metadata"]["namespace"], monitor["spec"]["jobLabel"]) == (wanted["namespace"], wanted["jobLabel"])
    rules, dashboards = named(found, "PrometheusRule", "flows"), named(found, "ConfigMap", "flows-dashboards")
    assert {one["metadata"]["namespace"] for one in (rules, dashboards)} == {"monitoring"}
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True
    assert (endpoint["interval"], endpoint["scrapeTimeout"]) == ("15s", "10s")
    assert endpoint["relabelings"][1:] == wanted["relabelings"]
    assert endpoint["metricRelabelings"] == wanted["metricRelabelings"]


@pytest.mark.parametrize(
    ("settings", "begins"),
    [(("nameOverride='flows'",), "noetl-flows-"), (("nameOverride='noetl'",), "noetl-"), ((), "noetl-")],
)
def test_a_name_stands_behind_that_of_the_release(settings: tuple[str, ...], begins: str) -> None:
    as_json = tuple(one.replace("'", '"') for one in ('image.repository="noetl"', *settings))
    names = {one["metadata"]["name"] for one in of_kind(render(settings=as_json), "Deployment")}
    assert names == {f"{begins}{role}" for role in ("server", "gateway", "worker-default")}
