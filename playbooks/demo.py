"""The demonstration: everything on this machine, real servers, real data. ``make demo`` runs it.

Starts the airports API, a stack (NATS, Postgres, a server, two workers) under ``.demo``, runs
``paginate_to_postgres.yaml`` on it, and puts everything away again. Its exit code is the run's.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent
NOETL = [sys.executable, "-m", "noetl_stream.cli.main"]


def start(stack: ExitStack, *command: str) -> str:
    """Starts a program that is ended with the demonstration; returns the first line it prints."""
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    stack.callback(process.terminate)
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise SystemExit(f"{command[-1]} did not start")
    return line


def main(home: Path) -> int:
    with ExitStack() as stack:
        api_url = start(stack, sys.executable, str(HERE / "airports_api.py"), "--port", "0")
        print(f"The airports API listens on {api_url}")
        print(start(stack, *NOETL, "dev", "--home", str(home), "--workers", "2"))
        playbook = str(HERE / "paginate_to_postgres.yaml")
        return subprocess.call([*NOETL, "run", playbook, "--home", str(home), "--set", f"api_url={api_url}"])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(".demo")))
