"""What `check` costs that explores the net of a playbook, for playbooks of 100 steps, against `check` that does not.

    python benchmarks/check_net.py [steps]

Each shape is checked in turns with and without exploration; the ratio depends little on the machine.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from noetl_stream.playbook.compile.compiler import check
from noetl_testkit.scenario.scenario import installed_kinds

TURNS: Final = 5
Step = dict[str, Any]


def shapes(count: int) -> Iterator[tuple[str, list[Step]]]:
    """Workflows of ``count`` steps, by name."""
    yield "chain", [_step(f"s{index}", [f"s{index + 1}"] if index + 1 < count else []) for index in range(count)]
    yield (
        "branches that set one key",
        [
            _step("start", [f"s{index}" for index in range(1, count)], is_fork=True),
            *(_step(f"s{index}", [], key="total") for index in range(1, count)),
        ],
    )
    for join in ("all", count // 5, count // 5 + 1):
        yield f"branches of 5 steps, join: {join}", _branches(count, join)
    for seed in range(3):
        yield f"random, seed {seed}", _random(count, Random(seed))


def _step(name: str, to: list[str], *, is_fork: bool = False, key: str = "", join: Any = None) -> Step:
    then = {"do": "continue"} | ({"set_ctx": {key: 1}} if key else {})
    spec = {"policy": {"rules": [{"else": {"then": then}}]}}
    guards = ({"when": f"{{{{ ctx.go_{target} }}}}"} if index % 2 else {} for index, target in enumerate(to))
    arcs = [{"step": target, **guard} for target, guard in zip(to, guards, strict=True)]
    routing = {"spec": {"mode": "inclusive" if is_fork else "exclusive"}, "arcs": arcs}
    step: Step = {"step": name, "tool": {"kind": "noop", "spec": spec}, "next": routing}
    return step if join is None else step | {"spec": {"join": join}}


def _branches(count: int, join: Any) -> list[Step]:
    firsts = [f"b{branch}_0" for branch in range(count // 5)]
    steps = [_step("start", firsts, is_fork=True), _step("end", [], key="k4", join=join)]
    for branch in range(count // 5):
        for place in range(5):
            to = "end" if place == 4 else f"b{branch}_{place + 1}"
            steps.append(_step(f"b{branch}_{place}", [to], key=f"k{place}"))
    return steps


def _random(count: int, random: Random) -> list[Step]:
    names = ["start", *(f"s{index}" for index in range(1, count))]
    steps = []
    for index, name in enumerate(names):
        later = names[index + 1 : index + 8]
        to = random.sample(later, min(len(later), random.randint(1, 3)))
        if random.random() < 0.1:
            to.append(random.choice(names[max(0, index - 10) : index + 1]))
        join = random.choice([None, None, None, None, "all", "any", 2])
        steps.append(_step(name, to, is_fork=random.random() < 0.5, key=f"k{random.randint(0, 9)}", join=join))
    return steps


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    kinds = installed_kinds()
    for name, steps in shapes(count):
        head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "net", "path": "bench/net"}}
        text = json.dumps(head | {"workflow": steps})
        spent: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(TURNS):
            for proves in (False, True):
                began = time.perf_counter()
                checked = check(text, kinds, proves=proves)
                spent[proves].append(time.perf_counter() - began)
        plain, proved = (statistics.median(spent[proves]) for proves in (False, True))
        codes = [one.code for one in checked.diagnostics]
        found = f"{len(codes)} findings" + (", some not explored" if "not_explored" in codes else "")
        print(f"{name:36} {plain * 1000:6.0f} ms, explored {proved * 1000:6.0f} ms ({proved / plain:.1f}), {found}")


if __name__ == "__main__":
    main()
