"""Every screen looks as in its committed picture, whatever version of Chromium draws it; what is broken does not."""

from __future__ import annotations

import pytest
from page_browser import needs_browser
from page_pictures import DIALOGS, PICTURES, SCREENS, TOLERATED, differing, pictures
from page_recorded import FONTS, Recording
from PIL import Image

pytestmark = [
    pytest.mark.verify,
    needs_browser,
    pytest.mark.skipif(
        not all((folder / file).exists() for file, (_, _, folder) in FONTS.items()),
        reason="NO FONTS: pictures are not compared. Run `npm ci` in web/",
    ),
]

SOME = ("waiting", "timeline", "dead-letters")
AGAIN = "the page looks different: look at build/page after `python tests/page/screenshots.py`, and commit the pictures"
OTHER_CHROMIUM = ("--font-render-hinting=none", "--disable-font-subpixel-positioning", "--disable-lcd-text")
"""Draws letters as other versions do: without hints, each at a whole pixel, in grey."""

BROKEN = {
    "a panel that has moved": "main { transform: translateX(12px) }",
    "a table with wider rows": ".row { height: 40px !important } td { padding: 12px !important }",
    "a heading that is gone": ".tabs, h1, h2, h3 { display: none !important }",
    "another colour": ":root { --raised: #d8e8d8 !important; --page: #fbf3e0 !important }",
    "columns that overlap": ".row { grid-template-columns: repeat(9, 40px) !important } table { width: 50% }",
    "no style at all": "* { all: revert !important }",
}


async def compared(*, dark: bool = False, screens: tuple[str, ...] = SCREENS, **options: object) -> dict[str, float]:
    """How much of each picture differs from the committed one."""
    taken = pictures(Recording.read(), dark=dark, screens=screens, **options)  # type: ignore[arg-type]
    return {name: differing(image, Image.open(PICTURES / f"{name}.png")) async for name, image in taken}


async def unlike(*screens: str, dark: bool) -> dict[str, float]:
    """The pictures that differ by more than is tolerated."""
    found = await compared(dark=dark, screens=screens)
    assert len(found) == 2 * len(screens)
    return {name: part for name, part in found.items() if part > TOLERATED}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_every_screen_looks_as_it_did(dark: bool) -> None:
    assert await unlike(*SCREENS, dark=dark) == {}, AGAIN


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_every_dialog_looks_as_it_did(dark: bool) -> None:
    assert await unlike(*DIALOGS, dark=dark) == {}, AGAIN


async def test_letters_may_be_drawn_otherwise() -> None:
    found = await compared(screens=SOME, args=OTHER_CHROMIUM)
    assert max(found.values()) <= TOLERATED, found


@pytest.mark.parametrize("what", BROKEN)
async def test_a_broken_layout_does_not_pass(what: str) -> None:
    found = await compared(screens=SOME, style=BROKEN[what])
    assert max(found.values()) > TOLERATED, found
