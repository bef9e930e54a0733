"""Who shares the embedded stack, who stops it, and what a kill does to it (issue: *Embedded*)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from configparser import ConfigParser
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import nats
import nats.errors
import psutil
import pytest
from nats.aio.client import Client

from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.errors import LocalStackError, UsageError
from noetl_stream.local import EmbeddedStack
from noetl_stream.local.home import FileLock, prepare_home
from noetl_stream.local.nats_server import NatsServer, go_variables
from noetl_stream.local.postgres_server import PostgresServer
from noetl_stream.local.processes import is_alive, wait_until_ended
from noetl_stream.local.secrets import load_or_create_secrets
from noetl_stream.local.server_process import StartingServer, wait_until_ready
from noetl_stream.protocol.nats_permissions import ADMIN, SERVER, inbox_prefix
from noetl_stream.protocol.subjects import EVENTS
from noetl_stream.settings.sources.environment import DEFAULT_POOL
from noetl_testkit.waiting import TIMEOUT_S

NewUser = Callable[..., "subprocess.Popen[str]"]
ServersUnder = Callable[[Path], list[int]]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    assert wait_until_ended(pid, TIMEOUT_S)


def is_making(process: psutil.Process, home: Path) -> bool:
    return process.info["name"] == "initdb" and str(home / "postgres" / "data.new") in (process.info["cmdline"] or [])


def pids_printed_by(user: subprocess.Popen[str]) -> object:
    assert user.stdout is not None
    line = user.stdout.readline()
    assert line, user.communicate()[1]
    return json.loads(line)


def leave(user: subprocess.Popen[str]) -> object:
    assert user.stdin is not None
    user.stdin.write("\n")
    user.stdin.flush()
    return pids_printed_by(user)


async def write_one_row(stack: EmbeddedStack) -> None:
    connection = await asyncpg.connect(stack.address.playbooks_dsn)
    await connection.execute("DROP TABLE IF EXISTS kept; CREATE TABLE kept (value int); INSERT INTO kept VALUES (42)")
    await connection.close()


async def read_one_row(stack: EmbeddedStack) -> int:
    connection = await asyncpg.connect(stack.address.playbooks_dsn)
    value = await connection.fetchval("SELECT value FROM kept")
    await connection.close()
    assert isinstance(value, int)
    return value


async def nats_client(stack: EmbeddedStack, identity: str) -> Client:
    prefix = inbox_prefix(identity).encode()
    seed = stack.address.seeds[identity]
    return await nats.connect(stack.address.nats_url, nkeys_seed_str=seed, inbox_prefix=prefix)


async def test_a_fresh_home_gets_both_servers_and_both_databases(fresh_home: Path) -> None:
    with EmbeddedStack.join(fresh_home) as stack:
        for dsn, name in ((stack.address.postgres_dsn, "noetl"), (stack.address.playbooks_dsn, "playbooks")):
            connection = await asyncpg.connect(dsn)
            row = await connection.fetchrow(
                "SELECT current_user AS role, current_database() AS database, usesuper OR usecreatedb FROM pg_user"
                " WHERE usename = current_user"
            )
            await connection.execute("CREATE TABLE owned (value text)")
            await connection.close()
            assert row is not None and tuple(row) == (name, name, False)
        client = await nats_client(stack, ADMIN)
        await client.jetstream().add_stream(name=EVENTS, subjects=["noetl.events.>"])
        assert client.max_payload == 8 * 1024 * 1024
        await client.close()


async def test_each_role_has_a_user_that_owns_nothing(home: Path) -> None:
    with EmbeddedStack.join(home) as stack:
        for user in ("noetl_server", "noetl_gateway", "noetl_reader"):
            connection = await asyncpg.connect(stack.address.dsns[user])
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute("CREATE SCHEMA mine")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute("SET ROLE noetl")
            await connection.close()


async def test_a_running_nats_opens_streams_to_triggers_and_keeps_them_open(home: Path) -> None:
    seed = home / "nats" / "publisher.nk"
    with EmbeddedStack.join(home) as stack:
        assert not seed.exists()
        EmbeddedStack.join(home, trigger_streams=("VISITS",)).leave()
        publisher = await nats.connect(stack.address.nats_url, nkeys_seed=str(seed))
        await publisher.jetstream().add_stream(name="VISITS", subjects=["visits"])
        EmbeddedStack.join(home).leave()
        server = await NatsConnection.open(
            stack.address.nats_url, name="test", nkey=stack.address.seeds[SERVER], identity=SERVER
        )
        assert json.loads(await server.api("STREAM.INFO.VISITS", prefix=server.streams))["config"]["name"] == "VISITS"
        await server.close()
        await publisher.close()


async def test_workers_of_a_new_pool_get_a_user_of_a_running_nats(home: Path) -> None:
    with EmbeddedStack.join(home) as stack:
        connected = await nats_client(stack, SERVER)
        with EmbeddedStack.join(home, "gpu") as joined:
            client = await nats_client(joined, "worker-gpu")
            await client.close()
        assert connected.is_connected and connected.stats["reconnects"] == 0
        await connected.close()


async def test_a_home_of_an_older_version_gets_the_users_it_lacks(own_home: Path) -> None:
    with EmbeddedStack.join(own_home) as stack:
        await write_one_row(stack)
        owner = await asyncpg.connect(stack.address.postgres_dsn)
        await owner.execute("REVOKE CONNECT ON DATABASE noetl FROM noetl_server, noetl_gateway, noetl_reader")
        await owner.close()
        before = stack.address.dsns
    passwords = own_home / "passwords.json"
    found = json.loads(passwords.read_text())
    older = {"nats": "x" * 48, "noetl": found["noetl"], "playbooks": found["playbooks"]}
    passwords.write_text(json.dumps(older))
    (own_home / "nkeys.json").unlink()
    with EmbeddedStack.join(own_home) as stack:
        assert await read_one_row(stack) == 42
        assert stack.address.dsns["noetl_server"] != before["noetl_server"]
        for user in ("noetl_server", "noetl_gateway", "noetl_reader"):
            await (await asyncpg.connect(stack.address.dsns[user])).close()
        assert json.loads(passwords.read_text()).keys() == {*before}

        passwords.write_text(json.dumps(older))
        with pytest.raises(LocalStackError, match="were started by an older noetl-stream"):
            EmbeddedStack.join(own_home)
        passwords.write_text(json.dumps(found))


def test_no_password_or_seed_is_printed_or_on_a_command_line(home: Path) -> None:
    with EmbeddedStack.join(home) as stack:
        address = stack.address
        secrets = [urlsplit(dsn).password or "" for dsn in address.dsns.values()] + [*address.seeds.values()]
        secrets += [address.keys.credential, address.keys.server, address.keys.access]
        shown = [repr(address), repr(stack), *stack.notices, (home / "stack.json").read_text()]
        shown += [" ".join(psutil.Process(pid).cmdline()) for pid in stack.pids().values()]
        shown += [(home / "nats" / "nats.conf").read_text(), (home / "nats" / "nats.log").read_text()]
        shown += [(home / "postgres" / "postgres.log").read_text()]
        assert len(secrets) >= 12 and all(secrets)
        assert [secret for secret in secrets if any(secret in text for text in shown)] == []


async def test_psql_finds_a_reader_and_the_playbooks_in_the_service_file(home: Path) -> None:
    with EmbeddedStack.join(home) as stack:
        services = ConfigParser()
        services.read(home / "pg_service.conf")
        assert services.sections() == ["noetl", "playbooks"]
        for name, user in (("noetl", "noetl_reader"), ("playbooks", "playbooks")):
            found = services[name]
            connection = await asyncpg.connect(
                host=found["host"],
                port=int(found["port"]),
                database=found["dbname"],
                user=found["user"],
                password=found["password"],
            )
            assert await connection.fetchval("SELECT current_user") == user
            await connection.close()
        assert stack.address.dsns["noetl_reader"].count(services["noetl"]["password"]) == 1


async def test_postgres_needs_a_password_and_the_playbooks_one_does_not_open_the_engines_database(
    home: Path,
) -> None:
    with EmbeddedStack.join(home) as stack:
        address = stack.address
        secret = address.playbooks_dsn.split(":")[2].split("@")[0]
        for dsn in (
            address.postgres_dsn.replace("noetl:", "noetl:x"),
            address.playbooks_dsn.replace("/playbooks?", "/noetl?"),
            address.playbooks_dsn.replace("/playbooks?", "/postgres?"),
            address.postgres_dsn.replace("//noetl:", "//postgres:"),
            address.postgres_dsn.replace("/noetl?", "/playbooks?"),
        ):
            with pytest.raises((asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidPasswordError)):
                await asyncpg.connect(dsn)
        with pytest.raises(nats.errors.Error):
            await nats.connect(address.nats_url, allow_reconnect=False)
        assert secret not in repr(address) and secret not in (home / "stack.json").read_text()


def test_the_second_user_shares_the_servers_and_the_last_one_stops_them(
    home: Path, new_user: NewUser, servers_under: ServersUnder
) -> None:
    stack = EmbeddedStack.join(home)
    assert stack.has_other_users() is False
    other = new_user(home)
    assert pids_printed_by(other) == stack.pids()
    assert stack.has_other_users() is True

    assert stack.leave() is False
    assert sorted(servers_under(home)) == sorted(stack.pids().values())
    assert leave(other) is True
    assert servers_under(home) == []


def test_two_uses_in_one_process_are_two_users(home: Path) -> None:
    first, second = EmbeddedStack.join(home), EmbeddedStack.join(home)
    assert first.pids() == second.pids()
    assert first.has_other_users() is True
    assert first.leave() is False
    assert second.has_other_users() is False
    assert second.leave() is True


def test_a_use_can_be_left_again_and_serves_nothing_else_afterwards(home: Path) -> None:
    stack = EmbeddedStack.join(home)
    assert stack.leave() is True
    assert stack.leave() is False
    with pytest.raises(UsageError, match="has already been left"):
        stack.revive()
    with pytest.raises(UsageError, match="has already been left"):
        stack.has_other_users()


async def test_the_next_start_has_the_same_addresses_and_the_data(home: Path) -> None:
    with EmbeddedStack.join(home) as before:
        await write_one_row(before)
    assert [server["pid"] for server in json.loads((home / "stack.json").read_text())["servers"].values()] == [None] * 2
    with EmbeddedStack.join(home) as after:
        assert after.address == before.address
        assert after.notices == []
        assert await read_one_row(after) == 42


async def test_a_killed_nats_is_revived_on_its_port_with_its_streams(home: Path) -> None:
    with EmbeddedStack.join(home) as stack:
        client = await nats_client(stack, ADMIN)
        created = await client.jetstream().add_stream(name=EVENTS, subjects=["noetl.events.>"])
        await client.close()
        before = stack.address
        kill(stack.pids()["nats"])

        assert stack.revive() == ["nats"]
        assert stack.address == before
        client = await nats_client(stack, ADMIN)
        assert (await client.jetstream().stream_info(EVENTS)).created == created.created
        await client.close()
        assert stack.revive() == []


async def test_a_killed_postgres_is_revived_on_its_port_with_its_rows_despite_a_surviving_session(home: Path) -> None:
    with EmbeddedStack.join(home) as stack:
        await write_one_row(stack)
        session = await asyncpg.connect(stack.address.postgres_dsn)
        session_pid = await session.fetchval("SELECT pg_backend_pid()")
        # Stopped, it cannot notice that its Postgres died: as a session deep in a statement cannot.
        os.kill(session_pid, signal.SIGSTOP)
        before = stack.address
        kill(stack.pids()["postgres"])

        assert stack.revive() == ["postgres"]
        assert stack.address == before
        assert await read_one_row(stack) == 42
        assert not is_alive(session_pid)
        session.terminate()


def test_join_restarts_servers_that_are_zombies(home: Path, new_user: NewUser) -> None:
    with EmbeddedStack.join(home) as stack:
        for pid in stack.pids().values():
            os.kill(pid, signal.SIGKILL)
            while is_alive(pid):
                pass
        assert all(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE for pid in stack.pids().values())
        pids = pids_printed_by(new_user(home))
        assert stack.revive() == []
        assert stack.pids() == pids


def test_servers_of_a_killed_user_are_taken_over_not_doubled(
    home: Path, new_user: NewUser, servers_under: ServersUnder
) -> None:
    killed = new_user(home)
    pids = pids_printed_by(killed)
    killed.kill()
    killed.wait()

    stack = EmbeddedStack.join(home)
    assert stack.pids() == pids
    assert stack.has_other_users() is False
    assert stack.leave() is True
    assert servers_under(home) == []


def test_a_lost_or_damaged_record_costs_nothing_while_the_servers_run(home: Path, new_user: NewUser) -> None:
    pids = pids_printed_by(new_user(home))
    ports = json.loads((home / "stack.json").read_text())["servers"]
    for damage in (lambda: (home / "stack.json").write_text('{"servers": [1'), (home / "stack.json").unlink):
        damage()
        with EmbeddedStack.join(home) as stack:
            assert stack.pids() == pids
        assert json.loads((home / "stack.json").read_text())["servers"] == ports


@pytest.mark.verify
def test_five_processes_that_join_a_fresh_home_at_once_get_the_same_servers(
    fresh_home: Path, new_user: NewUser, servers_under: ServersUnder
) -> None:
    users = [new_user(fresh_home) for _ in range(5)]
    seen = [pids_printed_by(user) for user in users]
    assert all(pids == seen[0] for pids in seen)
    assert len(servers_under(fresh_home)) == 2
    assert [leave(user) for user in users] == [False] * 4 + [True]
    assert servers_under(fresh_home) == []


@pytest.mark.verify
def test_joining_while_the_last_user_stops_the_servers_gets_running_ones(
    home: Path, servers_under: ServersUnder
) -> None:
    def use_repeatedly(_: int) -> int:
        for _round in range(8):
            with EmbeddedStack.join(home) as stack:
                for url in (stack.address.nats_url, stack.address.postgres_dsn):
                    port = int(url.rsplit(":", 1)[1].split("/")[0])
                    socket.create_connection(("127.0.0.1", port)).close()
        return 1

    with ThreadPoolExecutor(3) as threads:
        assert sum(threads.map(use_repeatedly, range(3))) == 3
    assert servers_under(home) == []


@pytest.mark.verify
@pytest.mark.parametrize("archives", [(), (Path("/nowhere"),)], ids=["unpacked", "from scratch"])
def test_a_start_that_was_killed_half_way_does_not_spoil_the_next(
    fresh_home: Path, new_user: NewUser, servers_under: ServersUnder, archives: tuple[Path, ...]
) -> None:
    killed = new_user(fresh_home, *archives)
    postgres = fresh_home / "postgres"
    while not (postgres / "data.new" / "base").exists() and not (postgres / "data").exists():
        assert killed.poll() is None
    killed.kill()
    killed.wait()
    making = [process.pid for process in psutil.process_iter(["name", "cmdline"]) if is_making(process, fresh_home)]
    for pid in making:
        # So that it cannot end by itself in time.
        os.kill(pid, signal.SIGSTOP)

    with EmbeddedStack.join(fresh_home) as stack:
        assert sorted(servers_under(fresh_home)) == sorted(stack.pids().values())
        assert not (fresh_home / "postgres" / "data.new").exists()


@pytest.mark.verify
def test_a_home_removed_under_its_servers_gets_new_ones_and_an_editor_of_its_files_survives(
    own_home: Path, new_user: NewUser, servers_under: ServersUnder
) -> None:
    user = new_user(own_home)
    pids_printed_by(user)
    old = servers_under(own_home)
    editor = subprocess.Popen(["tail", "-f", str(own_home / "nats" / "nats.conf")], stdout=subprocess.DEVNULL)
    user.kill()
    user.wait()
    shutil.rmtree(own_home)
    try:
        with EmbeddedStack.join(own_home) as stack:
            assert len(servers_under(own_home)) == 2
            assert set(stack.pids().values()).isdisjoint(old)
            assert editor.poll() is None
    finally:
        editor.kill()
        editor.wait()


def test_a_port_taken_by_another_program_is_replaced_with_a_notice(own_home: Path) -> None:
    EmbeddedStack.join(own_home).leave()
    before = json.loads((own_home / "stack.json").read_text())["servers"]
    with socket.create_server(("127.0.0.1", before["postgres"]["port"])), EmbeddedStack.join(own_home) as stack:
        after = json.loads((own_home / "stack.json").read_text())["servers"]
        assert after["nats"]["port"] == before["nats"]["port"]
        assert after["postgres"]["port"] != before["postgres"]["port"]
        assert f":{after['postgres']['port']}/" in stack.address.postgres_dsn
        assert stack.notices == [
            f"port {before['postgres']['port']} of the embedded Postgres is in use by another program;"
            f" using {after['postgres']['port']}"
        ]


def test_a_pid_file_whose_pid_is_another_process_by_now_does_not_stop_postgres(own_home: Path) -> None:
    EmbeddedStack.join(own_home).leave()
    data = own_home / "postgres" / "data"
    owner = data.stat()
    as_owner = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    stranger = subprocess.Popen(["sleep", "60"], **as_owner)
    stale = data / "postmaster.pid"
    stale.write_text(f"{stranger.pid}\n{data}\n1\n5432\n\n127.0.0.1\n  1 1\nready   \n")
    os.chown(stale, owner.st_uid, owner.st_gid)
    try:
        with EmbeddedStack.join(own_home) as stack:
            assert stack.pids()["postgres"] != stranger.pid
            assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_servers_are_detached_from_the_terminal_and_environment_of_their_starter(home: Path) -> None:
    with EmbeddedStack.join(home) as stack:
        for name, pid in stack.pids().items():
            assert os.getsid(pid) == pid
            own = go_variables(os.cpu_count() or 1) if name == "nats" else {}
            assert psutil.Process(pid).environ() == {"LC_ALL": "C", "TZ": "UTC", **own}


@pytest.mark.parametrize(("cores", "variables"), [(1, {"GOMAXPROCS": "1"}), (2, {"GOMAXPROCS": "1"}), (3, {})])
def test_nats_uses_one_core_of_a_machine_that_has_at_most_two(cores: int, variables: dict[str, str]) -> None:
    assert go_variables(cores) == variables


def test_only_the_owner_can_read_files_in_a_home(home: Path) -> None:
    with EmbeddedStack.join(home):
        files = [path for path in home.rglob("*") if path.is_file()]
        assert [path for path in files if path.stat().st_mode & 0o077] == []
        readable = [path for path in (home, *home.rglob("*")) if path.is_dir() and path.stat().st_mode & 0o066]
        assert readable == []


def test_a_home_that_a_server_out_of_sight_uses_is_refused(own_home: Path) -> None:
    holder = subprocess.Popen(
        ["flock", str(own_home / "nats" / "server.lock"), "sh", "-c", "echo held; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    with pytest.raises(LocalStackError, match="in use by a NATS in another container or machine"):
        EmbeddedStack.join(own_home)
    holder.communicate(b"\n")
    EmbeddedStack.join(own_home).leave()


def test_a_nats_whose_port_another_home_has_taken_meanwhile_is_started_on_another(home: Path, own_home: Path) -> None:
    with EmbeddedStack.join(own_home) as other:
        theirs = urlsplit(other.address.nats_url).port
        assert theirs is not None
        prepared = prepare_home(home)
        server = NatsServer(prepared)
        secrets = load_or_create_secrets(prepared, PostgresServer(prepared).data, DEFAULT_POOL)
        guard = FileLock(server.folder / "server.lock")
        server.prepare(secrets, guard.descriptor)
        log_from_byte = server.log.stat().st_size
        starting = StartingServer(server, server.launch(theirs, guard.descriptor), log_from_byte)
        guard.close()
        running = wait_until_ready(starting, secrets)
        kill(running.pid)
        assert running.port != theirs
