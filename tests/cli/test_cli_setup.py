"""``noetl-stream setup`` on a NATS and a Postgres that a person started, the wrong ways too."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import asyncpg
import pytest
from click.testing import CliRunner

from cli_program import one_clear_line, only_json, start
from nats_process import NatsServer
from noetl_stream.cli.setup import accounts
from noetl_stream.settings.sources.variables import parse_settings
from noetl_testkit.waiting import until_it_is
from postgres_pair import Postgres, one_postgres, sql
from warm_program import all_at_once, noetl

pytestmark = pytest.mark.xdist_group("own_stacks")

RULES = """\
host closed ada 127.0.0.1/32 scram-sha-256
host closed all 127.0.0.1/32 reject
host all all 127.0.0.1/32 scram-sha-256
"""
FILE = "settings.env"


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.end()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """``ada`` owns databases and may create roles; ``bob`` owns one, and may not; ``eve`` owns nothing."""
    with one_postgres(RULES) as server:
        sql(server, "create user ada createrole password 'secret'")
        for user in ("bob", "eve"):
            sql(server, f"create user {user} password 'secret'")
        yield server


@pytest.fixture
def database(postgres: Postgres, request: pytest.FixtureRequest) -> str:
    """The name of a new one, which ``ada`` owns."""
    name = f"own_{crc32(request.node.name.encode()):x}"
    sql(postgres, f"create database {name} owner ada")
    return name


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def dsn(postgres: Postgres, database: str, user: str = "ada", password: str = "secret") -> str:
    return postgres.dsn(database, f"{user}:{password}")


def words(nats_url: str, address: str, *more: object) -> list[object]:
    return ["setup", "--nats", nats_url, "--postgres", address, *more]


def written(home: Path) -> dict[str, str]:
    assert (home / FILE).stat().st_mode & 0o777 == 0o600
    return parse_settings((home / FILE).read_text(), FILE)


def test_three_commands_lead_to_a_result_on_own_servers(
    nats: NatsServer, postgres: Postgres, database: str, tmp_path: Path, home: Path
) -> None:
    own = {"HOME": str(tmp_path), "NOETL_HOME": str(home)}
    made = noetl("init", cwd=tmp_path, **own)
    assert made.returncode == 0, made.stderr
    done = noetl(*words(nats.url, dsn(postgres, database)), **own)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines() if line] == (
        ["NATS", "Postgres", "streams", "schema", "users", "keys", "settings", "next:"]
    )
    assert "secret" not in done.stdout
    assert written(home)["NOETL_GRANTS_DEFAULT"] == "own"
    ran = noetl("run", "playbooks/hello.yaml", "--timeout", "50", cwd=tmp_path, **own)
    assert ran.returncode == 0, ran.stderr
    assert "HELLO, WORLD" in ran.stdout

    (listed,) = only_json(noetl("execution", "list", "-o", "json", **own))
    assert listed["status"] == "completed"
    signing = only_json(noetl("backup", "keys", "-o", "json", **own))
    assert [(one["files"], one["use"]) for one in signing] == [("backup", "sign"), ("archive", "sign")]
    assert signing[0]["key"] != signing[1]["key"]
    checks = {check["check"]: check["verdict"] for check in only_json(noetl("doctor", "-o", "json", **own))}
    assert (checks["permissions"], checks["schema"], checks["streams"]) == ("ok", "ok", "ok")


def test_streams_are_made_as_the_environment_says_and_stay_so(
    nats: NatsServer, postgres: Postgres, database: str, home: Path
) -> None:
    given = words(nats.url, dsn(postgres, database), "--home", home)
    assert noetl(*given, NOETL_LOGS_MAX_BYTES="2MiB").returncode == 0
    stored = only_json(noetl("storage", "--home", home, "-o", "json"))
    assert [one["max_bytes"] for one in stored if one["name"] == "LOGS"] == [2 << 20]
    assert written(home)["NOETL_LOGS_MAX_BYTES"] == "2MiB"


def test_a_second_setup_keeps_keys_and_users_and_every_line_of_the_file(
    nats: NatsServer, postgres: Postgres, database: str, home: Path
) -> None:
    assert noetl(*words(nats.url, dsn(postgres, database), "--home", home)).returncode == 0
    text = (home / FILE).read_text().replace("NOETL_NATS_URL", "# mine\nNOETL_SLOTS=8\nNOETL_NATS_URL")
    (home / FILE).write_text(text)
    again = noetl("setup", "--home", home)
    assert again.returncode == 0, again.stderr
    assert [f"{part:9} up to date" in again.stdout for part in ("streams", "schema")] == [True, True]
    assert "keys      kept" in again.stdout
    assert (home / FILE).read_text() == text


def test_servers_and_gateways_get_users_with_the_rights_of_their_roles(
    nats: NatsServer, postgres: Postgres, database: str, home: Path
) -> None:
    assert noetl(*words(nats.url, dsn(postgres, database), "--home", home)).returncode == 0
    for role in ("server", "gateway"):
        address = written(home)[f"NOETL_POSTGRES_{role.upper()}_DSN"]
        asked = f"select current_user ~ '^noetl_{role}_[0-9a-f]{{8}}$' and pg_has_role('noetl_{role}', 'usage')"
        assert postgres.run("psql", "-X", "-t", "-A", "-c", asked, address) == "t\n"


@pytest.mark.parametrize(
    ("user", "in_database", "says"),
    [("bob", "", "who may not create others"), ("ada", "closed", "Postgres lets no user of their own log in")],
)
def test_where_no_users_can_be_made_servers_connect_as_the_one_that_is_there(
    nats: NatsServer, postgres: Postgres, database: str, home: Path, user: str, in_database: str, says: str
) -> None:
    if in_database:
        sql(postgres, f"create database {in_database}")
    name = in_database or database
    sql(postgres, f"alter database {name} owner to {user}")
    done = noetl(*words(nats.url, dsn(postgres, name, user), "--home", home))
    assert done.returncode == 0, done.stderr
    assert says in done.stdout
    assert not {"NOETL_POSTGRES_SERVER_DSN", "NOETL_POSTGRES_GATEWAY_DSN"} & written(home).keys()


def test_a_nats_with_accounts_is_set_up_with_its_seeds(
    postgres: Postgres, database: str, tmp_path: Path, home: Path
) -> None:
    seeds = tmp_path / "seeds"
    printed = CliRunner().invoke(accounts, ["--seeds", str(seeds)], catch_exceptions=False)
    secured = NatsServer(tmp_path, printed.stdout)
    secured.start()
    try:
        address = dsn(postgres, database)
        refused = noetl(*words(secured.url, address, "--home", home))
        assert refused.returncode == 3
        assert "--seeds" in one_clear_line(refused)
        done = noetl(*words(secured.url, address, "--home", home, "--seeds", seeds))
        assert done.returncode == 0, done.stderr
        assert written(home)["NOETL_NATS_SEEDS"] == str(seeds)
        assert noetl("stream", "list", "--home", home).returncode == 0
        assert noetl("worker", "list", "--home", home).returncode == 0
        missing = noetl("worker", "--pool", "gpu", "--home", home)
        assert missing.returncode == 2
        assert "no seed of worker-gpu" in missing.stderr and "nats accounts --pool gpu" in missing.stderr
    finally:
        secured.end()


@pytest.mark.parametrize(
    ("configuration", "says"),
    [
        ("max_payload: 8MB\n", "has no JetStream"),
        ('jetstream { store_dir: "./data" }\n', "accepts messages of up to 1048576 bytes; 4194304 are needed"),
        ('jetstream { store_dir: "./data" }\nauthorization { user: a, password: b }\n', "Authorization Violation"),
    ],
)
def test_a_nats_that_will_not_do_is_refused_before_anything_is_made(
    postgres: Postgres, database: str, tmp_path: Path, home: Path, configuration: str, says: str
) -> None:
    other = NatsServer(tmp_path)
    other.conf.write_text(configuration)
    other.start()
    try:
        found = noetl(*words(other.url, dsn(postgres, database), "--home", home))
    finally:
        other.end()
    assert found.returncode == 3
    assert says.lower() in one_clear_line(found).lower()
    assert_nothing_made(home, postgres, database)


def test_a_nats_that_is_too_old_is_refused_before_anything_is_made(
    postgres: Postgres, database: str, home: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"nats://127.0.0.1:{listening.getsockname()[1]}"
        answering = threading.Thread(target=answer_as_an_old_nats, args=[listening])
        answering.start()
        found = noetl(*words(url, dsn(postgres, database), "--home", home))
        answering.join()
    assert found.returncode == 3
    assert f"NATS at {url} is nats-server 2.9.25" in one_clear_line(found)
    assert "use 2.11 or newer" in found.stderr
    assert_nothing_made(home, postgres, database)


def answer_as_an_old_nats(listening: socket.socket) -> None:
    """One client, until it leaves."""
    client, _ = listening.accept()
    with client:
        client.sendall(b'INFO {"server_id":"old","version":"2.9.25","proto":1,"max_payload":8388608}\r\n')
        while received := client.recv(65_536):
            if b"PING" in received:
                client.sendall(b"PONG\r\n")


@pytest.mark.parametrize(
    ("user", "password", "in_database", "says"),
    [
        ("ada", "wrong", "", "wrong password"),
        ("ada", "secret", "nowhere", "the database does not exist"),
        ("eve", "secret", "", "GRANT CREATE ON DATABASE"),
    ],
)
def test_a_postgres_that_will_not_do_is_refused_before_anything_is_made(
    nats: NatsServer,
    postgres: Postgres,
    database: str,
    home: Path,
    user: str,
    password: str,
    in_database: str,
    says: str,
) -> None:
    address = dsn(postgres, in_database or database, user, password)
    found = noetl(*words(nats.url, address, "--home", home))
    assert found.returncode == 3
    assert says in one_clear_line(found)
    assert_nothing_made(home, postgres, database)


def assert_nothing_made(home: Path, postgres: Postgres, database: str) -> None:
    assert not home.exists()
    postgres.run("psql", "-X", "-v", "ON_ERROR_STOP=1", "-c", "create schema noetl", postgres.dsn(database))


def test_mistakes_in_both_addresses_are_reported_at_once(home: Path) -> None:
    found = noetl(*words("nats://127.0.0.1:1", "postgresql://ada:secret@127.0.0.1:1/x", "--home", home))
    assert found.returncode == 3
    message = one_clear_line(found)
    assert "cannot reach NATS at nats://127.0.0.1:1" in message
    assert "cannot reach Postgres at postgresql://ada@127.0.0.1:1/x" in message
    assert not home.exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "name the NATS and the Postgres to set up"),
        (["--nats", "nats://here:4222"], "name the NATS and the Postgres to set up"),
        (["--nats", "here:4222", "--postgres", "postgresql://here/x"], "invalid address in NOETL_NATS_URL"),
        (["--nats", "nats://here:4222", "--postgres", "host=here"], "invalid address in NOETL_POSTGRES_DSN"),
    ],
)
def test_addresses_that_are_missing_or_wrong_are_a_usage_error(given: list[str], says: str, home: Path) -> None:
    found = noetl("setup", *given, "--home", home)
    assert found.returncode == 2
    assert says in one_clear_line(found)


def test_a_home_that_cannot_be_written_is_named_before_anything_is_made(
    nats: NatsServer, postgres: Postgres, database: str, home: Path
) -> None:
    home.touch()
    found = noetl(*words(nats.url, dsn(postgres, database), "--home", home))
    assert found.returncode == 2
    assert f"{home} must be a folder" in one_clear_line(found)
    home.unlink()
    assert_nothing_made(home, postgres, database)


def test_a_database_that_another_home_has_set_up_wants_its_keys(
    nats: NatsServer, postgres: Postgres, database: str, home: Path, tmp_path: Path
) -> None:
    address, other = dsn(postgres, database), tmp_path / "other"
    assert noetl(*words(nats.url, address, "--home", home)).returncode == 0
    refused = noetl(*words(nats.url, address, "--home", other))
    assert refused.returncode == 1
    assert "was set up before, with keys that are not here" in one_clear_line(refused)
    assert not (other / FILE).exists()

    keys = {name: value for name, value in written(home).items() if name.endswith("_KEY")}
    assert noetl(*words(nats.url, address, "--home", other), **keys).returncode == 0
    assert keys.items() <= written(other).items()
    (other / FILE).unlink()
    assert noetl(*words(nats.url, address, "--home", other, "--new-keys")).returncode == 0
    assert not set(keys.values()) & set(written(other).values())


def test_two_setups_at_once_agree(
    nats: NatsServer, postgres: Postgres, database: str, home: Path, tmp_path: Path
) -> None:
    address = dsn(postgres, database)
    both = all_at_once([words(nats.url, address, "--home", home)] * 2)
    assert [one.returncode for one in both] == [0, 0], [one.stderr for one in both]
    assert sorted("keys      kept" in one.stdout for one in both) == [False, True]

    sql(postgres, f"create database {database}_two owner ada")
    homes = [tmp_path / "one", tmp_path / "two"]
    found = all_at_once([words(nats.url, dsn(postgres, f"{database}_two"), "--home", one) for one in homes])
    assert sorted(one.returncode for one in found) == [0, 1], [one.stderr for one in found]
    assert sorted((one / FILE).exists() for one in homes) == [False, True]


async def test_a_setup_that_was_killed_is_continued_with_the_same_keys(
    nats: NatsServer, postgres: Postgres, database: str, home: Path
) -> None:
    holding, looking = [await asyncpg.connect(postgres.dsn(database)) for _ in range(2)]
    held = holding.transaction()
    await held.start()
    await holding.execute("create schema noetl authorization ada")  # the setup waits for its end
    setting_up = start(*words(nats.url, dsn(postgres, database), "--home", home))
    waits = "select count(*) from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock'"
    await until_it_is(1, lambda: looking.fetchval(waits, "noetl-stream database migrate"))
    setting_up.kill()
    setting_up.communicate()
    await held.rollback()
    for connection in (holding, looking):
        await connection.close()

    assert not (home / FILE).exists()  # commands work as before
    begun = parse_settings((home / f"{FILE}.new").read_text(), FILE)
    assert noetl(*words(nats.url, dsn(postgres, database), "--home", home)).returncode == 0
    assert written(home) == begun
    assert not (home / f"{FILE}.new").exists()


def test_a_setup_says_which_variable_goes_before_its_file(
    nats: NatsServer, postgres: Postgres, database: str, tmp_path: Path
) -> None:
    own = {"NOETL_NATS_URL": nats.url, "NOETL_POSTGRES_DSN": dsn(postgres, database), "HOME": str(tmp_path)}
    done = noetl("setup", **own)
    assert done.returncode == 0, done.stderr
    assert "unset NOETL_NATS_URL" in done.stdout
    assert written(tmp_path / ".noetl").items() >= {name: own[name] for name in own if name != "HOME"}.items()


def test_a_run_that_finds_no_server_and_may_start_none_says_what_it_waits_for(
    postgres: Postgres, database: str, tmp_path: Path, home: Path
) -> None:
    alone = NatsServer(tmp_path)
    alone.start()
    try:
        assert noetl(*words(alone.url, dsn(postgres, database), "--home", home)).returncode == 0
        assert noetl("init", tmp_path).returncode == 0
        given = {name: value for name, value in written(home).items() if name != "NOETL_SERVER_KEY"}
        running = start("run", tmp_path / "playbooks" / "hello.yaml", **given)
        assert running.stderr is not None
        said = running.stderr.readline()
        running.terminate()
        running.communicate()
    finally:
        alone.end()
    assert said.startswith("no server answers: waiting until one is started with `noetl-stream server`")
    assert "NOETL_SERVER_KEY" in said and "`noetl-stream setup`" in said
