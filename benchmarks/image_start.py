"""How long a server in a container takes until it answers probes, beside the same process without one, in turns.

    python benchmarks/image_start.py IMAGE [rounds]

Needs a container engine and the image (docs/how-to/run-in-containers.md); the process has the same packages, and should
have the same interpreter. There is no NATS: what is measured is the start. The engine's part ends when the process in
the container begins; it takes several programs, and much longer on a busy machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Final
from urllib.request import urlopen

from noetl_stream.local.processes import choose_port
from noetl_stream.sealing.keys import new_key

ROUNDS: Final = 9
GIVE_UP_S: Final = 60.0
NOWHERE: Final = "127.0.0.1:1"


def settings() -> tuple[dict[str, str], int]:
    """Those of a server that finds no NATS, and the port of its status address."""
    port = choose_port()
    servers = {"NOETL_NATS_URL": f"nats://{NOWHERE}", "NOETL_POSTGRES_DSN": f"postgresql://{NOWHERE}/noetl"}
    keys = {name: new_key() for name in ("NOETL_SERVER_KEY", "NOETL_ACCESS_KEY")}
    return {**servers, **keys, "NOETL_STATUS_ADDRESS": f"127.0.0.1:{port}"}, port


def until_alive(port: int) -> None:
    give_up_at = time.perf_counter() + GIVE_UP_S
    while time.perf_counter() < give_up_at:
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/livez"):
            return
        time.sleep(0.005)
    raise SystemExit("the server does not answer")


def bare(packages: Path) -> float:
    given, port = settings()
    began = time.perf_counter()
    command = [sys.executable, "-m", "noetl_stream", "server"]
    environment = {**os.environ, **given, "PYTHONPATH": str(packages)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        until_alive(port)
        took = time.perf_counter() - began
        process.kill()
    return took


def contained(image: str) -> tuple[float, float]:
    """The seconds since ``docker run``, and since the process began."""
    given, port = settings()
    name = f"noetl-{uuid.uuid4().hex[:8]}"
    began = time.time()
    options = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--network", "host"]
    run(["docker", "run", "--detach", "--rm", "--name", name, *options, *variables(given), image, "server"])
    until_alive(port)
    alive = time.time()
    process_began = datetime.fromisoformat(run(["docker", "inspect", "-f", "{{.State.StartedAt}}", name]).strip())
    run(["docker", "kill", name])
    return alive - began, alive - process_began.timestamp()


@contextmanager
def packages_of(image: str) -> Iterator[Path]:
    """A copy of what the image has installed."""
    name = f"noetl-{uuid.uuid4().hex[:8]}"
    run(["docker", "create", "--name", name, image])
    try:
        with tempfile.TemporaryDirectory() as folder:
            run(["docker", "cp", "--quiet", f"{name}:/opt/noetl-stream/lib", folder])
            (packages,) = Path(folder).glob("lib/python*/site-packages")
            yield packages
    finally:
        run(["docker", "rm", name])


def variables(given: Mapping[str, str]) -> list[str]:
    return [word for name, value in given.items() for word in ("--env", f"{name}={value}")]


def run(command: list[str]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main(image: str, rounds: int = ROUNDS) -> None:
    with packages_of(image) as packages:
        bare(packages)  # the first starts read from disk
        contained(image)
        taken = [(bare(packages), *contained(image)) for _ in range(rounds)]
    for name, chosen in (("median", median), ("best", min)):
        alone, whole, inside = (chosen(times) for times in zip(*taken, strict=True))
        print(f"{name} of {rounds}: process {alone:.2f} s, docker run {whole:.2f} s, of which in it {inside:.2f} s")
    print(f"median of docker run / process: {median(whole / alone for alone, whole, _ in taken):.2f} x")
    print(f"median of process in the container / process: {median(inside / alone for alone, _, inside in taken):.2f} x")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
