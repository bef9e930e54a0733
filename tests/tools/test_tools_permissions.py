"""The operator's permissions for tools, from the environment to a worker's tools."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from noetl_stream.errors import UsageError
from noetl_stream.protocol.nats_permissions import worker_identity
from noetl_stream.settings.children import ChildSettings, EnvironmentSettings
from noetl_stream.settings.egress import EgressRules, egress_rules, read_allowed, servers_of
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.duckdb.tool import DuckdbTool
from noetl_stream.tools.http.tool import HttpTool
from noetl_stream.tools.pipeline import NoopTool
from noetl_stream.tools.registry import create_tools
from noetl_stream.tools.shell import ShellTool
from noetl_stream.wiring.stack import open_stack
from warm_program import noetl

OFF = frozenset({"shell"})
HOME = {"HOME": "/home/ann"}
OWN_SERVERS = {"NOETL_NATS_URL": "nats://localhost:4222", "NOETL_POSTGRES_DSN": "postgresql://localhost/x"}


def test_the_environment_sets_the_permissions_of_tools() -> None:
    given = {
        "NOETL_EGRESS_ALLOW": "10.1.0.0/16, api.local, /run/postgresql",
        "NOETL_KINDS_OFF": "Shell",
        "NOETL_DUCKDB_PATHS": "/data:/srv/b",
        "NOETL_DUCKDB_MAX_MEMORY": "1.5GiB",
        "NOETL_DUCKDB_MAX_THREADS": "2",
        "NOETL_HTTP_PROXY": "http://proxy.local:3128",
    }
    rules = egress_rules("10.1.0.0/16,api.local,/run/postgresql")
    folders = (Path("/data"), Path("/srv/b"))
    for embedded in (True, False):
        found = Settings.from_environment(HOME | given).tools("nats://nats.local", embedded=embedded)
        settings = replace(found, python_environments=EnvironmentSettings())
        assert settings == ToolSettings(rules, OFF, folders, (), 1_610_612_736, 2, http_proxy="http://proxy.local:3128")


def test_by_default_only_the_embedded_stack_allows_loopback() -> None:
    settings = Settings.from_environment(HOME)
    embedded = settings.tools("nats://nats.local", embedded=True)
    kept = EnvironmentSettings(f"{settings.home}/environments")
    assert embedded == ToolSettings(egress_rules("loopback"), python_environments=kept)
    assert settings.tools("nats://nats.local", embedded=False) == ToolSettings()


def test_none_closes_the_machine_of_the_embedded_stack_too() -> None:
    settings = Settings.from_environment(HOME | {"NOETL_EGRESS_ALLOW": "none"})
    assert settings.tools("nats://nats.local", embedded=True).egress == EgressRules()


def test_tasks_never_reach_the_engines_own_nats() -> None:
    given = {"NOETL_EGRESS_DENY": "10.0.0.0/8:5432"}
    settings = Settings.from_environment(HOME | given).tools(
        "nats://u:p@127.0.0.1:4333,nats://nats.local", embedded=True
    )
    assert [(str(target.where), target.port) for target in settings.egress.denied] == [
        ("10.0.0.0/8", 5432),
        ("127.0.0.1/32", 4333),
    ]
    assert [str(target.where) for target in servers_of("nats://localhost")] == ["127.0.0.0/8", "::1/128"]


def test_the_former_name_of_a_setting_is_not_ignored() -> None:
    with pytest.raises(UsageError, match="NOETL_SHELL has become NOETL_KINDS_OFF"):
        Settings.from_environment(HOME | {"NOETL_SHELL": "off"})
    with pytest.raises(UsageError, match="NOETL_HTTP_ALLOW has become NOETL_EGRESS_ALLOW"):
        Settings.from_environment(HOME | {"NOETL_HTTP_ALLOW": "none"})


@pytest.mark.parametrize(
    ("text", "networks", "names"),
    [
        ("loopback", ["127.0.0.0/8", "::1/128"], []),
        ("169.254.169.254", ["169.254.169.254/32"], []),
        ("fd00::/8 , PRIVATE", ["fd00::/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"], []),
        ("Api.Local.,api2", [], ["api.local", "api2"]),
        ("api.local:8443, 10.0.0.1:80, [fd00::1]:80", ["10.0.0.1/32:80", "fd00::1/128:80"], ["api.local:8443"]),
        ("loopback:8098", ["127.0.0.0/8:8098", "::1/128:8098"], []),
    ],
)
def test_entries_are_words_networks_and_host_names(text: str, networks: list[str], names: list[str]) -> None:
    found = read_allowed(text).targets
    shown = [f"{target.where}:{target.port}" if target.port else str(target.where) for target in found]
    assert [text for text, target in zip(shown, found, strict=True) if not isinstance(target.where, str)] == networks
    assert [text for text, target in zip(shown, found, strict=True) if isinstance(target.where, str)] == names


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("NOETL_EGRESS_ALLOW", "10.0.0.1/8"),
        ("NOETL_EGRESS_ALLOW", "300.1.1.1"),
        ("NOETL_EGRESS_ALLOW", "http://host"),
        ("NOETL_EGRESS_ALLOW", "loopback,,private"),
        ("NOETL_EGRESS_ALLOW", "*.local"),
        ("NOETL_EGRESS_ALLOW", "10.0.0.1:0"),
        ("NOETL_EGRESS_ALLOW", "10.0.0.1:65536"),
        ("NOETL_EGRESS_ALLOW", "none:80"),
        ("NOETL_EGRESS_DENY", "api.local"),
        ("NOETL_EGRESS_DENY", "/run/postgresql"),
        ("NOETL_DUCKDB_MAX_MEMORY", "80%"),
        ("NOETL_DUCKDB_MAX_MEMORY", "0GB"),
        ("NOETL_DUCKDB_MAX_THREADS", "0"),
        ("NOETL_HTTP_PROXY", "proxy.example.com:3128"),
        ("NOETL_HTTP_PROXY", "socks5://proxy.example.com"),
        ("NOETL_HTTP_CA", "/nowhere/ca.pem"),
        ("NOETL_HTTP_CA", __file__),
        ("NOETL_ISOLATION", "none"),
        ("NOETL_CHILD_USER", "root"),
        ("NOETL_CHILD_CONFINEMENT", "yes"),
        ("NOETL_CHILD_NETWORK", "no"),
        ("NOETL_CHILD_PATHS", "data"),
        ("NOETL_CHILD_PATHS", "/home/ann"),
        ("NOETL_CHILD_CPU_S", "0"),
        ("NOETL_DUCKDB_PATHS", "/data:data"),
    ],
)
def test_an_invalid_value_is_an_error_that_names_its_variable(variable: str, value: str) -> None:
    with pytest.raises(UsageError, match=variable):
        Settings.from_environment(HOME | {variable: value})


def test_a_worker_with_its_own_servers_is_guarded() -> None:
    with open_stack(Settings.from_environment(HOME | OWN_SERVERS)) as place:
        guarded = ToolSettings(EgressRules(denied=servers_of("nats://localhost:4222")))
        assert place.endpoint_of(worker_identity("default")).tools == guarded
    with open_stack(Settings.from_environment(HOME | OWN_SERVERS | {"NOETL_KINDS_OFF": "shell"})) as place:
        assert place.endpoint_of(worker_identity("default")).tools.kinds_off == OFF


async def test_a_tool_is_created_with_the_operators_settings(make_call: Any, tmp_path: Path) -> None:
    classes = {"http": HttpTool, "duckdb": DuckdbTool, "shell": ShellTool, "noop": NoopTool}
    closed = create_tools(classes, ToolSettings(kinds_off=OFF))
    opened = create_tools(classes, ToolSettings(egress_rules("loopback"), duckdb_folders=(tmp_path,)))
    (tmp_path / "data.csv").write_text("a\n1\n")
    calls = {
        "http": make_call({"url": "http://127.0.0.1:1/"}),
        "duckdb": make_call({"command": f"from read_csv('{tmp_path}/data.csv')"}),
        "shell": make_call({"command": "true"}),
    }
    for kind, error in (("http", "forbidden_address"), ("duckdb", "not_allowed"), ("shell", "not_allowed")):
        with pytest.raises(ToolFailure) as failed:
            await closed[kind].run(calls[kind])
        assert failed.value.error.kind == error
    with pytest.raises(ToolFailure) as failed:
        await opened["http"].run(calls["http"])
    assert failed.value.error.kind == "connection"
    assert (await opened["duckdb"].run(calls["duckdb"])).result["rows"] == [{"a": 1}]
    assert (await opened["shell"].run(calls["shell"])).result["exit_code"] == 0
    for tool in (*closed.values(), *opened.values()):
        await tool.close()


async def test_any_kind_can_be_switched_off(make_call: Any) -> None:
    tools = create_tools({"http": HttpTool, "noop": NoopTool}, ToolSettings(kinds_off=frozenset({"noop"})))
    with pytest.raises(ToolFailure, match=r"switched off noop tasks \(NOETL_KINDS_OFF\)") as failed:
        await tools["noop"].run(make_call({}))
    assert failed.value.error.kind == "not_allowed"


def test_an_unknown_kind_cannot_be_switched_off() -> None:
    with pytest.raises(UsageError, match="NOETL_KINDS_OFF names 'pyhton', which is not a kind"):
        create_tools({"noop": NoopTool}, ToolSettings(kinds_off=frozenset({"pyhton"})))


def test_the_settings_of_children_reach_the_tools() -> None:
    given = {
        "NOETL_ISOLATION": "execution",
        "NOETL_CHILD_USER": "worker",
        "NOETL_CHILD_PATHS": "/data:/srv/b",
        "NOETL_CHILD_MEMORY_BYTES": "1000000",
        "NOETL_CHILD_CPU_S": "60",
        "NOETL_CHILD_PROCESSES": "8",
        "NOETL_CHILD_FILES": "64",
        "NOETL_CHILD_CONFINEMENT": "landlock",
        "NOETL_CHILD_NETWORK": "none",
        "NOETL_PYTHON_PATH": "/srv/flows:/srv/shop",
    }
    children = Settings.from_environment(HOME | given).tools("nats://nats.local", embedded=False).children
    bounds = {"memory_bytes": 1_000_000, "cpu_s": 60, "processes": 8, "files": 64}
    expected = ChildSettings(
        "execution",
        "worker",
        ("/data", "/srv/b"),
        **bounds,
        confinement="landlock",
        network="none",
        python_path=("/srv/flows", "/srv/shop"),
    )
    assert children == expected


def test_the_environment_says_where_environments_come_from() -> None:
    given = {
        "NOETL_PYTHON_ENVIRONMENTS": "/srv/environments",
        "NOETL_PYTHON_ENVIRONMENTS_MAX_BYTES": "1000",
        "NOETL_PYTHON_INDEX": "/srv/wheels",
        "NOETL_PYTHON_CONSTRAINTS": "/srv/constraints.txt",
        "NOETL_PYTHON_SDISTS": "on",
        "NOETL_PYTHON_INTERPRETERS": "/usr/bin/python3.12:/opt/python3.14",
    }
    expected = EnvironmentSettings(
        "/srv/environments",
        max_bytes=1000,
        index="/srv/wheels",
        constraints="/srv/constraints.txt",
        sdists=True,
        interpreters=("/usr/bin/python3.12", "/opt/python3.14"),
    )
    settings = Settings.from_environment(HOME | given)
    assert settings.tools("nats://nats.local", embedded=True).python_environments == expected
    off = Settings.from_environment(HOME | {"NOETL_PYTHON_ENVIRONMENTS": "off"})
    assert off.tools("nats://nats.local", embedded=True).python_environments.folder == ""


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("NOETL_PYTHON_ENVIRONMENTS", "on", "relative path"),
        ("NOETL_PYTHON_ENVIRONMENTS_MAX_BYTES", "10GB", "invalid NOETL_PYTHON_ENVIRONMENTS_MAX_BYTES '10GB'"),
        ("NOETL_PYTHON_INDEX", "ftp://pypi.org", "invalid address in NOETL_PYTHON_INDEX"),
        ("NOETL_PYTHON_INDEX", "https://u:p@pypi.org/simple", "NOETL_PYTHON_INDEX holds a password"),
        ("NOETL_PYTHON_CONSTRAINTS", "constraints.txt", "relative path"),
        ("NOETL_PYTHON_SDISTS", "yes", "invalid NOETL_PYTHON_SDISTS 'yes'"),
        ("NOETL_PYTHON_INTERPRETERS", "python3.12", "relative path"),
    ],
)
def test_an_invalid_setting_of_environments_is_refused(variable: str, value: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Settings.from_environment(HOME | {variable: value})


class _Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture
def local_url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Hello)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.xdist_group("stack")
def test_workers_of_the_embedded_stack_reach_their_own_machine(
    shared_home: Path, local_url: str, tmp_path: Path
) -> None:
    playbook = tmp_path / "hello.yaml"
    playbook.write_text(
        f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: hello, path: tests/hello}}
workflow:
- step: start
  tool: {{kind: http, url: "{local_url}"}}
"""
    )
    command = [
        sys.executable,
        "-m",
        "noetl_stream",
        "run",
        str(playbook),
        "--home",
        str(shared_home),
        "-o",
        "json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["data"] == "hello"


@pytest.mark.xdist_group("stack")
def test_tasks_of_dev_do_not_reach_its_gateway(shared_home: Path, shared_gateway_port: int, tmp_path: Path) -> None:
    playbook = tmp_path / "gateway.yaml"
    playbook.write_text(
        f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: gateway, path: tests/gateway}}
