"""A receiver of lineage over HTTP: which answers are the end of an event, and which of a try."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from noetl_stream.adapters.lineage_receiver import HttpLineageReceiver
from noetl_stream.errors import PayloadRefused, Unreachable
from noetl_stream.settings.monitoring import LINEAGE_VARIABLE, LineageSettings, read_lineage

KEY = "s3cret-key"


async def answered(status: int, settings: LineageSettings | None = None) -> list[tuple[str, str]]:
    """What a receiver has got that answers so: the body and the key."""
    got = []

    async def take(request: web.Request) -> web.Response:
        got.append((await request.text(), request.headers.get("Authorization", "")))
        return web.Response(status=status, text="because of that")

    app = web.Application()
    app.router.add_post("/api/v1/lineage", take)
    async with TestServer(app) as server:
        url = str(server.make_url("/api/v1/lineage")).replace("//", f"//:{KEY}@")
        read = read_lineage(LINEAGE_VARIABLE, {LINEAGE_VARIABLE: url})
        assert read is not None and KEY not in read.url + read.shown
        receiver = HttpLineageReceiver(settings or read)
        try:
            await receiver.send({"eventType": "START"})
        finally:
            await receiver.close()
    return got


async def test_an_event_is_posted_with_the_key() -> None:
    assert await answered(201) == [('{"eventType":"START"}', f"Bearer {KEY}")]


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_refused_event_is_not_sent_again(status: int) -> None:
    with pytest.raises(PayloadRefused, match=f"answered {status}: because of that"):
        await answered(status)


@pytest.mark.parametrize("status", [302, 401, 404, 429, 500, 503])
async def test_an_event_that_the_receiver_cannot_take_now_is_sent_again(status: int) -> None:
    with pytest.raises(Unreachable, match=f"answered {status}"):
        await answered(status)


async def test_an_unreachable_receiver_is_tried_again_later() -> None:
    with pytest.raises(Unreachable, match="does not answer"):
        await answered(200, LineageSettings("http://127.0.0.1:1/"))
