"""What the rendered objects promise, one sentence a test, for every example of an installation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helm import CHART, PRODUCTION, ROOT, Rendered, objects, render
from manifests import (
    PodOf,
    matches,
    name_of,
    named,
    of_kind,
    pods,
    roles,
    secret_references,
)

from noetl_stream.cli.main import COMMANDS
from noetl_stream.protocol.nats_permissions import ADMIN, GATEWAY, SERVER, worker_identity
from noetl_stream.settings.key_variables import CREDENTIAL_PREFIX
from noetl_stream.settings.sources.environment import ENGINE_VARIABLES, LIMIT_PREFIX, WORKER_VARIABLES, Settings
from noetl_stream.worker.worker_limits import LAST_REPORTS_S

pytestmark = pytest.mark.xdist_group("helm")

SECRETS = CHART / "examples" / "external-secrets.yaml"
CUSTOM_KINDS = {"HTTPRoute", "ScaledObject", "ServiceMonitor", "PrometheusRule"}

# Objects


def test_every_object_has_a_name_of_its_own(example: tuple[Rendered, ...]) -> None:
    names = [name_of(one) for one in example]
    assert len(names) == len(set(names))


def test_every_object_says_its_namespace_and_whose_it_is(example: tuple[Rendered, ...]) -> None:
    for one in example:
        assert one["metadata"]["namespace"] == "noetl", name_of(one)
        assert one["metadata"]["labels"]["app.kubernetes.io/part-of"] == "noetl-stream", name_of(one)


def test_names_are_short_enough_for_labels(example: tuple[Rendered, ...]) -> None:
    assert [name_of(one) for one in example if len(one["metadata"]["name"]) > 63] == []


def test_production_has_each_kind_that_an_installation_needs(production: tuple[Rendered, ...]) -> None:
    kinds = {one["kind"] for one in production}
    assert kinds == CUSTOM_KINDS | {
        *("Deployment", "Service", "Job", "Pod", "ConfigMap"),
        *("ServiceAccount", "PodDisruptionBudget", "NetworkPolicy", "HorizontalPodAutoscaler"),
    }


SMALL = CHART / "values" / "small.yaml"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def test_the_chart_makes_no_secret(example: tuple[Rendered, ...]) -> None:
    """Secrets are the operator's; that of the first token is made by the migration."""
    assert of_kind(example, "Secret") == []


def test_the_only_right_in_kubernetes_is_to_one_secret_while_the_migration_runs(
    example: tuple[Rendered, ...],
) -> None:
    assert of_kind(example, "ClusterRole", "ClusterRoleBinding") == []
    for role in of_kind(example, "Role"):
        (rule,) = role["rules"]
        assert (rule["apiGroups"], rule["resources"], rule["resourceNames"]) == ([""], ["secrets"], ["noetl-bootstrap"])
        assert set(rule["verbs"]) == {"get", "create", "patch"}, "no list, no watch, no delete"
        (binding,) = of_kind(example, "RoleBinding")
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert [one["name"] for one in binding["subjects"]] == ["noetl-migration"]
        for one in (role, binding):
            assert one["metadata"]["annotations"]["helm.sh/hook-delete-policy"].endswith(",hook-succeeded")


def test_one_container_alone_can_talk_to_kubernetes() -> None:
    found = render(SMALL)
    holders = {
        (pod.role, container["name"])
        for pod in pods(found)
        for container in pod.containers
        if any(mount["mountPath"] == ACCOUNT for mount in container.get("volumeMounts", []))
    }
    assert holders == {("migration", "bootstrap-token")}


def test_the_migration_makes_the_first_token_between_the_schema_and_the_streams() -> None:
    (migration,) = (pod for pod in pods(render(SMALL)) if pod.role == "migration")
    commands = [container["command"][1:] for container in migration.containers]
    assert commands[:2] == [["database", "migrate"], ["token", "bootstrap", "noetl-bootstrap"]]
    (role,) = of_kind(render(SMALL), "Role")
    assert role["rules"][0]["resourceNames"] == [commands[1][-1]]


@pytest.mark.parametrize(
    "setting",
    ["bootstrap.enabled=false", 'gateway.settings={"NOETL_OIDC_ISSUER": "https://a"}', "gateway.enabled=false"],
)
def test_where_no_first_token_is_wanted_nobody_can_talk_to_kubernetes(setting: str) -> None:
    found = render(SMALL, settings=(setting,))
    assert of_kind(found, "Role", "RoleBinding") == []
    (migration,) = (pod for pod in pods(found) if pod.role == "migration")
    assert "account" not in {volume["name"] for volume in migration.spec["volumes"]}


