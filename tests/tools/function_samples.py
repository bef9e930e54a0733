"""Functions that tests run as tasks; nothing here imports pydantic."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any

from noetl_stream_client import Context, Fatal, Retryable


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


def placed(first: float, second: int = 2, /, third: int = 3) -> list[float]:
    return [first, second, third]


def several(*rest: int) -> int:
    return len(rest)


add_ten = partial(count, factor=10)


class Multiplier:
    def __call__(self, due: date) -> int:
        return due.year * 2


multiply = Multiplier()


async def refuse_together(n: int) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(n):
            group.create_task(refuse_soon(number))


async def refuse_soon(n: int) -> None:
    raise (Retryable("later", after=n) if n < 2 else Fatal("never"))


def anything(**values: Any) -> dict[str, Any]:
    return values


def refuse(n: int) -> None:
    raise Retryable(f"{n} are waiting", after=7)


def place(n: int, context: Context) -> list[Any]:
    context.log.info("at attempt %d", context.attempt)
    return [n, context.execution_id, context.step, context.task, context.idempotency_key, context.deadline is None]


def long(details: list[Any], context: Context) -> list[Any]:
    for one in details:
        context.heartbeat(one)
    return [context.previous_details, context.secrets]


async def asks(context: Context) -> None:
    assert not context.is_cancelled
    context.heartbeat("asked")
    while not context.is_cancelled:  # noqa: ASYNC110  the worker says it
        await asyncio.sleep(0.01)
    print("ends", flush=True)


class Reports:
    @staticmethod
    def total(rows: list[int]) -> int:
        return sum(rows)


class Thing:
    """What JSON has no value for."""


def thing(n: int) -> dict[str, Any]:
    return {"things": [n, Thing()]}


def lazy(n: int) -> Any:
    return (one for one in range(n))


def undefined(n: Elsewhere) -> int:  # type: ignore[name-defined]  # noqa: F821
    return 1


NUMBER = 7
