"""Server-Sent Events, as a browser would see them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from aiohttp import ClientResponse


class Event(NamedTuple):
    id: str
    name: str
    data: dict[str, Any]


async def events_of(response: ClientResponse) -> AsyncIterator[Event]:
    """The events of a stream as a browser would see them."""
    fields: dict[str, str] = {}
    async for line in response.content:
        text = line.decode().rstrip("\n")
        if text:
            name, _, value = text.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield Event(fields["id"], fields["event"], json.loads(fields["data"]))
            fields = {}