# Selectors


def test_a_deployment_selects_its_own_pods_alone(example: tuple[Rendered, ...]) -> None:
    made = list(pods(example))
    for one in of_kind(example, "Deployment"):
        selected = [pod.owner for pod in made if matches(one["spec"]["selector"], pod.labels)]
        assert selected == [name_of(one)]


def test_a_disruption_budget_is_for_the_pods_of_one_deployment(example: tuple[Rendered, ...]) -> None:
    budgets = of_kind(example, "PodDisruptionBudget")
    for budget in budgets:
        selected = [pod.owner for pod in pods(example) if matches(budget["spec"]["selector"], pod.labels)]
        assert selected == [f"Deployment/{budget['metadata']['name']}"]
    assert len(budgets) == len(of_kind(example, "Deployment"))


def test_a_disruption_budget_never_blocks_a_drain(example: tuple[Rendered, ...]) -> None:
    """One pod may always go, also the only one, and one that is not ready in any case."""
    for budget in of_kind(example, "PodDisruptionBudget"):
        assert budget["spec"]["maxUnavailable"] == 1
        assert "minAvailable" not in budget["spec"]
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_the_service_sends_requests_to_the_port_of_gateways(production: tuple[Rendered, ...]) -> None:
    service = named(production, "Service", "noetl-gateway")
    (gateway,) = (pod for pod in pods(production) if service["spec"]["selector"].items() <= pod.labels.items())
    ports = {port["name"]: port["containerPort"] for port in gateway.spec["containers"][0]["ports"]}
    assert gateway.role == "gateway"
    assert ports[service["spec"]["ports"][0]["targetPort"]] == listening_port(gateway)


def test_the_monitor_finds_the_status_port_of_every_role(production: tuple[Rendered, ...]) -> None:
    (monitor,) = of_kind(production, "ServiceMonitor")
    (service,) = (
        one for one in of_kind(production, "Service") if matches(monitor["spec"]["selector"], one["metadata"]["labels"])
    )
    (port,) = service["spec"]["ports"]
    assert monitor["spec"]["endpoints"][0]["port"] == port["name"]
    for pod in roles(production):
        assert service["spec"]["selector"].items() <= pod.labels.items()
        assert {"name": port["targetPort"], "containerPort": 9464} in pod.spec["containers"][0]["ports"]
    assert service["spec"]["publishNotReadyAddresses"], "a process that is not ready has to be seen as well"


def test_an_autoscaler_is_for_a_deployment_that_says_no_number(production: tuple[Rendered, ...]) -> None:
    scaled = of_kind(production, "HorizontalPodAutoscaler", "ScaledObject")
    names = [one["spec"]["scaleTargetRef"]["name"] for one in scaled]
    assert len(names) == len(set(names)) == 4
    for one in of_kind(production, "Deployment"):
        assert ("replicas" in one["spec"]) == (one["metadata"]["name"] not in names)


def test_routes_lead_to_the_service_of_gateways(example: tuple[Rendered, ...]) -> None:
    ports = {port["name"]: port["port"] for one in of_kind(example, "Service") for port in one["spec"]["ports"]}
    for ingress in of_kind(example, "Ingress"):
        for rule in ingress["spec"]["rules"]:
            (path,) = rule["http"]["paths"]
            assert path["backend"]["service"] == {"name": "noetl-gateway", "port": {"name": "http"}}
    for route in of_kind(example, "HTTPRoute"):
        assert route["spec"]["rules"][0]["backendRefs"] == [{"name": "noetl-gateway", "port": ports["http"]}]


def test_a_gateway_answers_to_every_name_that_leads_to_it(example: tuple[Rendered, ...]) -> None:
    for pod in roles(example):
        if pod.role == "gateway":
            called = set(pod.environment["NOETL_GATEWAY_HOSTS"]["value"].split(","))
            ingresses = {rule["host"] for one in of_kind(example, "Ingress") for rule in one["spec"]["rules"]}
            routes = {host for one in of_kind(example, "HTTPRoute") for host in one["spec"]["hostnames"]}
            assert {"noetl-gateway", "noetl-gateway.noetl", "noetl-gateway.noetl.svc", *ingresses, *routes} == called


# Accounts and privileges


