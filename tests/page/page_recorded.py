"""The page over recorded answers: the same at every time and on every machine, so that pictures of it can be compared.

A recording holds what a real gateway has answered to each screen of :mod:`page_stage`, and when. Its page is the one
of this package, in fonts that come from npm.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from aiohttp import ClientSession, web
from page_browser import Visit
from yarl import URL

from noetl_stream.gateway.page_files import ASSET, VIEWS

ROOT: Final = Path(__file__).resolve().parents[2]
RECORDED: Final = Path(__file__).parent / "recorded.json"
PAGE: Final = ROOT / "src" / "noetl_stream" / "gateway" / "page"
FONTS: Final = {
    f"{family}-latin-{weight}-normal.woff2": (name, weight, ROOT / "web/node_modules/@fontsource" / family / "files")
    for family, name, weight in (("inter", "Inter", 400), ("inter", "Inter", 600), ("roboto-mono", "Roboto Mono", 400))
}
READS: Final = ("/api/v1/playbooks/check", "/api/v1/bulk/cancel")
"""Change nothing, though something is sent: a text to check, a dry run."""

ENDED_S: Final = 2.0
"""A stream that ends has ended by then."""

STYLE: Final = "pictured.css"
STYLED: Final = "".join(
    f'@font-face {{ font-family: "{name}"; font-weight: {weight}; src: url("/assets/{file}") }}\n'
    for file, (name, weight, _) in FONTS.items()
) + (
    ':root { --sans: "Inter"; --mono: "Roboto Mono" }\n'
    "* { transition: none !important; caret-color: transparent !important; scrollbar-width: none }\n"
    "* { text-rendering: geometricPrecision }\n"  # letters are as wide everywhere: lines break at the same word
)


class Recording(NamedTuple):
    """Attributes:
    now_ms: The time of the recording: what the page takes for now.
    screens: Addresses, by the names of their screens.
    answers: By path and query of what was read or checked: status, media type and text.
    """

    now_ms: int
    screens: dict[str, str]
    answers: dict[str, tuple[int, str, str]]

    @classmethod
    def read(cls) -> Recording:
        return cls(**json.loads(RECORDED.read_text()))

    def write(self) -> None:
        RECORDED.write_text(json.dumps(self._asdict(), indent=0, sort_keys=True, ensure_ascii=False) + "\n")

    def answer_to(self, asked: str) -> tuple[int, str, str] | None:
        """What was answered to this, or to what is most like it: another width of a screen asks for other ranges."""
        exact = self.answers.get(asked)
        if exact is not None:
            return exact
        path, query = _parts(asked)
        alike = {key: len(query & _parts(key)[1]) for key in self.answers if _parts(key)[0] == path}
        return self.answers[max(alike, key=lambda key: alike[key])] if alike else None


def _parts(asked: str) -> tuple[str, set[tuple[str, str]]]:
    found = urlsplit(asked)
    return found.path, set(parse_qsl(found.query))


class Recorder:
    """Keeps what a page is answered."""

    def __init__(self, visit: Visit) -> None:
        self.answers: dict[str, tuple[int, str, str]] = {}
        self.again: set[str] = set()
        self._reading: set[asyncio.Task[None]] = set()
        visit.page.on("response", self._note)

    def _note(self, response: Any) -> None:
        path = urlsplit(response.url)
        if path.path.startswith("/api/") and (response.request.method == "GET" or path.path in READS):
            asked = f"{path.path}?{path.query}" if path.query else path.path
            if path.path.endswith("/stream"):
                self.again.add(asked)
                return
            task = asyncio.create_task(self._read(asked, response))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)

    async def _read(self, asked: str, response: Any) -> None:
        from playwright.async_api import Error

        media = response.headers.get("content-type", "").partition(";")[0]
        try:
            self.answers[asked] = (response.status, media, await response.text())
        except Error:  # the page has gone to another address meanwhile
            self.again.add(asked)

    async def finish(self, client: ClientSession) -> dict[str, tuple[int, str, str]]:
        """What was answered. What a browser does not show, as what streams sent, is asked for again; streams that go on
        are left out.
        """
        await asyncio.gather(*self._reading)
        for asked in sorted(self.again):
            with suppress(TimeoutError):
                async with asyncio.timeout(ENDED_S), client.get(URL(asked, encoded=True)) as answered:
                    self.answers[asked] = (answered.status, answered.content_type, await answered.text())
        return self.answers


@asynccontextmanager
async def replaying(recording: Recording) -> AsyncIterator[tuple[str, list[str]]]:
    """The address of the page over a recording, and what was asked of it and is not in it."""
    missing: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        is_stream = request.path.endswith("/stream")
        if is_stream and "Last-Event-ID" in request.headers:
            return web.Response(status=204)
        if is_stream and request.path_qs not in recording.answers:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await over.wait()  # nothing ever happens
            return response
        found = recording.answer_to(request.path_qs)
        if found is None:
            missing.append(request.path_qs)
            raise web.HTTPNotFound
        status, media, text = found
        return web.Response(status=status, content_type=media, text=text)

    async def index(request: web.Request) -> web.Response:
        linked = f'<link rel="stylesheet" href="/assets/{STYLE}"></head>'
        text = (PAGE / "index.html").read_text().replace("</head>", linked)
        return web.Response(text=text, content_type="text/html")

    async def asset(request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name == STYLE:
            return web.Response(text=STYLED, content_type="text/css")
        return web.FileResponse(FONTS[name][2] / name if name in FONTS else PAGE / "assets" / name)

    over = asyncio.Event()
    application = web.Application()
    application.router.add_get("/api/{rest:.*}", answer)
    for path in READS:
        application.router.add_post(path, answer)
    application.router.add_get(VIEWS, index)
    application.router.add_get(ASSET, asset)
    runner = web.AppRunner(application, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert runner.addresses
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", missing
    finally:
        over.set()
        await runner.cleanup()


class Pictured:
    """A page of which pictures are taken."""

    def __init__(self, visit: Visit) -> None:
        self.page = visit.page
        self._asked: set[Any] = set()
        self.page.on("request", lambda one: None if "/stream" in one.url else self._asked.add(one))
        for end in ("requestfinished", "requestfailed"):
            self.page.on(end, lambda one: self._asked.discard(one))

    async def open(self, url: str, style: str = "") -> None:
        await self.page.goto(url)
        if style:
            await self.page.add_style_tag(content=style)
        await self.page.locator("main :is(h1, h2, .empty)").first.wait_for(state="attached")
        await self.page.evaluate("document.fonts.ready")

    async def settled(self, width: int, height: int) -> bytes:
        """A picture, once nothing is under way, and some in a row are the same."""
        await self.page.set_viewport_size({"width": width, "height": height})
        taken: list[bytes] = []
        async with asyncio.timeout(60):
            while len(taken) < SAME or len(set(taken)) > 1 or self._asked:
                await self.page.wait_for_timeout(SETTLED_MS)
                taken = [*taken[1 - SAME :], bytes(await self.page.screenshot(animations="disabled"))]
        return taken[-1]


SAME: Final = 3
SETTLED_MS: Final = 100
"""Between pictures that must be the same."""
