"""Bills. Nothing here belongs to noetl-stream: annotations say what the inputs of a task become, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal


@dataclass
class Line:
    name: str
    price: Decimal
    count: int = 1


@dataclass
class Bill:
    total: Decimal
    due: date


def bill(lines: list[Line], on: date, days: int = 14) -> Bill:
    if not lines:
        raise ValueError("a bill needs a line")
    print(f"a bill of {len(lines)} lines")
    total = sum((line.price * line.count for line in lines), Decimal(0))
    return Bill(total, on + timedelta(days=days))
