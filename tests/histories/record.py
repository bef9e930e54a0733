"""Records what executions of a release store, for every later release to read: ``test_postgres_histories.py`` does.

    python tests/histories/record.py CHECKOUT RELEASE

Runs the playbooks beside this file on a stack of the checkout, whose environment must be ready, by its commands, and
writes a folder named RELEASE: the rows of each table that holds executions, as Postgres gives them, a line each; the
messages of EVENTS and COMMANDS; and the journals, as the release itself reads them from its tables. Two executions are
left alive: one waits for a signal, the command of the other for a worker. A recorded release is not recorded again.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import asyncpg
import nats

FOLDER: Final = Path(__file__).parent
QUIET_S: Final = 2.0
"""How long nothing may happen until what is left alive counts as waiting."""

LEFT_OUT: Final = (
    "api_token",
    "audit",
    "browser_session",
    "idempotency",
    "meta",
    "partition",
    "server",
    "sign_in_code",
)
"""What the names of tables begin with that hold no executions."""

JOURNALS: Final = """
import asyncio, json, sys
from msgspec.structs import asdict
from noetl_stream.adapters.postgres.store import PostgresStore

async def main(dsn, *execution_ids):
    store = await PostgresStore.open(dsn, name="record")
    for one in execution_ids:
        for event in await store.journal(one):
            print(json.dumps({"execution_id": one, **asdict(event), "data": json.loads(event.data)}))
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""
"""Run by the Python of the release."""


class Program:
    """The commands of a checkout, on the stack of one home."""

    def __init__(self, checkout: Path, home: Path) -> None:
        self._program = checkout / ".venv/bin/noetl-stream"
        self._environment = {key: value for key, value in os.environ.items() if not key.startswith("NOETL_")}
        self.home = home

    def __call__(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        command = [str(self._program), *words, "--home", str(self.home)]
        ended = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=120)
        assert ended.returncode in codes, f"{words}: {ended.stdout}{ended.stderr}"
        return ended.stdout.strip()

    @contextmanager
    def stack(self) -> Iterator[None]:
        """Servers, a worker and a gateway."""
        command = [str(self._program), "dev", "--home", str(self.home)]
        log = self.home.with_name("dev.log")
        with (
            log.open("w") as errors,
            subprocess.Popen(
                command, env=self._environment, stdout=subprocess.PIPE, stderr=errors, text=True
            ) as running,
        ):
            assert running.stdout is not None
            assert "is running" in running.stdout.readline(), log.read_text()
            try:
                yield
            finally:
                running.terminate()
                running.communicate(timeout=60)

    def start(self, playbook: str) -> str:
        return self("execution", "start", str(FOLDER / "playbooks" / f"{playbook}.yaml"))

    def end(self, execution_id: str) -> str:
        """Waits until it has ended, however that is."""
        return self("execution", "wait", execution_id, codes=(0, 1))

    def rest(self, execution_id: str) -> None:
        """Waits until nothing more happens to it."""
        before = ""
        while (now := self("execution", "events", execution_id, "-o", "jsonl")) != before:
            before = now
            time.sleep(QUIET_S)

    def journals(self, execution_ids: Sequence[str]) -> list[str]:
        """The entries of these journals, as the release reads them."""
        command = [str(self._program.with_name("python")), "-c", JOURNALS, dsn(self.home), *execution_ids]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def dsn(home: Path) -> str:
    """The database of a home, by its owner."""
    password = json.loads((home / "passwords.json").read_text())["noetl"]
    port = json.loads((home / "stack.json").read_text())["servers"]["postgres"]["port"]
    return f"postgresql://noetl:{password}@127.0.0.1:{port}/noetl"


def patched(program: Program) -> None:
    """It waits for a time, a signal and a value of ``ctx``, and is paused meanwhile."""
    waits = program.start("waits")
    program("execution", "pause", waits)
    program("execution", "resume", waits)
    program("execution", "signal", waits, "go", "--payload", '{"by": "ada"}')
    program("execution", "patch", waits, "--set", "open=true", "--reason", "somebody knocked")
    program.end(waits)


