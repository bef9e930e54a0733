"""The demonstration: everything on this machine, real servers, real data. ``make demo`` runs it.

Starts the airports API, a stack (NATS, Postgres, a server, two workers) under ``.demo``, runs
``paginate_to_postgres.yaml`` on it, and stops everything again. Its exit code is the run's. What the servers log is in
``.demo/demo.log``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import IO

from noetl_stream.cli.base.activity import activity
from noetl_stream.cli.base.output import say
from noetl_stream.cli.main import main as program

HERE = Path(__file__).resolve().parent
NOETL = [sys.executable, "-m", "noetl_stream"]
PLAYBOOK = HERE / "paginate_to_postgres.yaml"
STAGES = " noetl_stream.dev_stack "
"""The logger that says what `dev` is doing."""


def start(stack: ExitStack, log: IO[str], *command: str) -> subprocess.Popen[str]:
    """Starts a program that is ended with the demonstration, and that Ctrl-C does not reach before."""
    process = stack.enter_context(
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    )
    stack.callback(process.terminate)
    copying = Thread(target=copy_log, args=(process.stderr, log))
    copying.start()
    stack.callback(lambda: (process.terminate(), process.wait(), copying.join()))
    return process


def copy_log(lines: IO[str], log: IO[str]) -> None:
    """Copies what a program logs, and shows what `dev` is doing meanwhile."""
    for line in lines:
        log.write(line)
        log.flush()
        _, is_stage, stage = line.partition(STAGES)
        if is_stage:
            activity.show(stage.strip())


def first_line(process: subprocess.Popen[str], log: Path) -> str:
    """What the program prints once it is up."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        process.wait()
        last = log.read_text(encoding="utf-8").splitlines()[-3:]
        raise SystemExit("\n".join(["demo: the servers did not start:", *last, f"demo: the whole log: {log}"]))
    return line


def run(*words: str) -> int:
    """Runs `noetl-stream run` in this process, which has loaded it; its exit code."""
    try:
        program(["run", *words])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def demonstrate(home: Path, log: Path, opened: IO[str]) -> int:
    began = time.monotonic()
    with ExitStack() as stack:
        say(f"demo: starting NATS, Postgres, a server, two workers, a gateway and an airports API in {home}")
        activity.show("loading the program")
        activity.tick()
        servers = start(stack, opened, *NOETL, "dev", "--home", str(home), "--workers", "2")
        api = start(stack, opened, sys.executable, str(HERE / "airports_api.py"), "--port", "0")
        from noetl_stream.cli.execution import start as _loaded  # while the servers start  # noqa: F401

        api_url = first_line(api, log)
        first_line(servers, log)
        say(f"demo: they are up after {time.monotonic() - began:.0f} s")
        say(f"demo: running {PLAYBOOK.name} on the API, which answers 429 and 503 at times")
        code = run(str(PLAYBOOK), "--home", str(home), "--set", f"api_url={api_url}")
        activity.show("stopping the servers")
        activity.tick()
    ended = {0: "done", 130: "interrupted, and everything stopped,"}.get(code, "failed")
    say(f"demo: {ended} in {time.monotonic() - began:.0f} s; the servers' log is {log}")
    return code


def main(home: Path) -> int:
    home.mkdir(mode=0o700, exist_ok=True)
    log = home / "demo.log"
    try:
        with log.open("w", encoding="utf-8") as opened:
            return demonstrate(home, log, opened)
    except KeyboardInterrupt:
        say(f"demo: interrupted, and everything stopped; the servers' log is {log}")
        return 130


if __name__ == "__main__":
    ended = main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(".demo"))
    sys.stdout.flush()
    os._exit(ended)  # as the program does: nothing is left to free
