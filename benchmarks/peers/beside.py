"""noetl-stream beside Restate, alternating in one sitting: ``make bench``.

    python benchmarks/peers/beside.py [rounds]

Both are installed from their published packages (Restate's into ``build/peers``, with npm and a Python environment of
its own). Each round measures both, the first in turn. Prints medians with their range, and of the ratio ours / theirs
the median and the range without the lowest and highest round. Restate is measured in both of its settings, and
compared in the better one.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
PEERS: Final = ROOT / "build" / "peers"
PROGRAM: Final = ROOT / ".venv" / "bin" / "noetl-stream"
ROUNDS: Final = 6
SETTINGS: Final = ("bidi", "request_response")
BURST: Final = ("--executions", "500", "--steps", "3", "--latency-runs", "30", "--fan-out", "1", "--repeat", "1")
HELLO: Final = ROOT / "playbooks" / "hello.yaml"

Figures = dict[str, float]
"""``steps/s``, ``p50 ms`` of three steps, ``CPU us/step`` of all processes, and ``cold s`` to the first result."""


def install() -> tuple[Path, Path]:
    """The Python that has Restate's SDK, and its server; both installed if they are not there."""
    python, modules = PEERS / "venv" / "bin" / "python", PEERS / "node_modules"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", PEERS / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", HERE / "requirements.txt"], check=True)
    if not modules.exists():
        (PEERS / "package.json").write_bytes((HERE / "package.json").read_bytes())
        command = ["npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(command, cwd=PEERS, check=True)
    return python, next(modules.glob("@restatedev/restate-server-*/bin/restate-server"))


def restate(python: Path, server: Path, setting: str) -> Figures:
    found = _json([str(python), str(HERE / "restate_stack.py"), str(server), setting])
    return _figures(found["steps_per_s"], found["p50_ms"], found["cpu_us_per_step"], found["cold_s"])


def ours(home: Path, empty: Path) -> Figures:
    """``empty`` is made, and kept: ext4 makes files slowly for minutes where thousands were removed, as in ``/tmp``."""
    began = time.perf_counter()
    subprocess.run([str(PROGRAM), "run", str(HELLO), "--home", str(empty)], capture_output=True, check=True)
    cold_s = time.perf_counter() - began
    _stop_all_of(str(empty))
    found = _json([str(PROGRAM), "bench", *BURST, "--home", str(home), "-o", "json"])
    return _figures(found["steps_per_s"][0], found["latency_ms"]["p50"], found["cpu_us_per_step"], cold_s)


def _stop_all_of(home: str) -> None:
    """Ends the server and worker that ``run`` has left in the background, and with them the stack."""
    left = [process for process in psutil.process_iter(["cmdline"]) if home in (process.info["cmdline"] or ())]
    for process in left:
        process.terminate()
    psutil.wait_procs(left, timeout=60)


def _figures(steps_per_s: float, p50_ms: float, cpu_us: dict[str, float], cold_s: float) -> Figures:
    return {"steps/s": steps_per_s, "p50 ms": p50_ms, "CPU us/step": sum(cpu_us.values()), "cold s": cold_s}


def _json(command: list[str]) -> Any:
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)


def main(rounds: int = ROUNDS) -> None:
    python, server = install()
    rows: list[dict[str, Figures]] = []
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
        os.environ["TMPDIR"] = folder  # Restate's files are beside ours, and what it leaves goes with them
        home, cold = Path(folder) / "home", Path(folder) / "cold"
        ours(home, cold)  # the first makes the servers' folders
        for number in range(rounds):
            row: dict[str, Figures] = {}
            empty = cold.with_suffix(f".{number}")
            for name in ("ours", *SETTINGS) if number % 2 == 0 else (*SETTINGS, "ours"):
                row[name] = ours(home, empty) if name == "ours" else restate(python, server, name)
            rows.append(row)
    better = max(SETTINGS, key=lambda setting: median(row[setting]["steps/s"] for row in rows))
    print(f"{rounds} rounds, {os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}; ", end="")
    print(f"load before: {os.getloadavg()[0]:.1f}; Restate's better setting: {better}")
    for figure in rows[0]["ours"]:
        here, there = ([row[name][figure] for row in rows] for name in ("ours", better))
        ratios = sorted(mine / theirs for mine, theirs in zip(here, there, strict=True))
        low, high = (ratios[1], ratios[-2]) if rounds > 3 else (ratios[0], ratios[-1])
        print(f"{figure:12} ours {_spread(here)}   Restate {_spread(there)}", end="   ")
        print(f"ratio {median(ratios):.2f} [{low:.2f}, {high:.2f}]")


def _spread(values: list[float]) -> str:
    return f"{median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
