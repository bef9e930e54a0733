"""Attacks on templates, and the ``ctx`` that they run against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

REFUSED: Final = "refused"
"""A problem found by ``check``."""
FAILED: Final = "failed"
"""An ``ExpressionError``."""
VALUE: Final = "value"
"""Harmless: it renders to a value."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One payload.

    Attributes:
        text: The template, tried as an input and as a guard.
        ends: ``REFUSED``, ``FAILED`` or ``VALUE``, as an input; a guard that holds a block is refused in any case.
        because: A pattern that the message matches, or the value itself.
    """

    text: str
    ends: str
    because: Any


def refused(because: str, *texts: str) -> list[Attack]:
    return [Attack(text, REFUSED, because) for text in texts]


def failed(because: str, *texts: str) -> list[Attack]:
    return [Attack(text, FAILED, because) for text in texts]


def gives(value: Any, *texts: str) -> list[Attack]:
    return [Attack(text, VALUE, value) for text in texts]


def again(start: str, step: str, times: int = 99) -> str:
    """A block that repeatedly computes ``n.x`` from itself."""
    loop = f"{{% for i in range({times}) %}}{{% set n.x = {step} %}}{{% endfor %}}"
    return f"{{% set n = namespace(x={start}) %}}{loop}{{{{ n.x }}}}"


def many(expression: str, times: int) -> str:
    """A list that repeats one expression."""
    return f"{{{{ [{', '.join([expression] * times)}] | length }}}}"


def data() -> dict[str, Any]:
    """``ctx``, of about the size that the limits of a workload or result allow."""
    return {
        "text": "x" * 1_000_000,
        "copy": "x" * 999_999 + "y",
        "words": "\u0436 " * 500_000,
        "lines": "\x0c" * 500_000,
        "astral": "\U000e0001" * 500_000,
        "quotes": '"' * 1_000_000,
        "list": [0] * 100_000,
        "twin": [0] * 100_000,
        "rows": [{"n": number % 7, "x": "x" * 10} for number in range(10_000)],
        "colliding": [number * (2**61 - 1) for number in range(60_000)],
        "alike": {f"{number:03}" + chr(0x4E00 + number) * 200: number for number in range(2_000)},
        "mapping": {f"k{number}": number for number in range(100_000)},
        "deep": nested(5_000),
        "deeper": nested(5_001),
        "dunder": {"__class__": "a key", "__globals__": [1], "format": "mine", "mro": {"__subclasses__": 2}},
        "markup": "{{ 9 ** 9 }}{% for a in b %}",
        "empty": "",
        "secret": "s3cr3t",
    }


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value