def test_no_pod_has_a_token_of_kubernetes(example: tuple[Rendered, ...]) -> None:
    for pod in pods(example):
        assert pod.spec["automountServiceAccountToken"] is False, pod.owner
        assert pod.spec["enableServiceLinks"] is False, pod.owner
    for account in of_kind(example, "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False, name_of(account)


def test_every_pod_has_an_account_that_exists(example: tuple[Rendered, ...]) -> None:
    accounts = {one["metadata"]["name"] for one in of_kind(example, "ServiceAccount")}
    for pod in pods(example):
        assert pod.spec["serviceAccountName"] in accounts, pod.owner


def test_a_policy_is_for_pods_that_there_are(example: tuple[Rendered, ...]) -> None:
    for policy in of_kind(example, "NetworkPolicy"):
        assert any(matches(policy["spec"]["podSelector"], pod.labels) for pod in pods(example)), name_of(policy)


def test_every_role_has_an_account_of_its_own(example: tuple[Rendered, ...]) -> None:
    used = [pod.spec["serviceAccountName"] for pod in pods(example) if pod.role != "test"]
    assert len(used) == len(set(used))


def test_every_container_meets_the_restricted_profile(example: tuple[Rendered, ...]) -> None:
    for pod in pods(example):
        assert pod.spec["securityContext"]["runAsNonRoot"] is True, pod.owner
        assert pod.spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, pod.owner
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.spec.keys(), pod.owner
        for container in pod.containers:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False, pod.owner
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, pod.owner
            assert "privileged" not in container["securityContext"], pod.owner
        for volume in pod.spec.get("volumes", []):
            assert volume.keys() - {"name"} <= {"emptyDir", "configMap", "secret", "projected"}, pod.owner


def test_a_pool_whose_tasks_must_be_confined_fully_has_the_filter_that_lets_them(
    production: tuple[Rendered, ...],
) -> None:
    (container,) = (
        one
        for pod in pods(production)
        for one in pod.containers
        if {"name": "NOETL_CHILD_CONFINEMENT", "value": "full"} in one.get("env", [])
    )
    assert {"name": "NOETL_POOL", "value": "reports"} in container["env"]
    profile = {"type": "Localhost", "localhostProfile": "noetl-stream/worker.json"}
    assert container["securityContext"]["seccompProfile"] == profile


def test_root_file_systems_are_read_only_and_temporary_files_bounded(example: tuple[Rendered, ...]) -> None:
    for pod in pods(example):
        for container in pod.containers:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True, pod.owner
        for volume in pod.spec.get("volumes", []):
            assert "emptyDir" not in volume or volume["emptyDir"]["sizeLimit"], pod.owner


def test_every_container_says_what_memory_and_cpu_it_needs(example: tuple[Rendered, ...]) -> None:
    for pod in pods(example):
        for container in pod.containers:
            assert container["resources"]["requests"].keys() >= {"cpu", "memory"}, pod.owner
            assert "memory" in container["resources"]["limits"], pod.owner


def test_all_pods_run_one_image_of_a_fixed_version(example: tuple[Rendered, ...]) -> None:
    images = {container["image"] for pod in pods(example) for container in pod.containers}
    assert len(images) == 1
    assert re.search(r":[\w.-]+$|@sha256:[0-9a-f]{64}$", images.pop())


# Commands, environment, secrets


def test_every_command_is_one_of_the_program(example: tuple[Rendered, ...]) -> None:
    for pod in pods(example):
        for container in pod.containers:
            program, *words = container["command"]
            assert program == "noetl-stream" or pod.role == "test", pod.owner
            assert pod.role == "test" or words[0] in COMMANDS, pod.owner


def test_every_variable_is_a_setting_of_the_program(example: tuple[Rendered, ...]) -> None:
    known = {one.name for one in Settings.variables().values()}
    families = (CREDENTIAL_PREFIX, LIMIT_PREFIX, "NOETL_OIDC_", "NOETL_TOOL_", "OTEL_")
    of_python = {"SSL_CERT_FILE"}
    for pod in pods(example):
        unknown = pod.environment.keys() - known - of_python
        assert [name for name in unknown if not name.startswith(families)] == [], pod.owner


def test_the_environment_of_every_process_is_accepted_by_the_program(example: tuple[Rendered, ...]) -> None:
    for pod in roles(example):
        plain = {name: one["value"] for name, one in pod.environment.items() if "value" in one}
        assert Settings.from_environment(plain).log_format == "json"


def test_a_worker_holds_nothing_of_the_engine_but_its_nats_identity(example: tuple[Rendered, ...]) -> None:
    for pod in roles(example):
        if pod.role == "worker":
            assert pod.environment.keys() & ENGINE_VARIABLES == WORKER_VARIABLES, pod.owner


def test_each_role_holds_the_keys_of_its_role_alone(example: tuple[Rendered, ...]) -> None:
    """docs/how-to/own-servers.md has the table."""
    shared = {"NOETL_ACCESS_KEY", "NOETL_CREDENTIAL_KEY", "NOETL_CREDENTIAL_OLD_KEYS"}
    held = {
        "server": shared | {"NOETL_SERVER_KEY"},
        "gateway": shared,
        "worker": set(),
        "migration": set(),
        "test": set(),
    }
    for pod in pods(example):
        assert pod.environment.keys() & (shared | {"NOETL_SERVER_KEY"}) == held[pod.role], pod.owner


def test_each_role_has_the_nats_identity_and_the_database_user_of_its_role(example: tuple[Rendered, ...]) -> None:
    users = {"server": {"server"}, "gateway": {"gateway"}, "migration": {"owner"}}
    for pod in pods(example):
        if pod.role == "test":
            continue
        pool = pod.component.removeprefix("pool-")
        identities = {"server": SERVER, "gateway": GATEWAY, "migration": ADMIN, "worker": worker_identity(pool)}
        assert ("noetl-nats-seeds", f"{identities[pod.role]}.nk") in secret_references(pod), pod.owner
        databases = {key for name, key in secret_references(pod) if name == "noetl-postgres"}
        assert databases - {"gateway-read"} == users.get(pod.role, set()), pod.owner


def holders(found: tuple[Rendered, ...], prefix: str) -> set[str]:
    """The roles that have a variable of this name."""
    return {pod.role for pod in pods(found) if any(name.startswith(prefix) for name in pod.environment)}


def test_gateways_alone_read_from_a_replica_if_there_is_one(production: tuple[Rendered, ...]) -> None:
    assert holders(production, "NOETL_POSTGRES_READ_DSN") == {"gateway"}
    assert holders(render(CHART / "values" / "small.yaml"), "NOETL_POSTGRES_READ_DSN") == set()


def test_roles_that_make_spans_send_them_to_the_collector(production: tuple[Rendered, ...]) -> None:
    assert holders(production, "OTEL_") == {"server", "gateway", "worker"}
    for pod in roles(production):
        plain = {name: one["value"] for name, one in pod.environment.items() if "value" in one}
        traces = Settings.from_environment(plain).traces
        assert traces is not None and traces.endpoint == "https://collector.monitoring.svc:4318/v1/traces"
        assert ("noetl-traces", "headers") in secret_references(pod)
        assert plain["OTEL_TRACES_SAMPLER_ARG"] == "0.1"
        assert plain["OTEL_EXPORTER_OTLP_CERTIFICATE"] == plain["SSL_CERT_FILE"]


def test_without_a_collector_nobody_knows_of_traces() -> None:
    assert holders(render(CHART / "values" / "small.yaml"), "OTEL_") == set()


def test_no_secret_stands_in_plain_text(example: tuple[Rendered, ...]) -> None:
    secret = {
        one.name
        for field, one in Settings.variables().items()
        if one.is_secret and field != "nats_url"  # who connects is said by a seed
    }
    for pod in pods(example):
        plain = {name for name, one in pod.environment.items() if "value" in one}
        assert [name for name in plain if name in secret or name.startswith(CREDENTIAL_PREFIX)] == [], pod.owner


def test_every_secret_and_key_is_in_the_documented_ones(example: tuple[Rendered, ...]) -> None:
    """The example of External Secrets makes what the chart refers to."""
    made = {
        (one["spec"]["target"]["name"], entry["secretKey"])
        for one in objects(SECRETS.read_text())
        if one["kind"] == "ExternalSecret"
        for entry in one["spec"]["data"]
    }
    for pod in pods(example):
        ours = {(name, key) for name, key in secret_references(pod) if not key.startswith("worker-")}
        assert ours <= made, pod.owner


def test_every_config_map_that_is_mounted_exists_or_is_the_operators(example: tuple[Rendered, ...]) -> None:
    made = {one["metadata"]["name"]: one for one in of_kind(example, "ConfigMap")}
    for pod in pods(example):
        for volume in pod.spec.get("volumes", []):
            name = volume.get("configMap", {}).get("name")
            assert name is None or name in made or volume["name"] == "trust", pod.owner


@pytest.mark.parametrize("role", ["server", "gateway"])
def test_the_grants_that_a_role_reads_are_mounted_where_it_looks(production: tuple[Rendered, ...], role: str) -> None:
    (pod,) = (pod for pod in roles(production) if pod.role == role)
    (mount,) = (one for one in pod.spec["containers"][0]["volumeMounts"] if one["name"] == "grants")
    (volume,) = (one for one in pod.spec["volumes"] if one["name"] == "grants")
    found = Path(pod.environment["NOETL_GRANTS"]["value"])
    assert str(found.parent) == mount["mountPath"]
    assert found.name in named(production, "ConfigMap", volume["configMap"]["name"])["data"]


def test_playbooks_of_the_chart_use_their_own_namespace_where_no_grant_is(production: tuple[Rendered, ...]) -> None:
    closed = {pod.role for pod in roles(production) if "NOETL_GRANTS_DEFAULT" in pod.environment}
    assert closed == {"server", "gateway"}
    for pod in roles(production):
        assert pod.environment.get("NOETL_GRANTS_DEFAULT", {"value": "own"})["value"] == "own"


def test_every_mount_has_its_volume_and_every_volume_its_mount(example: tuple[Rendered, ...]) -> None:
    for pod in pods(example):
        mounted = {mount["name"] for container in pod.containers for mount in container.get("volumeMounts", [])}
        assert mounted == {volume["name"] for volume in pod.spec.get("volumes", [])}, pod.owner


# Probes, drain, roll-out


def listening_port(gateway: PodOf) -> int:
    command = gateway.spec["containers"][0]["command"]
    return int(command[command.index("--port") + 1])


def test_every_role_answers_probes_on_a_port_that_it_listens_on(example: tuple[Rendered, ...]) -> None:
    for pod in roles(example):
        (container,) = pod.spec["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        listening = {int(pod.environment["NOETL_STATUS_ADDRESS"]["value"].rpartition(":")[2])}
        if pod.role == "gateway":
            listening.add(listening_port(pod))
        assert set(ports.values()) == listening, pod.owner
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["port"] in ports, pod.owner


def test_probes_ask_paths_that_the_program_answers(example: tuple[Rendered, ...]) -> None:
    """A process that waits for NATS or Postgres is not restarted for it."""
    answered = answered_paths()
    for pod in roles(example):
        (container,) = pod.spec["containers"]
        paths = [container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
        assert paths == ["/livez", "/livez", "/readyz"], pod.owner
        assert set(paths) <= answered, pod.owner


def answered_paths() -> set[str]:
    """The paths that the code of gateways and of status addresses answers."""
    folder = ROOT / "src" / "noetl_stream"
    files = (folder / "gateway" / "resources" / "system.py", folder / "telemetry" / "status.py")
    return {path for file in files if file.exists() for path in re.findall(r'"(/\w+)"', file.read_text())}


def test_a_process_has_more_time_to_end_than_to_drain(example: tuple[Rendered, ...]) -> None:
    for pod in roles(example):
        grace = pod.spec["terminationGracePeriodSeconds"]
        before = pod.spec["containers"][0].get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        plain = {name: one["value"] for name, one in pod.environment.items() if "value" in one}
        settings = Settings.from_environment(plain)
        drains = {
            "server": 0.0,
            "gateway": settings.gateway_limits.stop_delay_s + settings.gateway_limits.drain_s,
            "worker": settings.worker_drain_s + LAST_REPORTS_S,
        }
        assert grace >= before + drains[pod.role] + 10, pod.owner


def test_a_gateway_is_out_of_the_service_before_it_stops_accepting(example: tuple[Rendered, ...]) -> None:
    for pod in roles(example):
        lifecycle = pod.spec["containers"][0].get("lifecycle", {})
        assert (lifecycle.get("preStop", {}).get("sleep", {}).get("seconds", 0) >= 5) == (pod.role == "gateway")


def test_a_new_process_is_ready_before_an_old_one_ends(example: tuple[Rendered, ...]) -> None:
    for one in of_kind(example, "Deployment"):
        assert one["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}, name_of(one)


def test_pods_of_a_role_are_spread_over_machines_and_zones(example: tuple[Rendered, ...]) -> None:
    for pod in roles(example):
        spread = pod.spec["topologySpreadConstraints"]
        assert [one["topologyKey"] for one in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
        assert all(matches(one["labelSelector"], pod.labels) for one in spread), pod.owner


def test_the_migration_runs_before_servers_and_can_run_again(production: tuple[Rendered, ...]) -> None:
    """The template of a Job cannot change, so each upgrade deletes and makes it again."""
    (job,) = of_kind(production, "Job")
    hooks = [
        job,
        named(production, "ServiceAccount", "noetl-migration"),
        named(production, "NetworkPolicy", "noetl-migration"),
    ]
    for one in hooks:
        assert one["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
        assert one["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation"
    weights = [int(one["metadata"]["annotations"]["helm.sh/hook-weight"]) for one in hooks]
    assert weights[0] > max(weights[1:]), "what the Job needs exists before it"
    assert job["spec"]["activeDeadlineSeconds"] and job["spec"]["backoffLimit"]


def test_the_migration_prepares_postgres_and_then_nats(production: tuple[Rendered, ...]) -> None:
    (migration,) = (pod for pod in pods(production) if pod.role == "migration")
    assert [container["command"][1:] for container in migration.containers] == [
        ["database", "migrate"],
        ["stream", "ensure", "--replicas", "3"],
    ]


def test_a_release_can_upgrade_servers_first() -> None:
    settings = ('server.image.tag="9.9.9"', 'poolDefaults.image.tag="9.9.8"')
    images = {pod.role: pod.spec["containers"][0]["image"] for pod in roles(render(PRODUCTION, settings=settings))}
    assert images["server"].endswith(":9.9.9")
    assert images["worker"].endswith(":9.9.8")
    assert images["gateway"] == render_image(PRODUCTION)


def render_image(values: Path) -> str:
    (gateway,) = (pod for pod in roles(render(values)) if pod.role == "gateway")
    return str(gateway.spec["containers"][0]["image"])


# Pools and autoscaling


def test_a_pool_has_what_it_says_over_the_defaults(production: tuple[Rendered, ...]) -> None:
    pools = {pod.component: pod for pod in roles(production) if pod.role == "worker"}
    assert pools.keys() == {"pool-default", "pool-reports", "pool-untrusted", "pool-gpu"}
    slots = {name: int(pod.environment["NOETL_SLOTS"]["value"]) for name, pod in pools.items()}
    assert slots == {"pool-default": 64, "pool-reports": 32, "pool-untrusted": 8, "pool-gpu": 2}
    assert {pod.environment["NOETL_KINDS_OFF"]["value"] for pod in pools.values()} == {"shell"}
    assert pools["pool-untrusted"].environment["NOETL_ISOLATION"]["value"] == "task"
    assert pools["pool-untrusted"].spec["runtimeClassName"] == "gvisor"
    assert pools["pool-reports"].spec["terminationGracePeriodSeconds"] == 315


def test_an_edge_has_its_own_pool_alone() -> None:
    assert [pod.component for pod in pods(render(CHART / "values" / "edge.yaml"))] == ["pool-edge-oslo"]


def test_keda_scales_by_the_consumer_that_servers_make(production: tuple[Rendered, ...]) -> None:
    """Its lag is what waits and what runs, so a worker is wanted for as many as it has slots."""
    from noetl_stream.adapters.nats.commands.pool_consumer import consumer_of
    from noetl_stream.protocol.subjects import COMMANDS as STREAM

    workers = {pod.owner.removeprefix("Deployment/"): pod for pod in roles(production)}
    scaled = of_kind(production, "ScaledObject")
    assert len(scaled) == 3
    for one in scaled:
        pod = workers[one["spec"]["scaleTargetRef"]["name"]]
        (trigger,) = one["spec"]["triggers"]
        assert trigger["metadata"]["stream"] == STREAM
        assert trigger["metadata"]["consumer"] == consumer_of(pod.environment["NOETL_POOL"]["value"])
        assert trigger["metadata"]["lagThreshold"] == pod.environment["NOETL_SLOTS"]["value"]
        assert "//" not in trigger["metadata"]["natsServerMonitoringEndpoint"]


def test_keda_keeps_a_worker_so_that_the_consumer_exists(production: tuple[Rendered, ...]) -> None:
    """Without the consumer KEDA would see no work, or too much; without NATS it keeps what runs."""
    for one in of_kind(production, "ScaledObject"):
        assert one["spec"]["minReplicaCount"] >= 1
        assert one["spec"]["fallback"]["behavior"] == "currentReplicasIfHigher"
