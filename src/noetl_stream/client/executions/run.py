"""Running one execution from the request to its end, watching it on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from noetl_stream.client.executions.documents import execution_document
from noetl_stream.client.executions.follow import Follower, ProgressUpdate
from noetl_stream.client.executions.submit import Client, Submission
from noetl_stream.errors import Unreachable
from noetl_stream.ports.operations.executions import ExecutionDocument
from noetl_stream.ports.store import Store

LOOK_S = 2.0
"""How often Postgres is asked when nothing is heard: live news may be lost, the fold's word is not."""

RETRY_S = 0.2


class WaitTimeout(Exception):
    """The execution had not ended when the time was over; it goes on."""


async def run_to_end(
    client: Client,
    store: Store,
    submission: Submission,
    *,
    timeout_s: float | None,
    on_news: Callable[[ProgressUpdate], None],
    on_accepted: Callable[[], None],
    ensure_server: Callable[[], Awaitable[None]],
) -> ExecutionDocument:
    """Submits, follows and describes the ended execution.

    Args:
        timeout_s: From the submission on; ``None`` waits as long as it takes.
        on_news: Called with each fact as it passes.
        ensure_server: Called before waiting, and again whenever nothing is heard for a while.

    Raises:
        Refused: the fold refused the request.
        Overtime: the time is over.
    """
    follower = await client.follow(submission.execution_id).open(reports=True)
    relay = asyncio.create_task(_relay(follower, on_news))
    try:
        async with asyncio.timeout(timeout_s):
            await ensure_server()
            await client.submit(submission, follower, unanswered=ensure_server)
            on_accepted()
            described = await _described_end(store, follower, submission.execution_id, ensure_server)
            if follower.finished.is_set():
                await relay  # what was heard before the end is shown before the result
            return described
    except TimeoutError:
        raise WaitTimeout from None
    finally:
        relay.cancel()
        await follower.close()


async def _described_end(
    store: Store, follower: Follower, execution_id: str, ensure_server: Callable[[], Awaitable[None]]
) -> ExecutionDocument:
    """Waits for the end, over the deaths of NATS and Postgres; what is heard of it is committed."""
    while True:
        heard = await follower.end(LOOK_S)
        try:
            row = await store.execution(execution_id)
            if row is not None and row.finished_ms is not None:
                return execution_document(row, await store.journal(execution_id), 0)
        except Unreachable:
            await asyncio.sleep(RETRY_S)
            continue
        if not heard:
            await ensure_server()


async def _relay(follower: Follower, on_news: Callable[[ProgressUpdate], None]) -> None:
    async for news in follower.news():
        on_news(news)
