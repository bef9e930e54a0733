"""Runs every attack in a process with little memory and prints one line of JSON per attack.

Each runs as an input and as a guard. Unless the argument is ``all``, of the attacks that only cost, which take longest,
one in twenty runs as an input, and one in a hundred as a guard too: guards are evaluated like inputs.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import Any

from template_attack import FAILED, REFUSED, VALUE, Attack, data
from template_attack_costs import COMPARISONS, LISTS, LOOPS, NUMBERS, TEXTS
from template_attack_escapes import ESCAPES
from template_attack_forms import BROKEN, DEEP
from template_rendering import NAMESPACES, scope

from noetl_stream.template import ExpressionError, TemplateProblem, compile_guard, compile_template, holds, render

MEMORY_BYTES = 512 * 1024 * 1024

COSTS: list[Attack] = [*TEXTS, *NUMBERS, *LISTS, *COMPARISONS, *LOOPS]
ATTACKS: list[Attack] = [*ESCAPES, *COSTS, *DEEP, *BROKEN]
ALL = "all"


def ending(attempt: Any) -> tuple[str, Any]:
    try:
        return VALUE, attempt()
    except TemplateProblem as problem:
        return REFUSED, problem.message
    except ExpressionError as error:
        return FAILED, error.message


def every(step: int) -> list[int]:
    """The numbers of the attacks; of those that only cost, one in ``step``."""
    only_cost = {attack.text for attack in COSTS}
    return [number for number, attack in enumerate(ATTACKS) if number % step == 0 or attack.text not in only_cost]


def as_inputs(whole: bool) -> list[int]:
    return every(1 if whole else 20)


def as_guards(whole: bool) -> list[int]:
    """Those with blocks among them: a guard is refused for its blocks, which costs nothing."""
    with_blocks = {number for number, attack in enumerate(ATTACKS) if "{%" in attack.text}
    return sorted(with_blocks.union(every(1 if whole else 100)))


def main(whole: bool) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    seen, inputs, guards = scope(ctx=data()), as_inputs(whole), as_guards(whole)
    for number in sorted({*inputs, *guards}):
        text = ATTACKS[number].text
        names: dict[str, Any] = {"namespaces": NAMESPACES, "bindings": {}}
        ended: dict[str, Any] = {"number": number, "guard": None, "input": None}
        if number in guards:
            ended["guard"] = ending(lambda text=text, names=names: holds(compile_guard(text, **names), seen))
        if number in inputs:
            ended["input"] = ending(lambda text=text, names=names: render(compile_template(text, **names), seen))
        json.dump(ended, sys.stdout)
        sys.stdout.write("\n")


if __name__ == "__main__":
    main(ALL in sys.argv)
