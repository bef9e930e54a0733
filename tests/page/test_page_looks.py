"""Every screen: without a violation that axe knows, dark and light, wide and narrow; and nothing in it is obeyed."""

from __future__ import annotations

from typing import Any

import pytest
from page_browser import AXE, needs_browser, visiting
from page_stage import EVIL, something_to_show

pytestmark = needs_browser

CONTRAST = "axe.run({runOnly: ['color-contrast']})"
NARROW = 360


def violations(ran: dict[str, Any]) -> list[tuple[str, str]]:
    """The rules that axe found broken, each with the first place."""
    return [(one["id"], one["nodes"][0]["html"]) for one in ran["violations"]]


@pytest.mark.skipif(not AXE.exists(), reason="NO AXE: accessibility is not tested. Run `npm ci` in web/")
async def test_no_screen_violates_a_rule_of_accessibility() -> None:
    found = []
    async with something_to_show() as shown, visiting() as visit:
        page = visit.page
        await shown.sign_in(visit)
        for name, path in shown.screens.items():
            await page.emulate_media(color_scheme="light")
            await page.set_viewport_size({"width": 1280, "height": 800})
            await shown.open(visit, path)
            await page.evaluate(AXE.read_text())
            found += [(name, "light", *one) for one in violations(await page.evaluate("axe.run()"))]
            await page.emulate_media(color_scheme="dark")
            found += [(name, "dark", *one) for one in violations(await page.evaluate(CONTRAST))]
            await page.set_viewport_size({"width": NARROW, "height": 720})
            assert await page.evaluate("document.documentElement.scrollWidth") <= NARROW, name
        assert visit.complaints == []
    assert found == []


@pytest.mark.skipif(not AXE.exists(), reason="NO AXE: accessibility is not tested. Run `npm ci` in web/")
async def test_no_form_and_no_hint_violates_a_rule_of_accessibility() -> None:
    found = []
    async with something_to_show() as shown, visiting(width=NARROW) as visit:
        page = visit.page
        await shown.sign_in(visit)

        async def look(name: str) -> None:
            await page.evaluate(AXE.read_text())
            for dark in ("light", "dark"):
                await page.emulate_media(color_scheme=dark)
                found.extend((name, dark, *one) for one in violations(await page.evaluate("axe.run()")))
            assert await page.evaluate("document.documentElement.scrollWidth") <= NARROW, name

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


async def test_what_strangers_wrote_is_text_and_nothing_else() -> None:
    async with something_to_show() as shown, visiting() as visit:
        await shown.sign_in(visit)
        hostile, page = f"/executions/{shown.ids['hostile']}", visit.page
        tabs = [hostile, *(f"{hostile}/{tab}" for tab in ("events", "ctx", "result", "logs"))]
        for path in [
            "/",
            "/?q=path:%22<img src=x onerror=window.evil=1>%22",
            *tabs,
            "/playbooks",
            f"{hostile}/diff/{shown.ids['nightly']}",
            *(f"/playbooks/team%2Fhostile{tab}" for tab in ("/statistics", "/changes", "/edit", "")),
        ]:
            await shown.open(visit, path)
        await page.get_by_text("<script>window.evil=1</script>").first.wait_for()
        await shown.open(visit, hostile)
        await page.locator(".steps button.plain").first.click()
        await page.get_by_role("complementary").get_by_text(EVIL, exact=True).first.wait_for()
        assert await page.evaluate("window.evil") is None
        assert await page.locator("main img, main script").count() == 0
        assert visit.complaints == []


async def test_of_a_long_journal_only_what_is_on_screen_is_in_the_document() -> None:
    async with something_to_show() as shown, visiting() as visit:
        await shown.sign_in(visit)
        await shown.open(visit, f"/executions/{shown.ids['long']}/events")
        last = (await shown.stage.operations.executions.get(shown.ids["long"])).position
        assert last > 800
        rows = visit.page.locator(".events .row.link")
        await rows.get_by_text("execution.requested").wait_for()
        assert await rows.count() < 60
        await visit.page.locator(".events .windowed").evaluate("box => box.scrollTo(0, box.scrollHeight)")
        await rows.get_by_text("playbook.processed").wait_for()
        assert await visit.page.locator(f".events .row[aria-rowindex='{last}']").count() == 1
        assert await rows.count() < 60
