"""A function whose parameters pydantic reads."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field


class Visit(BaseModel):
    at: datetime
    pages: int = Field(gt=0)


def longest(visits: list[Visit]) -> Visit:
    return max(visits, key=lambda visit: visit.pages)