def cancelled(program: Program) -> None:
    waits = program.start("waits")
    program.rest(waits)
    program("execution", "cancel", waits, "--reason", "no longer needed")
    program.end(waits)


def rerun(program: Program) -> None:
    """It fails, and is run again from the step that failed."""
    fails = program.start("fails")
    program.end(fails)
    program.end(program("execution", "rerun", fails, "second", "--ctx", "works=true", "-o", "name").rpartition("/")[2])


def left_alive(program: Program) -> None:
    program.rest(program.start("waits"))
    program.rest(program.start("queued"))


def completed(playbook: str) -> Callable[[Program], object]:
    return lambda program: program.end(program.start(playbook))


STORIES: Final[tuple[Callable[[Program], object], ...]] = (
    *map(completed, ("chain", "loops", "calls", "retries", "joins", "large")),
    patched,
    cancelled,
    rerun,
    left_alive,
)


async def rows(home: Path) -> dict[str, list[str]]:
    """The rows of each table, as the JSON that Postgres makes of them."""
    found = {}
    database = await asyncpg.connect(dsn(home))
    try:
        tables = await database.fetch(
            "select relname::text from pg_class where relnamespace = 'noetl'::regnamespace and relkind in ('r', 'p') "
            "and not relispartition order by 1"
        )
        for (table,) in tables:
            if not table.startswith(LEFT_OUT):
                lines = await database.fetch(f"select row_to_json(one)::text from noetl.{table} one")
                found[table] = sorted((line for (line,) in lines), key=_place)
    finally:
        await database.close()
    return {table: lines for table, lines in found.items() if lines}


def _place(line: str) -> tuple[str, int, str]:
    row = json.loads(line)
    return str(row.get("execution_id")), row.get("position") or 0, line


async def messages(home: Path) -> list[str]:
    """The messages of EVENTS and COMMANDS, in order."""
    port = json.loads((home / "stack.json").read_text())["servers"]["nats"]["port"]
    seeds = home / "nkeys.json"
    if seeds.exists():
        who: dict[str, Any] = {
            "nkeys_seed_str": json.loads(seeds.read_text())["server"],
            "inbox_prefix": "_INBOX_server",
        }
    else:  # 0.2
        who = {"user": "noetl", "password": json.loads((home / "passwords.json").read_text())["nats"]}
    client = await nats.connect(f"nats://127.0.0.1:{port}", **who)

    async def ask(what: str, wanted: dict[str, int]) -> dict[str, Any]:
        answer = await client.request(f"$JS.API.STREAM.{what}", json.dumps(wanted).encode())
        found: dict[str, Any] = json.loads(answer.data)
        return found

    found = []
    for stream in ("EVENTS", "COMMANDS"):
        state = (await ask(f"INFO.{stream}", {}))["state"]
        for sequence in range(state["first_seq"], state["last_seq"] + 1):
            message = (await ask(f"MSG.GET.{stream}", {"seq": sequence})).get("message")
            if message is not None:
                found.append(json.dumps({"stream": stream, **_shown(message)}))
    await client.close()
    return found


def _shown(message: dict[str, Any]) -> dict[str, str]:
    headers, body = (base64.b64decode(message.get(part, "")).decode() for part in ("hdrs", "data"))
    return {"subject": message["subject"], "headers": headers, "body": body}


def main(checkout: Path, release: str) -> None:
    into = FOLDER / release
    assert not into.exists(), f"{release} was recorded before"
    with tempfile.TemporaryDirectory(prefix="histories-", ignore_cleanup_errors=True) as folder:
        program = Program(checkout, Path(folder, "home"))
        with program.stack():
            program("playbook", "register", str(FOLDER / "playbooks" / "called.yaml"))
            for story in STORIES:
                story(program)
            found = asyncio.run(rows(program.home))
            ids = [json.loads(line)["execution_id"] for line in found["execution"]]
            found |= {"messages": asyncio.run(messages(program.home)), "journal": program.journals(ids)}
    into.mkdir()
    for name, lines in found.items():
        (into / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
