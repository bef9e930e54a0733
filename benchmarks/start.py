"""How long commands take to start: reads and a run on a warm stack, and the first run of an empty home.

    python benchmarks/start.py [rounds]

Absolute times mean nothing on shared machines, so each figure comes with two ratios: to the start of a bare
interpreter, and to ten million turns of ``x += i * i``, both measured in turns with it. ``CPU`` is that of the command
itself, without the servers. Modules are compiled before, as an installed package has them.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import psutil

ROOT: Final = Path(__file__).resolve().parents[1]
BUILD: Final = ROOT / "build"
HELLO: Final = ROOT / "playbooks" / "hello.yaml"
PROGRAM: Final = (str(Path(sys.executable).with_name("noetl-stream")),)
ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
ROUNDS: Final = 7
BARE: Final = "bare interpreter"
LOOP: Final = "ten million turns"
LOOP_CODE: Final = "x = 0\nfor i in range(10_000_000): x += i * i"


class Took(NamedTuple):
    wall_s: float
    cpu_s: float


def took(command: Sequence[str]) -> Took:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, capture_output=True, check=True, env=ENVIRONMENT)
    wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def cold(home: str) -> Took:
    """The first run of an empty home. Its CPU includes what made the folders of the servers."""
    found = took([*PROGRAM, "run", str(HELLO), "--home", home])
    left = [one for one in psutil.process_iter(["cmdline"]) if home in (one.info["cmdline"] or ())]
    for process in left:  # the background process, which ends the stack
        process.terminate()
    psutil.wait_procs(left, timeout=60)
    return found


@contextmanager
def warm_stack() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as home:
        command = [*PROGRAM, "dev", "--no-gateway", "--home", home]
        stack = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT)
        try:
            assert stack.stdout is not None
            stack.stdout.readline()  # printed once a server answers
            yield Path(home)
        finally:
            stack.terminate()
            stack.wait()


def main(rounds: int = ROUNDS) -> None:
    subprocess.run([sys.executable, "-m", "compileall", "-q", ROOT / "src"], check=False, env=ENVIRONMENT)
    BUILD.mkdir(exist_ok=True)
    with warm_stack() as home:
        on_it = ("--home", str(home))
        run = subprocess.run(
            [*PROGRAM, "run", HELLO, *on_it, "-o", "json"], capture_output=True, check=True, env=ENVIRONMENT
        )
        execution_id = json.loads(run.stdout)["execution_id"]
        reads = (("list",), *((verb, execution_id) for verb in ("get", "events", "why")))
        commands = {
            BARE: [sys.executable, "-c", "pass"],
            LOOP: [sys.executable, "-c", LOOP_CODE],
            **{f"execution {verb[0]}": [*PROGRAM, "execution", *verb, *on_it] for verb in reads},
            "playbook list": [*PROGRAM, "playbook", "list", *on_it],
            "run, warm": [*PROGRAM, "run", str(HELLO), *on_it],
        }
        found: dict[str, list[Took]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                found[name].append(took(command))
    # Removed at the end, and not in /tmp: ext4 makes files slowly for minutes where thousands were removed.
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        found["run, cold"] = [cold(f"{folder}/{number}") for number in range(rounds)]
    print(f"{rounds} rounds, {os.cpu_count()} CPUs, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}")
    print(f"{'':18} {'wall ms':>22} {'CPU ms':>8} {'wall / bare':>12} {'wall / loop':>12}")
    bare, loop = (median(one.wall_s for one in found[name]) for name in (BARE, LOOP))
    for name, rows in found.items():
        wall = sorted(one.wall_s for one in rows)
        middle, cpu_ms = median(wall), 1000 * median(one.cpu_s for one in rows)
        spread = f"{1000 * middle:.0f} ({1000 * wall[0]:.0f} to {1000 * wall[-1]:.0f})"
        print(f"{name:18} {spread:>22} {cpu_ms:8.0f} {middle / bare:12.1f} {middle / loop:12.3f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
