"""Functions that tests run as tasks; nothing here imports pydantic."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any


class Size(Enum):
    SMALL = "s"


@dataclass
class Order:
    id: str
    due: date
    total: Decimal
    size: Size = Size.SMALL


def bill(order: Order, days: int = 30) -> Order:
    print(f"bills {order.id}")
    return Order(order.id, order.due + timedelta(days=days), order.total * 2, order.size)


def count(rows: list[int], *, factor: float = 1.0) -> float:
    return len(rows) * factor


async def later(n: int) -> int:
    return n + 1


def anything(**values: Any) -> dict[str, Any]:
    return values


class Busy(Exception):
    retryable = True
    retry_after_s = 7


def refuse(n: int) -> None:
    raise Busy(f"{n} are waiting")


class Reports:
    @staticmethod
    def total(rows: list[int]) -> int:
        return sum(rows)


NUMBER = 7