workflow:
- step: start
  tool: {{kind: http, url: "http://localhost:{shared_gateway_port}/health"}}
"""
    )
    done = noetl("run", playbook, "--home", shared_home, "-o", "json")
    assert f"port {shared_gateway_port} is closed to tasks by the worker's operator" in done.stdout


def test_the_settings_of_a_plugin_s_kind_are_a_json_object() -> None:
    given = {"NOETL_TOOL_QUANTUM": '{"max_qubits": 28}', "NOETL_TOOL_OFF": ""}
    settings = Settings.from_environment(HOME | given).tools("nats://nats.local", embedded=False)
    assert settings.own == {"quantum": {"max_qubits": 28}}
    for value in ("28", "max_qubits=28"):
        with pytest.raises(UsageError, match="NOETL_TOOL_QUANTUM is not a JSON object"):
            Settings.from_environment(HOME | {"NOETL_TOOL_QUANTUM": value})


@pytest.mark.parametrize("kind", ["noop", "lamp"])
def test_settings_of_a_kind_that_has_none_are_an_error(kind: str) -> None:
    with pytest.raises(
        UsageError, match=f"NOETL_TOOL_{kind.upper()} sets a kind that is not installed or has no settings"
    ):
        create_tools({"noop": NoopTool}, ToolSettings(own={kind: {}}))
