"""Takes a picture of every screen, dark and light, wide and narrow, into ``build/page``: ``python
tests/page/screenshots.py``. Those that the documents show are copied to ``docs/images``.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / area) for area in ("", "gateway", "page")]

from page_browser import visiting  # noqa: E402
from page_stage import something_to_show  # noqa: E402

TAKEN: Final = ROOT / "build" / "page"
IMAGES: Final = ROOT / "docs" / "images"
SHOWN: Final = (
    "page-executions-light-wide",
    "page-waiting-light-wide",
    "page-steps-dark-wide",
    "page-compared-light-wide",
    "page-changes-light-wide",
    "page-editor-light-wide",
    "page-statistics-light-wide",
    "page-waiting-dark-narrow",
    "page-loop-light-wide",
    "page-timeline-dark-wide",
)
SETTLED_MS: Final = 700


async def take(folder: Path) -> None:
    async with something_to_show() as shown:
        for dark in (False, True):
            for size, width, height in (("wide", 1280, 800), ("narrow", 360, 720)):
                async with visiting(dark=dark, width=width, height=height) as visit:
                    await shown.sign_in(visit)
                    for name, path in shown.screens.items():
                        await shown.open(visit, path)
                        await visit.page.wait_for_timeout(SETTLED_MS)
                        theme = "dark" if dark else "light"
                        await visit.page.screenshot(path=folder / f"page-{name}-{theme}-{size}.png")


if __name__ == "__main__":
    TAKEN.mkdir(parents=True, exist_ok=True)
    asyncio.run(take(TAKEN))
    IMAGES.mkdir(exist_ok=True)
    for shown in SHOWN:
        shutil.copyfile(TAKEN / f"{shown}.png", IMAGES / f"{shown}.png")
