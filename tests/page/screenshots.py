"""Takes pictures of every screen and of dialogs, dark and light, wide and narrow: ``python tests/page/screenshots.py``.

They are taken of recorded answers. ``--record`` first records them anew, of a stage that really runs: needed when the
API or what is shown has changed. Whole pictures go to ``build/page``; small ones, with which a test compares, to
``tests/page/pictures``; those that the documents show to ``docs/images``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / area) for area in ("", "gateway", "page")]

from page_browser import visiting  # noqa: E402
from page_pictures import DIALOGS, PICTURES, SCREENS, SIZES, kept, open_dialog, pictures  # noqa: E402
from page_recorded import Recorder, Recording  # noqa: E402
from page_stage import something_to_show  # noqa: E402

TAKEN: Final = ROOT / "build" / "page"
IMAGES: Final = ROOT / "docs" / "images"
DARK: Final = ("steps", "timeline", "health")
SHOWN: Final = frozenset(
    {
        "waiting-dark-narrow",
        *(f"{name}-{'dark' if name in DARK else 'light'}-wide" for name in (*SCREENS, *DIALOGS) if name != "keys"),
    }
)
"""Pictures of the documents: of each screen one, and of dialogs."""

SHOWN_COLOURS: Final = 64
SETTLED_MS: Final = 1500


async def record() -> Recording:
    answers: dict[str, tuple[int, str, str]] = {}
    async with something_to_show(hostile=False) as shown:
        screens = {name: shown.screens[name] for name in SCREENS}
        for width, height in SIZES.values():
            async with visiting(width=width, height=height) as visit:
                await shown.sign_in(visit)
                recorder = Recorder(visit)
                for path in screens.values():
                    await shown.open(visit, path)
                    await visit.page.wait_for_timeout(SETTLED_MS)
                for dialog in DIALOGS.values():
                    await shown.open(visit, screens[dialog.screen])
                    await open_dialog(visit, dialog)
                    await visit.page.wait_for_timeout(SETTLED_MS)
                answers |= await recorder.finish(shown.stage.client)
        return Recording(shown.stage.clock.now_ms(), screens, answers)


async def take(recording: Recording) -> None:
    for folder in (TAKEN, PICTURES, IMAGES):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.png"):
            old.unlink()
    for dark in (False, True):
        async for name, image in pictures(recording, dark=dark, screens=(*SCREENS, *DIALOGS)):
            image.save(TAKEN / f"{name}.png")
            kept(image).save(PICTURES / f"{name}.png", optimize=True)
            if name in SHOWN:
                image.quantize(SHOWN_COLOURS).save(IMAGES / f"page-{name}.png", optimize=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Takes pictures of every screen of the page.")
    parser.add_argument("--record", action="store_true", help="record what a gateway answers first")
    if parser.parse_args().record:
        asyncio.run(record()).write()
    asyncio.run(take(Recording.read()))
