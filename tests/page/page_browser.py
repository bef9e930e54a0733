"""A browser in front of a gateway's page: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

CHROMIUM: Final = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
PATIENCE_MS: Final = 60_000
AXE: Final = Path(__file__).resolve().parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"

needs_browser: Final = pytest.mark.skipif(
    CHROMIUM is None or find_spec("playwright") is None,
    reason="NO BROWSER: the page is not tested. Install one: apt-get install chromium",
)


WITH_PLACES = "const warn = console.warn; console.warn = (...said) => warn(...said, new Error('said').stack)"
"""A warning says where it was made."""

WATCH_SHIFTS: Final = """() => {
  window.shifted = []
  const names = (entry) => entry.sources.map((one) => one.node?.outerHTML ?? one.node?.parentElement?.outerHTML)
  new PerformanceObserver((list) => shifted.push(...list.getEntries().map(names))).observe({ type: 'layout-shift' })
}"""
"""Keeps what moves on the page, though nobody has moved it."""


MOST_SHIFT: Final = 0.02
SUM_SHIFTS: Final = """() => {
  window.shift = 0
  new PerformanceObserver((list) => {
    for (const one of list.getEntries()) if (!one.hadRecentInput) window.shift += one.value
  }).observe({ type: 'layout-shift', buffered: true })
}"""
"""Adds up how far things move on the page, though nobody has moved them."""


def placed(said: Any) -> str:
    """What the browser says, and of which address."""
    return f"{said.text} {said.location.get('url', '')}"


class Visit:
    """A tab of a profile of its own.

    Attributes:
        page: Playwright's.
        complaints: What the browser has said against the page: errors, refusals of the Content-Security-Policy.
    """

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on(
            "console", lambda said: self.complaints.append(placed(said)) if said.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def forgive(self, words: str) -> None:
        """Forgets complaints with these words: the test has caused them."""
        self.complaints = [text for text in self.complaints if words not in text]


def expect(found: Any) -> Any:
    """Playwright's assertions, which wait until what they say of ``found`` is true."""
    from playwright.async_api import expect as expecting

    expecting.set_options(timeout=PATIENCE_MS)
    return expecting(found)


class Browsers:
    """Browsers that several visits share: each is started when it is first needed, and all end with :meth:`shared`."""

    def __init__(self) -> None:
        self._ending: AsyncExitStack | None = None
        self._started: dict[tuple[str, ...], Any] = {}

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as self._ending:
            yield
        self._ending = None
        self._started.clear()

    @asynccontextmanager
    async def one(self, args: tuple[str, ...]) -> AsyncIterator[Any]:
        """A browser with these arguments; one of its own, if none is shared."""
        if self._ending is None:
            async with _launched(args) as browser:
                yield browser
            return
        browser = self._started.get(args)
        if browser is None or not browser.is_connected():
            browser = self._started[args] = await self._ending.enter_async_context(_launched(args))
        yield browser


BROWSERS: Final = Browsers()


@asynccontextmanager
async def _launched(args: Sequence[str]) -> AsyncIterator[Any]:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *args])
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def visiting(
    *, dark: bool = False, width: int = 1280, height: int = 800, args: Sequence[str] = ()
) -> AsyncIterator[Visit]:
    """A profile without cookies or a past, whose tab is empty. ``args`` are the browser's."""
    async with BROWSERS.one(tuple(args)) as browser:
        context = await browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            timezone_id="Europe/Berlin",
            locale="en-GB",
        )
        context.set_default_timeout(PATIENCE_MS)
        await context.add_init_script(WITH_PLACES)
        visit = Visit(await context.new_page())
        try:
            yield visit
        except Exception as error:
            error.add_note(f"{visit.page.url} showed:\n{await visit.page.locator('body').inner_text()}")
            error.add_note(f"and complained: {visit.complaints}")
            raise
        finally:
            await context.close()
