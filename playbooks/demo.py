"""The demonstration: everything on this machine, real servers, real data. ``make demo`` runs it.

Starts the airports API, a stack (NATS, Postgres, a server, two workers) under ``.demo``, runs
``paginate_to_postgres.yaml`` on it, and stops everything again. Its exit code is the run's.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent
NOETL = [sys.executable, "-m", "noetl_stream"]
PLAYBOOK = HERE / "paginate_to_postgres.yaml"


def say(text: str) -> None:
    print(f"demo: {text}", flush=True)


def start(stack: ExitStack, *command: str) -> subprocess.Popen[str]:
    """Starts a program that is ended with the demonstration."""
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    stack.callback(process.terminate)
    return process


def first_line(process: subprocess.Popen[str]) -> str:
    """What the program prints once it is up."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise SystemExit(f"did not start: {process.args}")
    return line


def main(home: Path) -> int:
    began = time.monotonic()
    with ExitStack() as stack:
        say(f"starting NATS, Postgres, a server, two workers and a gateway in {home}, and an airports API")
        servers = start(stack, *NOETL, "dev", "--home", str(home), "--workers", "2")
        api = start(stack, sys.executable, str(HERE / "airports_api.py"), "--port", "0")
        api_url = first_line(api)
        first_line(servers)
        say(f"the servers are up after {time.monotonic() - began:.0f} s")
        say(f"running {PLAYBOOK.name} on {api_url}, which is out of order at times")
        code = subprocess.call([*NOETL, "run", str(PLAYBOOK), "--home", str(home), "--set", f"api_url={api_url}"])
        say("stopping the servers")
    say(f"{'done' if code == 0 else 'failed'} in {time.monotonic() - began:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(".demo")))
