"""Runs every attack in a process with little memory and prints one line of JSON per attack."""

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

ATTACKS: list[Attack] = [*ESCAPES, *TEXTS, *NUMBERS, *LISTS, *COMPARISONS, *LOOPS, *DEEP, *BROKEN]


def ending(attempt: Any) -> tuple[str, Any]:
    try:
        return VALUE, attempt()
    except TemplateProblem as problem:
        return REFUSED, problem.message
    except ExpressionError as error:
        return FAILED, error.message


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    seen = scope(ctx=data())
    for number, attack in enumerate(ATTACKS):
        names: dict[str, Any] = {"namespaces": NAMESPACES, "bindings": {}}
        as_guard = ending(lambda text=attack.text, names=names: holds(compile_guard(text, **names), seen))
        as_input = ending(lambda text=attack.text, names=names: render(compile_template(text, **names), seen))
        json.dump({"number": number, "guard": as_guard, "input": as_input}, sys.stdout)
        sys.stdout.write("\n")


if __name__ == "__main__":
    main()
