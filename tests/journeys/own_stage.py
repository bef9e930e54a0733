"""An installation as the guides leave it: a NATS with accounts, a Postgres with roles, two servers, three workers and a
gateway, each a process with the settings of ``noetl-stream setup``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from journey_stack import NOETL, ROOT

from cli_program import environment
from homes import folder_for_home
from nats_process import free_ports
from noetl_stream.local.binaries import find_nats_server, find_postgres_programs
from postgres_pair import Postgres, one_postgres, sql
from warm_program import noetl, write_script

INCLUDE = '# include "./nats-accounts.conf"'
POOLS = ("default", "gpu", "night", "reports")
ROLES = {"server-1": "server", "server-2": "server", **dict.fromkeys(("worker-1", "worker-2", "worker-3"), "worker")}
READY = {"server": "took over", "worker": "worker starts", "gateway": "listening on", "nats": "Server is ready"}
PATIENCE_S = 60
SHIM = """\
#!/bin/sh
# A page signals the one nats-server of its machine; here it is that of this stage.
[ "$1" = --signal ] && exec {program} --signal "$2={pid}"
exec {program} "$@"
"""


class OwnStage:
    """The folder of an operator, with ``nats-seeds`` and ``nats-accounts.conf``, and what runs.

    Attributes:
        environment: Of the operator's shell.
        dsn: The Postgres, as the owner of the schema.
    """

    def __init__(self, folder: Path, postgres: Postgres, more: Mapping[str, str]) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.nats_port, self.gateway_port = free_ports(2)
        self.url = f"nats://127.0.0.1:{self.nats_port}"
        self.dsn = postgres.dsn()
        self._postgres = postgres
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        programs = folder / "programs"
        programs.mkdir()
        write_script(programs)
        (programs / "nats-server").write_text(SHIM.format(program=find_nats_server(), pid=folder / "nats.pid"))
        (programs / "nats-server").chmod(0o755)
        host, _, port = postgres.host.rpartition(":")
        self.environment = {
            "HOME": str(folder),
            "NOETL_HOME": str(self.home),
            "NOETL_EGRESS_ALLOW": "127.0.0.1/32",
            "NOETL_TRIGGER_STREAMS": "VISITS",
            "PATH": f"{programs}:{find_postgres_programs()}:{Path(sys.executable).parent}:/usr/bin:/bin",
            "PYTHONUNBUFFERED": "1",
            "PGHOST": host,
            "PGPORT": port,
            "PGUSER": "postgres",
            **more,
        }

    def start(self) -> None:
        """Follows the guide for servers of one's own, with accounts, and starts the roles."""
        pools = [word for pool in POOLS for word in ("--pool", pool)]
        made = self.command("nats", "accounts", *pools, "--trigger-stream", "VISITS")
        (self.folder / "nats-accounts.conf").write_text(made)
        conf = (ROOT / "nats.conf").read_text()
        assert conf.count(INCLUDE) == 1
        (self.folder / "nats.conf").write_text(conf.replace(INCLUDE, INCLUDE.removeprefix("# ")))
        self._start_nats()
        self.command("setup", "--nats", self.url, "--postgres", self.dsn, "--seeds", "nats-seeds")
        self.start_roles()

    def start_roles(self) -> None:
        """Starts the servers, the workers and the gateway."""
        for name, role in ROLES.items():
            self._spawn(name, [*NOETL, role])
        self._spawn("gateway", [*NOETL, "gateway", "--port", str(self.gateway_port)])
        for name in (*ROLES, "gateway"):
            self._await(name)

    def start_role(self, name: str, *words: str) -> None:
        """Starts a role and waits until it works."""
        self._spawn(name, [*NOETL, *words])
        self._await(name, words[0])

    def stop_roles(self) -> None:
        """Stops all roles, the last first; NATS and Postgres run on."""
        for name in [name for name in reversed(self._running) if name != "nats"]:
            self._stop(name)

    @property
    def are_at_work(self) -> bool:
        return all(process.poll() is None for process in self._running.values())

    def command(self, *words: str) -> str:
        """Runs a command of the program, and returns what it printed."""
        done = noetl(*words, cwd=self.folder, **self.environment)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def reload_nats(self) -> None:
        """Reloads NATS, and returns when it has read its configuration again."""
        log, said = self.folder / "nats.log", "Reloaded server configuration"
        before = log.read_text().count(said)
        subprocess.run([self.folder / "programs" / "nats-server", "--signal", "reload"], check=True)
        with _followed(log, self._running["nats"].pid) as lines:
            for _ in zip(range(before + 1), (line for line in lines if said in line), strict=False):
                pass

    def lose_nats(self) -> None:
        """Starts NATS with its configuration and accounts, and nothing that it held."""
        self._stop("nats")
        shutil.rmtree(self.folder / "nats-data")
        self._start_nats()

    def use_database(self, name: str) -> None:
        """Makes an empty database, and gives it to every process that starts from now on."""
        sql(self._postgres, f'create database "{name}"')
        file = self.home / "settings.env"
        file.write_text(re.sub(rf"({self.environment['PGPORT']}/)\w+", rf"\1{name}", file.read_text()))

    def end(self) -> None:
        for name in list(reversed(self._running)):
            self._stop(name)

    def _start_nats(self) -> None:
        listening = ["-a", "127.0.0.1", "-p", str(self.nats_port), "-P", str(self.folder / "nats.pid")]
        self._spawn("nats", [find_nats_server(), "-c", "nats.conf", *listening])
        self._await("nats")

    def _stop(self, name: str) -> None:
        process = self._running.pop(name)
        process.terminate()
        process.wait(PATIENCE_S)

    def _spawn(self, name: str, words: Sequence[str | Path]) -> None:
        given = environment(**self.environment)
        with (self.folder / f"{name}.log").open("wb") as output:
            self._running[name] = subprocess.Popen(
                words, cwd=self.folder, env=given, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def _await(self, name: str, role: str = "") -> None:
        """Waits until a process works, as its log says."""
        log, ready = self.folder / f"{name}.log", READY[role or name.partition("-")[0]]
        with _followed(log, self._running[name].pid) as lines:
            assert any(ready in line for line in lines), f"{name} does not run:\n{log.read_text()}"


@contextmanager
def _followed(log: Path, pid: int) -> Iterator[Iterator[str]]:
    """The lines of a log, also those to come while the process lives."""
    tail = ["tail", "-n", "+1", "-s", "0.1", "-f", log, "--pid", str(pid)]
    with subprocess.Popen(tail, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        yield iter(following.stdout.readline, "")
        following.terminate()


@contextmanager
def own_stage(more: Mapping[str, str]) -> Iterator[OwnStage]:
    """A stage at work, until the end of the block. ``more``: what its processes have in their environment as well."""
    with ExitStack() as ending:
        folder = ending.enter_context(folder_for_home("own-guides"))
        folder.chmod(0o755)
        postgres = ending.enter_context(one_postgres("host all all 127.0.0.1/32 trust\n"))
        stage = OwnStage(folder, postgres, more)
        ending.callback(stage.end)
        stage.start()
        yield stage
