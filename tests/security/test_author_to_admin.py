"""An author whose playbooks run here reads nothing that makes an admin of them: no DSN, no key, no identity."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from cli_program import HEAD, PATIENCE_S, processes_of, start
from noetl_stream.local.stack import EmbeddedStack, StackAddress
from noetl_stream.protocol.nats_permissions import worker_identity
from noetl_stream.settings.sources.environment import ENGINE_VARIABLES
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")

POOL = "security-alone"
KEY_FILES = ("credential.key", "server.key", "access.key", "backup.key", "archive.key")
ENGINE_FILES = ("passwords.json", "nkeys.json", "pg_service.conf", *KEY_FILES)


@pytest.fixture(scope="module")
def address(shared_home: Path) -> Iterator[StackAddress]:
    with EmbeddedStack.join(shared_home, POOL) as stack:
        yield stack.address


@pytest.fixture(scope="module")
def secrets(address: StackAddress) -> list[str]:
    """Every secret of the engine; not the playbooks' own database."""
    passwords = [urlsplit(dsn).password or "" for user, dsn in address.dsns.items() if user != "playbooks"]
    return [*passwords, *address.seeds.values(), address.keys.credential, address.keys.server, address.keys.access]


def run(home: Path, folder: Path, step: dict[str, Any], keychain: list[dict[str, Any]] | None = None) -> str:
    """Everything that running a playbook of one step shows its author."""
    document = {"workflow": [{"step": "attack", **step}], "keychain": keychain or []}
    text = HEAD + "metadata: {name: attack, path: team/a/attack}\n"
    file = folder / "attack.yaml"
    file.write_text(text + "".join(f"{name}: {json.dumps(value)}\n" for name, value in document.items() if value))
    ran = noetl("run", file, "--home", home, "--timeout", "60", "-o", "json")
    return ran.stdout + ran.stderr


@pytest.mark.parametrize("path", ["/proc/self/environ", *ENGINE_FILES])
def test_no_file_of_the_engine_is_a_secret_of_a_playbook(shared_home: Path, tmp_path: Path, path: str) -> None:
    keychain = [{"name": "found", "kind": "file", "path": path if path.startswith("/") else str(shared_home / path)}]
    step = {"tool": {"kind": "noop", "args": {"value": "{{ keychain.found }}"}}}
    shown = run(shared_home, tmp_path, step, keychain)
    assert "NOETL_KEYCHAIN_FOLDERS" in shown and '"completed"' not in shown


@pytest.mark.parametrize("variable", ["NOETL_POSTGRES_DSN", "NOETL_NATS_NKEY", "NOETL_ACCESS_KEY"])
def test_no_variable_of_the_engine_is_a_secret_of_a_playbook(shared_home: Path, tmp_path: Path, variable: str) -> None:
    keychain = [{"name": "found", "kind": "env", "variable": variable}]
    step = {"tool": {"kind": "noop", "args": {"value": "{{ keychain.found }}"}}}
    assert "must not start with NOETL_" in run(shared_home, tmp_path, step, keychain)


def test_code_finds_no_secret_of_the_engine_in_any_environment_it_can_read(
    shared_home: Path, tmp_path: Path, secrets: list[str]
) -> None:
    code = """
import os, pathlib
found = {"own": str(dict(os.environ))}
for process in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        command = (process / "cmdline").read_bytes().replace(b"\\0", b" ").decode("utf-8", "replace")
        found[f"{process.name} {command}"] = (process / "environ").read_bytes().decode("utf-8", "replace")
    except OSError:
        pass
result = {"read": len(found), "hits": [name for name, text in found.items() if any(s in text for s in secrets)]}
"""
    shown = run(shared_home, tmp_path, {"tool": {"kind": "python", "args": {"secrets": secrets}, "code": code}})
    assert json.loads(shown.splitlines()[0])["result"]["hits"] == [], shown


def test_the_playbooks_database_user_reaches_no_table_of_the_engine(shared_home: Path, tmp_path: Path) -> None:
    insert = "insert into noetl.api_token (id, name, role) values ('x', 'x', 'admin')"
    shown = run(shared_home, tmp_path, {"tool": {"kind": "postgres", "auth": "local_postgres", "query": insert}})
    assert 'relation \\"noetl.api_token\\" does not exist' in shown, shown


def test_the_playbooks_database_user_is_refused_by_the_engines_database(
    shared_home: Path, tmp_path: Path, address: StackAddress
) -> None:
    dsn = address.playbooks_dsn.replace("/playbooks?", "/noetl?")
    stored = noetl("credential", "set", "elsewhere", "--value-stdin", "--home", shared_home, given=dsn)
    assert stored.returncode == 0, stored.stderr
    shown = run(shared_home, tmp_path, {"tool": {"kind": "postgres", "auth": "elsewhere", "query": "select 1"}})
    assert "no pg_hba.conf entry" in shown and '"completed"' not in shown, shown


def processes_of_role(dev: psutil.Process, role: str) -> Iterator[psutil.Process]:
    for child in dev.children():
        with suppress(psutil.NoSuchProcess):
            if role in child.cmdline():
                yield child


def test_a_worker_is_a_process_of_its_own_with_its_own_identity_alone(shared_home: Path, secrets: list[str]) -> None:
    (dev,) = [process for process in processes_of(shared_home) if "dev" in process.cmdline()]
    (worker,) = processes_of_role(dev, "worker")
    held = worker.environ()
    assert not ENGINE_VARIABLES & {name for name, value in held.items() if value.strip("*")}
    assert not any(secret in value for value in held.values() for secret in secrets)


@pytest.fixture
def lone_worker(shared_home: Path, address: StackAddress) -> Iterator[subprocess.Popen[str]]:
    """A worker that is given its NATS user, and by mistake more than that."""
    given = {"NOETL_NATS_URL": address.nats_url, "NOETL_NATS_NKEY": address.seeds[worker_identity(POOL)]}
    too_much = {"NOETL_POSTGRES_DSN": address.postgres_dsn, "NOETL_SERVER_KEY": address.keys.server}
    process = start("worker", "--pool", POOL, **given, **too_much)
    yield process
    process.terminate()
    process.communicate(timeout=PATIENCE_S)


def test_a_worker_needs_nats_alone_and_keeps_no_other_address(
    shared_home: Path, tmp_path: Path, lone_worker: subprocess.Popen[str], address: StackAddress, secrets: list[str]
) -> None:
    assert '"completed"' in run(shared_home, tmp_path, {"spec": {"pool": POOL}, "tool": {"kind": "noop"}})

    process = psutil.Process(lone_worker.pid)
    ports = {connection.raddr.port for connection in process.net_connections() if connection.raddr}
    assert ports == {urlsplit(address.nats_url).port}
    held = process.environ()
    assert not any(secret in value for value in held.values() for secret in secrets)
    assert held["PATH"]

    lone_worker.terminate()
    _, said = lone_worker.communicate(timeout=PATIENCE_S)
    assert "a worker must not have NOETL_POSTGRES_DSN, NOETL_SERVER_KEY: not used, and removed" in said
