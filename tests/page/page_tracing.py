"""What a page costs the browser: the tasks of its main thread, bytes moved, nodes, memory. All of it is related to how
fast this machine is, as a known computation finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from page_browser import Visit

COMPUTATION: Final = """() => {
  let text = ''
  for (let n = 0; n < 60000; n++) text = (text + JSON.stringify({n, at: Math.sqrt(n)})).slice(-2000)
  return text.length
}"""
COMPUTED_MS: Final = 25.0
"""What it takes on the machine for which the limits are written."""

CATEGORIES: Final = ("toplevel", "disabled-by-default-devtools.timeline", "devtools.timeline", "__metadata")


RUN: Final = frozenset({"RunTask", "ThreadControllerImpl::RunTask"})


class PageCost:
    """What a page costs from :func:`costing` on.

    Attributes:
        moved: Of the answers by what was asked for, the bytes of each, as they came over the line.
    """

    def __init__(self, visit: Visit, session: Any) -> None:
        self._visit = visit
        self._session = session
        self.moved: dict[str, list[int]] = {}
        self._asked: dict[str, str] = {}
        session.on("Network.requestWillBeSent", self._note)
        session.on("Network.loadingFinished", self._count)

    def _note(self, sent: dict[str, Any]) -> None:
        self._asked[sent["requestId"]] = urlsplit(sent["request"]["url"]).path

    def _count(self, finished: dict[str, Any]) -> None:
        path = self._asked.get(finished["requestId"], "")
        self.moved.setdefault(path, []).append(int(finished["encodedDataLength"]))

    @property
    def bytes_moved(self) -> int:
        return sum(sum(sizes) for sizes in self.moved.values())

    async def heap_bytes(self) -> int:
        await self._session.send("HeapProfiler.collectGarbage")
        metrics = (await self._session.send("Performance.getMetrics"))["metrics"]
        return int(next(one["value"] for one in metrics if one["name"] == "JSHeapUsedSize"))

    async def elements(self) -> int:
        """How many are in the document."""
        return int(await self._visit.page.evaluate("document.querySelectorAll('*').length"))

    @asynccontextmanager
    async def tasks(self) -> AsyncIterator[list[float]]:
        """What each task of the main thread takes of the processor, in ms; filled at the end, the longest first.

        They are scaled to a machine on which the known computation takes :data:`COMPUTED_MS`, unless this is a faster
        one.
        """
        found: list[float] = []
        computed_ms = max(await self._traced(self._compute))
        begun, over = asyncio.Event(), asyncio.Event()

        async def until_over() -> None:
            begun.set()
            await over.wait()

        tasks = asyncio.create_task(self._traced(until_over))
        await begun.wait()
        try:
            yield found
        finally:
            over.set()
            scale = max(1.0, computed_ms / COMPUTED_MS)
            found += sorted((ms / scale for ms in await tasks), reverse=True)

    async def _compute(self) -> None:
        await self._visit.page.evaluate(COMPUTATION)

    async def _traced(self, act: Any) -> list[float]:
        """The processor time of each main-thread task while ``act`` goes on."""
        events: list[dict[str, Any]] = []
        session = await self._visit.page.context.browser.new_browser_cdp_session()
        complete = asyncio.get_running_loop().create_future()
        session.on("Tracing.dataCollected", lambda data: events.extend(data["value"]))
        session.on("Tracing.tracingComplete", lambda _: complete.set_result(None))
        config = {"includedCategories": list(CATEGORIES), "recordMode": "recordAsMuchAsPossible"}
        await session.send("Tracing.start", {"traceConfig": config, "transferMode": "ReportEvents"})
        await act()
        await session.send("Tracing.end")
        await complete
        await session.detach()
        threads = [one for one in events if one["name"] == "thread_name" and one["args"]["name"] == "CrRendererMain"]
        main = {(one["pid"], one["tid"]) for one in threads}
        ran = [one for one in events if one["name"] in RUN and (one["pid"], one["tid"]) in main]
        return [one["tdur"] / 1000 for one in ran if "tdur" in one]


@asynccontextmanager
async def costing(visit: Visit) -> AsyncIterator[PageCost]:
    """Counts what the page of a visit costs."""
    session = await visit.page.context.new_cdp_session(visit.page)
    for domain in ("Network", "Performance", "HeapProfiler"):
        await session.send(f"{domain}.enable")
    yield PageCost(visit, session)
    await session.detach()


async def first_paint_ms(visit: Visit) -> float:
    """From the HTML to the first content that is painted, on a machine as :meth:`PageCost.tasks` has it."""
    page = visit.page
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    painted = await page.evaluate(f"{paint} - performance.getEntriesByType('navigation')[0].responseEnd")
    timed = f"() => {{ const begun = performance.now(); ({COMPUTATION})(); return performance.now() - begun }}"
    computed = sorted([await page.evaluate(timed) for _ in range(5)])[2]
    return float(painted) / max(1.0, float(computed) / COMPUTED_MS)
