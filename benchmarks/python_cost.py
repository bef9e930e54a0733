"""What a run of a ``python`` task costs in the tool: on a warm child, and on a new one for each execution.

    chrt -f 5 python benchmarks/python_cost.py [other checkout]

Prints the median and the 99th percentile of runs of code that only gives a result: with a pause before each, as an
execution makes it, and one right after the other, which shows what the end of a run costs too; and of a function that
does the same. Code and the function alternate (ABBA); of what the function takes, as a multiple of code, the median and
the range of the rounds are shown, and the same of the processor's time, that of all processes.

At the end, one run in a new environment, with what is said while it is made, and when. Its package comes from a folder.

With another checkout, whose environment must be ready, rounds on the two alternate, and the ratio of the medians is
shown. ``chrt`` keeps other work on the machine from what is measured.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import uvloop
from msgspec.structs import replace

from noetl_stream.model.bundles import named_bundle, zip_of
from noetl_stream.playbook.plan import Timeouts
from noetl_stream.settings.children import EnvironmentSettings
from noetl_stream.testing.calls import tool_call
from noetl_stream.tools.contract import ToolCall
from noetl_stream.tools.python.environments.requirements import requirements_of
from noetl_stream.tools.python.tool import PythonTool

RUNS: Final = 300
PAUSE_S: Final = 0.01
"""Less than an execution of one step takes."""
PAUSES: Final = {"": PAUSE_S, ", without a pause": 0.0}
CALLED: Final = ", a function"
NEW_CHILDREN: Final = 100
ROUNDS: Final = 6
MEASURE: Final = "--measure"


CODE: Final = {"code": "result = n + 1"}
FUNCTION: Final = {"function": "function_sample:increase"}


def call(number: int, program: Mapping[str, str]) -> ToolCall:
    """A run in an execution of its own."""
    fields: dict[str, Any] = {
        "inputs": {**program, "args": {"n": number}},
        "knobs": {},
        "timeouts": Timeouts(),
        "idempotency_key": "key",
        "execution_id": f"execution-{number}",
        "step": "step",
        "task": "task",
        "attempt": 1,
        "trust_domain": "digest ann",
        "scope": {},
        "credential": None,
    }
    known = inspect.signature(ToolCall).parameters
    return ToolCall(**{name: value for name, value in fields.items() if name in known})


async def seconds_of(tool: PythonTool, runs: int, pause_s: float, program: Mapping[str, str] = CODE) -> list[float]:
    """Of each run, after some to warm up."""
    taken = []
    for made in [call(number, program) for number in range(runs + 20)]:
        began = time.perf_counter()
        await tool.run(made)
        taken.append(time.perf_counter() - began)
        await asyncio.sleep(pause_s)  # a worker's loop turns between two runs too
    await tool.close()
    return taken[20:]


def measure() -> dict[str, list[float]]:
    """Seconds of each run of this checkout; of ``CPU`` those of a processor, for a run on average."""
    taken: defaultdict[str, list[float]] = defaultdict(list)
    for pause, pause_s in PAUSES.items():
        at_start_s = _costs(CODE, pause_s, 0)[1]
        for name in ("", CALLED, CALLED, ""):
            seconds, cpu_s = _costs(FUNCTION if name else CODE, pause_s, RUNS)
            taken[f"warm{pause}{name}"] += seconds
            taken[f"CPU{pause}{name}"].append((cpu_s - at_start_s) / RUNS)
    if "settings" in inspect.signature(PythonTool).parameters:
        from noetl_stream.settings.children import ChildSettings

        tool = PythonTool(ChildSettings(isolation="execution"))
        taken["a child for each execution"] = _run(seconds_of(tool, NEW_CHILDREN, PAUSE_S))
    return taken


def _costs(program: Mapping[str, str], pause_s: float, runs: int) -> tuple[list[float], float]:
    """Seconds of each run of a new tool, and those of a processor that the tool takes from its start to its end."""
    before_s = _spent_s()
    return _run(seconds_of(PythonTool(), runs, pause_s, program)), _spent_s() - before_s


def _spent_s() -> float:
    spent = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in spent)


def _run(work: Coroutine[Any, Any, list[float]]) -> list[float]:
    """On the event loop that workers have."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def write_tiny(folder: Path) -> str:
    """Writes the wheel of a package to a folder that processes of tasks can read. Returns the lock that names it."""
    folder.chmod(0o755)
    about, file = "tiny-1.0.dist-info", folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr("tiny.py", "NUMBER = 1\n")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    return f"tiny==1.0 --hash=sha256:{sha256(file.read_bytes()).hexdigest()}"


