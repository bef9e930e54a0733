"""Pictures of screens: taken, made small, and compared with those that are committed.

Both are reduced to cells of some pixels before they are compared. So the edges of letters, which each version of
Chromium draws in its own way, count for little, and what has another place or colour counts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Final, NamedTuple

from page_browser import Visit, visiting
from page_recorded import Pictured, Recording, replaying
from PIL import Image, ImageChops

PICTURES: Final = Path(__file__).parent / "pictures"
SIZES: Final = {"wide": (1280, 800), "narrow": (360, 720)}
KEPT_PART: Final = 2
"""Committed pictures have a half of the width and height."""

COLOURS: Final = 128
CELL: Final = 4
"""Pixels of a committed picture that are compared as one."""

NOTED: Final = 20
"""By how much of 255 a cell must differ to count."""

TOLERATED: Final = 0.006
"""The part of all cells that may differ."""

SCREENS: Final = (
    *("executions", "waiting", "steps", "past", "loop", "called", "timeline", "events", "context", "result", "logs"),
    *(
        "compared",
        "playbooks",
        "playbook",
        "changes",
        "statistics",
        "editor",
        "schedules",
        "schedule-form",
        "triggers",
        "health",
        "pools",
        "limits",
        "workers",
        "dead-letters",
        "credentials",
        "tokens",
        "audit",
        "storage",
    ),
)


class Opening(NamedTuple):
    """How a dialog is opened: keys that are pressed on a screen, and the button."""

    screen: str
    button: str
    keys: str = ""


DIALOGS: Final = {
    "cancel-marked": Opening("executions", "Cancel…", "jxjx"),
    "set-key": Opening("context", "Set a key"),
    "rerun": Opening("loop", "Rerun from fetch"),
    "discard": Opening("dead-letters", "Discard"),
    "new-credential": Opening("credentials", "Create a credential"),
    "new-token": Opening("tokens", "Create a token"),
    "keys": Opening("storage", "Keys"),
}
"""By the names of their pictures."""


class Picture(NamedTuple):
    name: str
    image: Image.Image


async def pictures(
    recording: Recording,
    *,
    dark: bool,
    screens: Sequence[str] = SCREENS,
    style: str = "",
    args: Sequence[str] = (),
) -> AsyncIterator[Picture]:
    """Of each screen or dialog, wide and then narrow, by its name with theme and size.

    Args:
        style: What the page has besides its own style.
        args: Of the browser.
    """
    theme = "dark" if dark else "light"
    async with replaying(recording) as (url, missing), visiting(dark=dark, args=args) as visit:
        await visit.page.clock.set_fixed_time(recording.now_ms / 1000)
        await visit.page.add_init_script("sessionStorage.setItem('noetl_csrf_token', 'recorded')")  # as if signed in
        pictured = Pictured(visit)
        for screen in screens:
            dialog = DIALOGS.get(screen)
            await pictured.open(url + recording.screens[dialog.screen if dialog else screen], style)
            if dialog:
                await open_dialog(visit, dialog)
            for size, (width, height) in SIZES.items():
                taken = Image.open(BytesIO(await pictured.settled(width, height)))
                yield Picture(f"{screen}-{theme}-{size}", taken.convert("RGB"))
        assert missing == [], f"not recorded: {missing}; run `python tests/page/screenshots.py --record`"


async def open_dialog(visit: Visit, opening: Opening) -> None:
    """Opens it on the screen that is shown, which is wide."""
    page = visit.page
    width, height = SIZES["wide"]
    await page.set_viewport_size({"width": width, "height": height})
    button = page.get_by_role("button", name=opening.button, exact=True)
    if opening.keys:
        await page.get_by_role("row").nth(1).wait_for()
        for key in opening.keys:
            await page.keyboard.press(key)
    await button.click()
    await page.get_by_role("dialog").wait_for()


def kept(image: Image.Image) -> Image.Image:
    """A picture as it is committed."""
    return image.reduce(KEPT_PART).quantize(COLOURS, dither=Image.Dither.NONE)


def differing(image: Image.Image, reference: Image.Image) -> float:
    """The part of the cells in which a picture differs from a committed one; 1 if it has another size."""
    small = image.reduce(KEPT_PART)
    if small.size != reference.size:
        return 1.0
    apart = ImageChops.difference(small.reduce(CELL), reference.convert("RGB").reduce(CELL))
    cells = [max(pixel) >= NOTED for pixel in apart.getdata()]
    return sum(cells) / len(cells)
