"""How many machine instructions the pure core takes: a figure that does not depend on how busy or quick a machine is.

    python benchmarks/instructions.py            measures, and compares with the recorded figures
    python benchmarks/instructions.py --record   measures, and records the figures of this Python version

Runs the work of ``core_work.py`` under `valgrind --tool=callgrind` (Debian: `apt-get install valgrind`), each piece in
a fork of one process that has prepared them all. On x86-64 counting begins in the forks, which is four times as quick.
What a fork takes that does nothing is subtracted, so neither start-up nor preparation counts. Hashes are seeded and the
garbage collector is off.

The figures are in ``instructions.json``, by version of Python. Two builds of one version differ: so a calibration, the
same Python code each time, is counted with them, and recorded figures are scaled by it. Exits with 1 if one is
more than 15 % above its record, and with 2 if there is nothing to count with or to compare with.
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from core_work import WORK, Work

RECORD: Final = Path(__file__).with_suffix(".json")
MOST: Final = 1.15
STALE: Final = 0.85
CALIBRATION: Final = "calibration"
NOTHING: Final = "nothing"
WORKING: Final = "--working"
VERSION: Final = f"{sys.version_info.major}.{sys.version_info.minor}"

CAN_BEGIN: Final = platform.machine() == "x86_64"
REQUEST: Final = bytes.fromhex("4889f8 31d2 48c1c703 48c1c70d 48c1c73d 48c1c733 4887db 4889d0 c3")
"""A function that hands valgrind a request as its ``valgrind.h`` does. Without valgrind it does nothing."""

START_INSTRUMENTATION: Final = (ord("C") << 24 | ord("T") << 16) + 4
"""The request of ``callgrind.h``."""

Figures = dict[str, int]


def calibrate() -> None:
    """What the core does most, in plain Python: calls, attributes, dictionaries, strings."""

    class Counter:
        def __init__(self) -> None:
            self.seen: dict[str, int] = {}

        def add(self, number: int) -> int:
            key = f"key {number % 64}"
            self.seen[key] = self.seen.get(key, 0) + number
            return len(self.seen)

    counter = Counter()
    assert sum(counter.add(number) for number in range(10_000)) > 0


def work() -> None:
    """Does each piece of work in a process of its own, forked when everything is ready, and one that does nothing.
    Prints their process ids and how many units each piece has.
    """
    pieces = {NOTHING: Work(lambda: None, 1), CALIBRATION: Work(calibrate, 1)}
    pieces |= {name: make() for name, make in WORK.items()}
    begin = beginning() if CAN_BEGIN else lambda: None
    gc.collect()
    gc.disable()
    print(json.dumps({name: (forked(begin, piece.run), piece.units) for name, piece in pieces.items()}))


def beginning() -> Callable[[], object]:
    """What makes callgrind count from there on."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(REQUEST)
    kept = ctypes.c_char.from_buffer(code)
    request = (ctypes.c_uint64 * 6)(START_INSTRUMENTATION)
    ask = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)

    def begin() -> None:
        ask(ctypes.addressof(kept))(ctypes.addressof(request))

    return begin


def forked(*acts: Callable[[], object]) -> int:
    """Calls ``acts`` in a copy of this process. Returns its process id once it has ended.

    Raises:
        ChildProcessError: it failed.
    """
    pid = os.fork()
    if pid == 0:
        failed = 1
        try:
            for act in acts:
                act()
            failed = 0
        finally:
            os._exit(failed)
    if os.waitpid(pid, 0)[1]:
        raise ChildProcessError("the work failed, as shown above")
    return pid


def count() -> Figures:
    """Instructions per unit of each piece of work."""
    with tempfile.TemporaryDirectory() as folder:
        counting = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={folder}/%p"]
        counting += ["--instr-atstart=no"] if CAN_BEGIN else []
        working = [sys.executable, str(Path(__file__)), WORKING]
        environment = {"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0"}
        # Once without counting: whatever is not compiled yet would be compiled much slower, if to the same effect.
        subprocess.run(working, env=environment, stdout=subprocess.DEVNULL, check=True)
        done = subprocess.run([*counting, *working], env=environment, stdout=subprocess.PIPE, check=True)
        pieces: dict[str, tuple[int, int]] = json.loads(done.stdout)
        totals = {name: _total(Path(folder, str(pid))) for name, (pid, _) in pieces.items()}
    nothing = totals.pop(NOTHING)
    return {name: round((total - nothing) / pieces[name][1]) for name, total in totals.items()}


def _total(file: Path) -> int:
    found = re.search(r"^totals: (\d+)$", file.read_text(), re.MULTILINE)
    assert found is not None, f"{file} has no total"
    return int(found[1])


def recorded() -> dict[str, Figures]:
    found: dict[str, Figures] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return found


def record(figures: Figures) -> None:
    RECORD.write_text(json.dumps({**recorded(), VERSION: figures}, indent=2, sort_keys=True) + "\n")


def compare(figures: Figures, before: Figures) -> dict[str, float]:
    """Each figure as a multiple of its record, scaled by the calibration. New work has no record and is left out."""
    scale = figures[CALIBRATION] / before[CALIBRATION]
    return {name: figures[name] / (before[name] * scale) for name in figures if name in before}


def judge(figures: Figures) -> int:
    """Prints the figures beside their records. Returns the exit code."""
    before = recorded().get(VERSION)
    if before is None:
        print(f"no figures are recorded for Python {VERSION}: python benchmarks/instructions.py --record")
        return 2
    ratios = compare(figures, before)
    for name, figure in figures.items():
        print(f"{name:36} {figure:12,}" + (f"   {ratios[name]:.3f} of the record" if name in ratios else "   new"))
    above = [name for name, ratio in ratios.items() if ratio > MOST]
    if above:
        print(f"more than {MOST - 1:.0%} above the record: {', '.join(above)}")
        print("make it cheaper; or, if it is worth that, record it: python benchmarks/instructions.py --record")
    elif min(ratios.values()) < STALE:
        print("much of this is cheaper than its record: python benchmarks/instructions.py --record")
    return 1 if above else 0


def main(arguments: list[str]) -> int:
    if shutil.which("valgrind") is None:
        print("instructions cannot be counted: valgrind is not installed (Debian: apt-get install valgrind)")
        return 2
    figures = count()
    if arguments == ["--record"]:
        record(figures)
    return judge(figures)


if __name__ == "__main__":
    if sys.argv[1:] == [WORKING]:
        work()
    else:
        sys.exit(main(sys.argv[1:]))