async def print_first(folder: Path) -> None:
    """Runs a task in a new environment with one package, and once more, and prints what is said meanwhile."""
    knob, code = {"requires": ["tiny"]}, "import tiny\nreturn tiny.NUMBER"
    wanted = requirements_of(knob, code, converts=False)
    assert wanted is not None
    lock = write_tiny(folder)
    bundle = zip_of({wanted.lock_name: lock.encode()})

    async def read() -> bytes:
        return bundle

    def say(words: str) -> None:
        print(f"after {(time.perf_counter() - began) * 1e3:.0f} ms: {words}")

    def hear(_stream: str, data: bytes) -> None:
        for line in data.decode().splitlines():
            say(line)

    @contextmanager
    def queued(what: str) -> Iterator[None]:
        say(f"waits for {what}")
        yield

    name = str(named_bundle("benchmark", bundle))
    run = replace(tool_call({"code": code}, knobs={"python": knob}, trust_domain=name), bundle=name, read_bundle=read)
    run = replace(run, queued=queued, write=hear)
    tool = PythonTool(environments=EnvironmentSettings(folder=str(folder / "environments"), index=str(folder)))
    for which in ("the first run in a new environment", "the next one"):
        began = time.perf_counter()
        await tool.run(run)
        say(f"{which} has ended")
    await tool.close()


def measured_in(checkout: Path) -> dict[str, list[float]]:
    command = [str(checkout / ".venv" / "bin" / "python"), str(Path(__file__).resolve()), MEASURE]
    done = subprocess.run(command, cwd=checkout, stdout=subprocess.PIPE, check=True)
    taken: dict[str, list[float]] = json.loads(done.stdout)
    return taken


def main(others: list[str]) -> None:
    here = Path(__file__).resolve().parents[1]
    checkouts = [here, *map(Path, others)]
    found: dict[tuple[Path, str], list[list[float]]] = {}
    for number in range(ROUNDS):
        for checkout in checkouts if number % 2 == 0 else reversed(checkouts):
            for name, taken in measured_in(checkout).items():
                found.setdefault((checkout, name), []).append(taken)
    for (checkout, name), rounds in found.items():
        middle = median(map(median, rounds))
        late = (
            ""
            if name.startswith("CPU")
            else f", p99 {median(quantiles(one, n=100)[98] for one in rounds) * 1e6:.0f} us"
        )
        print(f"{checkout}: {name}: p50 {middle * 1e6:.0f} us{late}")
    for (checkout, name), rounds in found.items():
        if name.endswith(CALLED):
            _print_ratio(f"{checkout}: {name} / code", rounds, found[checkout, name.removesuffix(CALLED)])
    for (other, name), theirs in found.items():
        if other != here:
            _print_ratio(f"{name}, p50 here / there", found[here, name], theirs)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(print_first(Path(folder)))


def _print_ratio(name: str, these: list[list[float]], those: list[list[float]]) -> None:
    ratios = sorted(median(mine) / median(one) for mine, one in zip(these, those, strict=True))
    print(f"{name}: {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    if sys.argv[1:] == [MEASURE]:
        print(json.dumps(measure()))
    else:
        main(sys.argv[1:])
