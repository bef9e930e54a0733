"""Connects to the Postgres host that answers, where an address names several.

asyncpg asks one host after another within one time-out: a silent host, as on a dead machine, would keep it from the
next.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from noetl_stream.concurrency import end_tasks

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

NEXT_HOST_AFTER_S: Final = 0.5
"""How long a host may be silent until the next is asked as well."""

ASK_AGAIN_S: Final = 0.5
"""How soon a host that has refused is asked again, while another is silent: a standby may be promoted meanwhile."""


def host_names(dsn: str) -> list[str]:
    """Returns the hosts of ``dsn`` with their ports."""
    return urlsplit(dsn).netloc.rpartition("@")[2].split(",")


def by_host(dsn: str) -> list[str]:
    """Returns ``dsn`` once for each of its hosts."""
    parts = urlsplit(dsn)
    user, at, _ = parts.netloc.rpartition("@")
    return [urlunsplit(parts._replace(netloc=f"{user}{at}{host}")) for host in host_names(dsn)]


async def connect(dsn: str, **given: Any) -> Connection:
    """Connects to the first host of ``dsn`` that answers and fits ``target_session_attrs``.

    If all refuse, raises the last host's error.
    """
    hosts = by_host(dsn)
    if len(hosts) == 1:
        return await asyncpg.connect(dsn, **given)
    asking = {
        asyncio.create_task(_ask(host, NEXT_HOST_AFTER_S * number, given)): number for number, host in enumerate(hosts)
    }
    refused: set[int] = set()
    try:
        while True:
            done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                error = one.exception()
                number = asking.pop(one)
                if error is None:
                    return one.result()
                refused.add(number)
                if len(refused) == len(hosts):
                    raise error
                asking[asyncio.create_task(_ask(hosts[number], ASK_AGAIN_S, given))] = number
    finally:
        await end_tasks(list(asking))
        for one in asking:
            if not one.cancelled() and one.exception() is None:
                one.result().terminate()


async def _ask(host: str, after_s: float, given: dict[str, Any]) -> Connection:
    await asyncio.sleep(after_s)
    return await asyncpg.connect(host, **given)
