"""Functions whose parameters pydantic reads, or msgspec beside it."""

from __future__ import annotations

from datetime import datetime

import msgspec
from pydantic import BaseModel, Field


class Visit(BaseModel):
    at: datetime
    pages: int = Field(gt=0)


def longest(visits: list[Visit]) -> Visit:
    return max(visits, key=lambda visit: visit.pages)


class Paid(msgspec.Struct):
    amount: int


def double(paid: Paid) -> int:
    return paid.amount * 2
