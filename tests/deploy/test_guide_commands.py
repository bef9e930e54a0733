"""Commands of the guides that no test follows as they stand: each is given to the program that it is for.

A ``text`` block that is no output names programs that a reader has and a test has not: a cluster, systemd, Postgres.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from helm import ROOT, program
from walkthrough import BLOCK

from nats_process import NatsServer
from noetl_stream.cli.main import noetl_stream
from noetl_stream.local.binaries import find_nats_server, find_postgres_programs
from noetl_stream.settings.children import VARIABLES as PYTHON_VARIABLES
from noetl_stream.settings.gateway_settings import OIDC_PREFIX, OIDC_VARIABLES
from noetl_stream.settings.key_variables import (
    ARCHIVE_KEYS_VARIABLE,
    BACKUP_KEYS_VARIABLE,
    CREDENTIAL_PREFIX,
    FILE_KEY_NAMES,
)
from noetl_stream.settings.monitoring import PREFIX as TRACES_PREFIX
from noetl_stream.settings.sources.environment import Settings
from noetl_testkit.waiting import until_it_is
from postgres_pair import Postgres, postgres_pair

GUIDES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
UNITS = {file.name for file in (ROOT / "deploy" / "systemd").glob("*.service")}
NOWHERE = "127.0.0.1:1"
SETTING = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)")
CRON = re.compile(r"(?:[0-9*]+ ){5}noetl-stream ")
POSTGRES_SETTING = re.compile(r"(\w+) = (.+)")

SHOWN = {
    ("run-on-clusters.md", "stream"): "cli/test_cli_own_servers.py compares the columns",
    ("run-on-kubernetes.md", "…"): "deploy/test_kubernetes_docs.py compares it with what Helm says",
}
"""Blocks that are output, by their first word, and what compares it."""

RUN_ELSEWHERE = {
    ("run-on-kubernetes.md", "password()"): "deploy/test_kubernetes_docs.py runs the page's preparation",
    (
        "back-up-and-restore.md",
        "cp",
    ): "store/test_point_in_time.py does this with Postgres' files and the page's settings",
    ("back-up-and-restore.md", "echo"): "store/test_point_in_time.py takes the settings from the page",
    ("back-up-and-restore.md", "touch"): "store/test_point_in_time.py",
    ("back-up-and-restore.md", "mkdir"): "store/test_backups.py restores into a new home with the keys of the old one",
}
"""Commands that a test of another folder runs, by page and first word."""


FILES = {
    ("run-on-clusters.md", "nats-1.conf"): "nats-server reads it, below",
    ("run-on-clusters.md", "leaf.conf"): "adapters/test_nats_leaf.py runs it",
}
"""Files of pages that no test follows step by step, and what reads them."""


class Line(NamedTuple):
    """A command, a setting or a statement of a page, continued lines joined."""

    page: str
    text: str

    @property
    def word(self) -> str:
        """What it begins with."""
        return self.text.split()[0]

    @property
    def sort(self) -> str:
        """What checks it: the name of a program, or of what else it is."""
        if CRON.match(self.text):
            return "noetl-stream"
        if SETTING.fullmatch(self.text):
            return "noetl-stream" if " noetl-stream " in self.text else "setting"
        if POSTGRES_SETTING.fullmatch(self.text):
            return "postgresql.conf"
        return "sql" if self.word in ("CREATE", "DROP") else self.word


def plain_lines(page: Path) -> Iterator[Line]:
    """Of the blocks that stand for themselves: those after a ``bash`` block are its output."""
    text, end, before = page.read_text(), 0, ""
    for block in BLOCK.finditer(text):
        is_output = before == "bash" and not text[end : block.start()].strip()
        if block["info"] == "text" and not is_output and (page.name, block["text"].split()[0]) not in SHOWN:
            for line in block["text"].replace("\\\n", " ").splitlines():
                yield Line(page.name, line.strip())
        end, before = block.end(), block["info"]


LINES = [line for page in GUIDES for line in plain_lines(page)]


def of_sort(*sorts: str) -> list[Any]:
    """The lines of these sorts, as parameters of a test."""
    found = [line for line in LINES if line.sort in sorts and (line.page, line.word) not in RUN_ELSEWHERE]
    assert {line.sort for line in found} == set(sorts)
    return [pytest.param(line.text, id=f"{line.page.removesuffix('.md')}: {line.text[:60]}") for line in found]


OIDC = dict(line.text.split("=", 1) for line in LINES if line.text.startswith(OIDC_PREFIX))
"""These settings are taken together only."""

CHECKED = {
    *(
        "noetl-stream",
        "kubectl",
        "helm",
        "systemctl",
        "nats-server",
        "psql",
        "createdb",
        "pg_basebackup",
    ),
    *("setting", "postgresql.conf", "sql"),
}


def test_every_line_of_every_block_is_checked() -> None:
    assert [line for line in LINES if line.sort not in CHECKED and (line.page, line.word) not in RUN_ELSEWHERE] == []
    assert {(line.page, line.word) for line in LINES} >= RUN_ELSEWHERE.keys()
    unfollowed = [page for page in GUIDES if "```bash" not in page.read_text()]
    files = {
        (page.name, name)
        for page in unfollowed
        for name in re.findall(r'^```text title="(.+)"$', page.read_text(), re.M)
    }
    assert files == FILES.keys()


@pytest.mark.parametrize("text", of_sort("noetl-stream"))
def test_the_program_knows_a_command_with_its_options(text: str) -> None:
    words = shlex.split(re.sub(r"\s*>.*", "", text))
    command: click.Command = noetl_stream
    name, rest, context = "noetl-stream", words[words.index("noetl-stream") + 1 :], None
    while isinstance(command, click.Group) and not (command.invoke_without_command and rest[0].startswith("-")):
        context = command.make_context(name, rest, parent=context)
        found, sub, rest = command.resolve_command(context, [*context.protected_args, *context.args])
        assert found is not None and sub is not None
        name, command = found, sub
    command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("text", of_sort("setting"))
def test_a_setting_exists_and_takes_the_value(text: str) -> None:
    name, value = re.fullmatch(SETTING, text).groups()  # type: ignore[union-attr]
    known = {one.name for one in Settings.variables().values()} | {OIDC_PREFIX + one for one in OIDC_VARIABLES}
    known |= {*PYTHON_VARIABLES}
    for keys in (BACKUP_KEYS_VARIABLE, ARCHIVE_KEYS_VARIABLE):
        known |= {keys.replace("<NAME>", one) for one in FILE_KEY_NAMES}
    assert name.removesuffix("_FILE") in known or name.startswith((CREDENTIAL_PREFIX, TRACES_PREFIX))
    if "…" not in value:
        Settings.from_environment(OIDC if name.startswith(OIDC_PREFIX) else {name: value})


@pytest.mark.xdist_group("helm")
@pytest.mark.parametrize("text", of_sort("kubectl", "helm"))
def test_kubectl_and_helm_take_a_command_and_would_ask_the_cluster(text: str, tmp_path: Path) -> None:
    """Unknown flags and wrong arguments are refused before a cluster is asked; none is at the address. One command is
    there to show what the chart refuses."""
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    for name in ("nats-accounts.conf", "nats-seeds"):
        (tmp_path / name).write_text("…")
    (tmp_path / "password").write_text("#!/bin/sh\n")
    (tmp_path / "password").chmod(0o755)
    config = {"kind": "Config", "clusters": [{"name": "no", "cluster": {"server": f"http://{NOWHERE}"}}]}
    config |= {"contexts": [{"name": "no", "context": {"cluster": "no"}}], "current-context": "no"}
    (tmp_path / "config").write_text(repr(config))
    folders = [program("kubectl").parent, program("helm").parent, tmp_path, "/usr/bin", "/bin"]
    given = {"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "config"), "PATH": ":".join(map(str, folders))}
    given |= {"HTTPS_PROXY": f"http://{NOWHERE}"}
    done = subprocess.run(["bash", "-c", text], cwd=tmp_path, env=given, capture_output=True, text=True)
    assert done.returncode == 1
    expected = r"is no value of this chart" if " template " in text else rf"(?s){NOWHERE}.*refused"
    assert re.search(expected, done.stderr), done.stderr


@pytest.mark.parametrize("text", of_sort("systemctl"))
def test_systemctl_stops_units_that_are_there(text: str) -> None:
    """`make verify` runs the command on a machine with systemd, too (test_systemd_units.py)."""
    _, verb, *names = shlex.split(text)
    assert verb == "stop"
    for name in names:
        wanted = re.sub(r"@.*", "@", name) + ".service"
        assert any(fnmatch(unit, wanted) for unit in UNITS), name


def test_systemd_hands_every_role_the_files_that_the_page_names() -> None:
    page = (ROOT / "docs" / "how-to" / "run-with-systemd.md").read_text()
    named = {
        name for row in re.findall(r"^\| (`.+?`) \| .* \|.*\|$", page, re.M) for name in re.findall(r"`(.+?)`", row)
    }
    folder = ROOT / "deploy" / "systemd"
    loaded = {
        name.replace("%i", "POOL")
        for unit in UNITS
        for name in re.findall(
            r"^LoadCredential=[\w-]+:/etc/noetl-stream/secrets/(.+)$", (folder / unit).read_text(), re.M
        )
    }
    assert loaded and loaded <= named


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path)
    server.start("-P", str(tmp_path / "pid"))
    yield server
    server.end()


@pytest.mark.parametrize(("signal", "said"), [("reload", "Reloaded server configuration"), ("ldm", "lame duck mode")])
async def test_a_nats_server_does_what_a_page_signals(nats: NatsServer, tmp_path: Path, signal: str, said: str) -> None:
    """The pages send it to the one nats-server of the machine, or by its process id."""
    assert f"nats-server --signal {signal}" in "".join(page.read_text() for page in GUIDES)
    await until_it_is(True, lambda: _is_true("Server is ready" in (tmp_path / "nats.log").read_text()))
    command = [find_nats_server(), "--signal", f"{signal}={(tmp_path / 'pid').read_text()}"]
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
    await until_it_is(True, lambda: _is_true(said in (tmp_path / "nats.log").read_text()))


async def _is_true(what: bool) -> bool:
    return what


@pytest.mark.parametrize("text", of_sort("nats-server"))
def test_a_page_signals_what_a_nats_server_knows(text: str) -> None:
    assert text == "nats-server --signal reload"


def test_the_configuration_of_a_clustered_nats_server_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "run-on-clusters.md").read_text()
    (configuration,) = re.findall(r'```text title="nats-1.conf"\n(.*?)```', page, re.S)
    (tmp_path / "nats-1.conf").write_text(configuration)
    accounts = [Path(sys.executable).with_name("noetl-stream"), "nats", "accounts", "--pool", "default"]
    with (tmp_path / "nats-accounts.conf").open("w") as file:
        subprocess.run(accounts, cwd=tmp_path, stdout=file, check=True)
    checked = subprocess.run(
        [find_nats_server(), "-t", "-c", "nats-1.conf"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (checked.returncode, "is valid" in checked.stderr) == (0, True), checked.stderr


def test_every_extra_that_is_installed_exists() -> None:
    named = {one for page in GUIDES for one in re.findall(r"pip install 'noetl-stream\[(\w+)\]'", page.read_text())}
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert named and named <= known.keys()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with postgres_pair(synchronous=False) as pair:
        yield pair.primary


def run_for_postgres(postgres: Postgres, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{find_postgres_programs()}:/usr/bin:/bin"
    port = postgres.host.rpartition(":")[2]
    given = {"PATH": path, "PGHOST": "127.0.0.1", "PGPORT": port, "PGUSER": "postgres", "HOME": os.devnull}
    return subprocess.run(["bash", "-c", command], cwd=folder, env=given, capture_output=True, text=True)


def answer_of(postgres: Postgres, statement: str) -> str:
    done = run_for_postgres(postgres, f"psql -v ON_ERROR_STOP=1 -Atqc {shlex.quote(statement)}", postgres.folder.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.xdist_group("own_stacks")
@pytest.mark.parametrize("text", of_sort("psql", "createdb", "pg_basebackup"))
def test_a_program_of_postgres_does_what_a_page_says(postgres: Postgres, tmp_path: Path, text: str) -> None:
    done = run_for_postgres(postgres, text.replace(" /base", f" {tmp_path}/base"), tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.xdist_group("own_stacks")
def test_postgres_takes_the_settings_of_the_pages(postgres: Postgres) -> None:
    settings = [line.text for line in LINES if line.sort == "postgresql.conf"]
    assert any("synchronous_standby_names" in line for line in settings)
    for line in settings:
        answer_of(postgres, f"alter system set {line}")
    refused = answer_of(postgres, "select error from pg_file_settings where error is not null")
    for line in settings:
        answer_of(postgres, f"alter system reset {line.split()[0]}")
    assert refused == ""


@pytest.mark.xdist_group("own_stacks")
def test_one_user_of_postgres_takes_the_place_of_another(postgres: Postgres) -> None:
    roles, *users = (line.text for line in LINES if line.sort == "sql")
    (first,) = re.findall(r"`(CREATE USER .+?)`", (ROOT / "docs" / "how-to" / "own-servers.md").read_text())
    for statement in (roles, first, *users):
        answer_of(postgres, statement)
    members = "select member::regrole from pg_auth_members where roleid = 'noetl_server'::regrole"
    assert answer_of(postgres, members) == "noetl_server_2"
