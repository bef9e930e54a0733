"""Every screen and dialog: without a violation that axe knows, dark and light, wide and narrow; and nothing in it is
obeyed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote

import pytest
from page_browser import AXE, Visit, expect, needs_browser, visiting
from page_pictures import SIZES
from page_stage import EVIL, LONG_PATH, READ, Shown

pytestmark = needs_browser
needs_axe = pytest.mark.skipif(not AXE.exists(), reason="NO AXE: accessibility is not tested. Run `npm ci` in web/")

ALL: Final = "axe.run({resultTypes: ['violations']})"
CONTRAST: Final = "axe.run({resultTypes: ['violations'], runOnly: ['color-contrast']})"
SCRIPT: Final = "<script>window.evil=1"

DIALOGS: Final = {
    "context": ("Set a key", "Set notes"),
    "waiting": ("Pause", "Cancel", "Compare"),
    "loop": ("Rerun from fetch",),
    "playbook": ("Start",),
    "schedules": ("Pause", "Run now", "Backfill", "Delete"),
    "triggers": ("Pause", "Resend event 3", "Delete"),
    "dead-letters": ("Requeue", "Discard"),
    "credentials": ("Rotate keys", "Delete", "Create a credential"),
    "tokens": ("Create a token", "Revoke ci"),
    "storage": ("Keys",),
}
"""The buttons that open dialogs, by screen."""


async def violations(visit: Visit, name: str, sizes: Iterable[str] = SIZES) -> list[tuple[str, str, str, str]]:
    """The rules that axe finds broken in what is on screen, each with the first place. What is dark differs in its
    colours alone, which are the same at each width.
    """
    page, found = visit.page, []
    for size in sizes:
        width, height = SIZES[size]
        await page.set_viewport_size({"width": width, "height": height})
        theme, run = ("dark", CONTRAST) if size == "narrow" else ("light", ALL)
        await page.emulate_media(color_scheme=theme)
        ran: dict[str, Any] = await page.evaluate(run)
        found += [(name, f"{theme} {size}", one["id"], one["nodes"][0]["html"]) for one in ran["violations"]]
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, (name, size)
    return found


async def opened(shown: Shown, visit: Visit, path: str) -> None:
    """A screen, wide, with axe in it."""
    width, height = SIZES["wide"]
    await visit.page.set_viewport_size({"width": width, "height": height})
    await shown.open(visit, path)
    await visit.page.evaluate(AXE.read_text())


async def nothing_is_obeyed(visit: Visit, screen: str) -> None:
    """What strangers wrote has made nothing and done nothing on this screen."""
    assert await visit.page.evaluate("window.evil") is None, screen
    await expect(visit.page.locator("main img, main script")).to_have_count(0)


@needs_axe
@pytest.mark.parametrize("size", ["wide", pytest.param("narrow", marks=pytest.mark.verify)])
async def test_no_screen_violates_accessibility_or_obeys_what_strangers_wrote(size: str, shown: Shown) -> None:
    found = []
    async with visiting() as visit:
        await visit.page.goto(shown.stage.url)
        await visit.page.get_by_role("heading", name="Sign in").wait_for()
        await visit.page.evaluate(AXE.read_text())
        found += await violations(visit, "sign-in", [size])
        visit.forgive("401")
        await visit.page.goto("about:blank")
        await shown.sign_in(visit)
        for name, path in shown.screens.items():
            await opened(shown, visit, path)
            found += await violations(visit, name, [size])
            await nothing_is_obeyed(visit, name)
        assert visit.complaints == []
    assert found == []


@needs_axe
@pytest.mark.verify
async def test_no_dialog_violates_a_rule_of_accessibility(shown: Shown) -> None:
    found = []
    async with visiting() as visit:
        page, dialog = visit.page, visit.page.get_by_role("dialog")
        await shown.sign_in(visit)
        for screen, buttons in DIALOGS.items():
            for button in buttons:
                await opened(shown, visit, shown.screens[screen])
                await page.get_by_role("button", name=button, exact=True).click()
                await dialog.wait_for()
                for summary in await dialog.locator("summary").all():
                    await summary.click()
                found += await violations(visit, f"{button} on {screen}")
        assert visit.complaints == []
    assert found == []


@needs_axe
async def test_no_form_and_no_hint_violates_a_rule_of_accessibility(shown: Shown) -> None:
    found = []
    async with visiting() as visit:
        page = visit.page
        await shown.sign_in(visit)

        async def look(name: str) -> None:
            await page.evaluate(AXE.read_text())
            found.extend(await violations(visit, name))

        waiting, ended = f"/executions/{shown.ids['approval']}", f"/executions/{shown.ids['nightly']}"
        await shown.open(visit, waiting)
        await page.get_by_role("button", name="decide: waiting").focus()
        await page.locator(".tip").wait_for()
        await page.get_by_text("The graph as a table").click()
        await page.get_by_text("Same call from a terminal").click()
        await look("graph")
        await page.get_by_role("button", name="Set decision").click()
        await look("patch")
        await shown.open(visit, f"{waiting}?step=pay")
        await page.get_by_role("button", name="Inject a token").click()
        await page.get_by_role("button", name="Add an argument").click()
        await look("inject")
        await shown.open(visit, f"{ended}?step=combine")
        await page.get_by_role("button", name="Rerun from combine").click()
        await page.get_by_role("button", name="Change the arguments").click()
        await page.get_by_role("button", name="Add a key of ctx").click()
        await page.get_by_label("Name 1").fill("day")
        await page.get_by_label("Name 1").press("Tab")
        await look("rerun")
        assert visit.complaints == []
    assert found == []


async def test_text_by_strangers_is_shown_as_text_alone(shown: Shown) -> None:
    async with visiting() as visit:
        await shown.sign_in(visit)
        page, main = visit.page, visit.page.locator("main")
        hostile, fails = (f"/executions/{shown.ids[name]}" for name in ("hostile", "fails_hostile"))
        written = [
            *(hostile, f"{hostile}/events", f"{hostile}/ctx", f"{hostile}/ctx?key=said", f"{hostile}/result"),
            *(f"{hostile}/logs", fails, f"{fails}?step=each", f"{fails}/result"),
            *(f"{hostile}/diff/{shown.ids['nightly']}", "/", "/playbooks", "/playbooks/team%2Fhostile"),
            "/playbooks/team%2Fhostile/edit",
            *("/schedules?open=team%2Feach-month", f"/triggers?open={quote(LONG_PATH, '')}"),
            *(f"/triggers?open={quote(LONG_PATH, '')}&event={number}" for number in (1, 2, 3)),
            *(f"/system/dead-letters?open={shown.ids['letter']}", "/system/credentials?open=evil"),
            f"/system/audit?operation={READ}&target=evil",
        ]
        named = [
            *(f"/playbooks/team%2Fhostile{tab}" for tab in ("/statistics", "/changes")),
            f"{hostile}/timeline",
            "/?q=path:%22<img src=x onerror=window.evil=1>%22",
            f"{fails}/events",
            "/system/audit",  # what others did since may fill the screen
        ]
        for path in (*written, *named):
            await shown.open(visit, path)
            if path.endswith("/events") and path in written:
                await page.get_by_role("button", name="ctx.patched").click()
            if path in written:
                await main.get_by_text(SCRIPT).first.wait_for()
            await nothing_is_obeyed(visit, path)
        await shown.open(visit, hostile)
        await page.get_by_role("table", name="Step runs").get_by_role("button", name="start", exact=True).click()
        await page.get_by_role("complementary").get_by_text(EVIL, exact=True).first.wait_for()
        await shown.open(visit, f"{hostile}/ctx")
        await page.get_by_role("button", name="Set said").click()
        await page.get_by_role("dialog").get_by_text("Same call from a terminal").click()
        await page.get_by_role("dialog").locator("code").get_by_text(SCRIPT).first.wait_for()
        assert await page.evaluate("window.evil") is None
        assert visit.complaints == []


async def test_of_a_long_journal_only_what_is_on_screen_is_in_the_document(shown: Shown) -> None:
    async with visiting() as visit:
        await shown.sign_in(visit)
        await shown.open(visit, f"/executions/{shown.ids['long']}/events")
        last = (await shown.stage.operations.executions.get(shown.ids["long"])).position
        assert last > 800
        rows = visit.page.locator(".events .row.link")
        await rows.get_by_text("execution.requested").wait_for()
        assert await rows.count() < 60
        await visit.page.locator(".events .windowed").evaluate("box => box.scrollTo(0, box.scrollHeight)")
        await rows.get_by_text("playbook.processed").wait_for()
        await expect(visit.page.locator(f".events .row[aria-rowindex='{last}']")).to_have_count(1)
        assert await rows.count() < 60
