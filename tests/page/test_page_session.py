"""The end of a browser's session: it is said before, nothing goes on after it, and signing in again leads back."""

from __future__ import annotations

from typing import Any

import pytest
from page_browser import Visit, expect, needs_browser, visiting
from page_stage import Shown

pytestmark = needs_browser

MINUTE_MS = 60_000


def end_sessions(shown: Shown, in_ms: int) -> None:
    """All sessions there are end then."""
    shown.stage.sessions.expire(shown.stage.clock.now_ms() + in_ms)


async def code(shown: Shown) -> str:
    async with shown.stage.client.post("/api/v1/session/codes") as answered:
        return str((await answered.json())["code"])


async def sign_in_again(shown: Shown, visit: Visit, within: Any) -> None:
    await within.get_by_label("Link or code").fill(await code(shown))
    await within.get_by_role("button", name="Sign in").click()


async def test_a_session_that_ends_soon_is_renewed_in_place(shown: Shown) -> None:
    async with visiting() as visit:
        page = visit.page
        await shown.sign_in(visit)
        end_sessions(shown, 5 * MINUTE_MS)
        await shown.open(visit, "/system/pools")
        await page.get_by_text("Your session ends in").wait_for()
        await page.get_by_role("button", name="Sign in again").click()
        await sign_in_again(shown, visit, page.get_by_role("dialog"))
        await page.get_by_text("Your session ends in").wait_for(state="detached")
        await page.get_by_role("table", name="Pools").wait_for()
        assert visit.complaints == []


async def test_nothing_stays_armed_when_the_session_has_ended_and_the_place_is_kept(shown: Shown) -> None:
    async with visiting() as visit:
        page, dialog = visit.page, visit.page.get_by_role("dialog")
        await shown.sign_in(visit)
        place = f"{shown.stage.url}/executions/{shown.ids['approval']}/ctx?key=notes"
        await page.goto(place)
        await page.get_by_role("button", name="Cancel").click()
        await dialog.get_by_label("Reason").fill("nobody answers")
        end_sessions(shown, -1)
        await dialog.get_by_role("button", name="Cancel").click()
        await page.get_by_role("heading", name="Sign in").wait_for()
        await page.get_by_text("the browser session has ended").wait_for()
        await expect(dialog).to_have_count(0)
        await sign_in_again(shown, visit, page)
        await (
            page.get_by_role("region", name="History of notes")
            .or_(page.get_by_text("asked Ada").first)
            .first.wait_for()
        )
        assert page.url == place
        await expect(dialog).to_have_count(0)
        assert (await shown.stage.operations.executions.get(shown.ids["approval"])).status == "waiting"
        visit.forgive("401")
        assert visit.complaints == []


@pytest.mark.verify
async def test_a_page_stops_asking_when_its_session_has_ended(shown: Shown) -> None:
    async with visiting() as visit:
        page, asked = visit.page, list[str]()
        await page.clock.install()
        await shown.sign_in(visit)
        await shown.open(visit, "/system/pools")
        await page.get_by_role("table", name="Pools").wait_for()
        end_sessions(shown, -1)
        await page.clock.run_for(4_000)
        await page.get_by_role("heading", name="Sign in").wait_for()
        page.on("request", lambda one: asked.append(one.url))
        await page.clock.run_for(10 * MINUTE_MS)
        assert asked == []
        other = await page.context.new_page()
        await other.goto(f"{shown.stage.url}/#code={await code(shown)}")
        await page.get_by_role("table", name="Pools").wait_for()
        visit.forgive("401")
        assert visit.complaints == []


async def test_a_link_over_the_page_that_asks_for_it_signs_in_where_it_is(shown: Shown) -> None:
    async with visiting() as visit:
        page = visit.page
        await page.goto(shown.stage.url)
        await page.get_by_role("heading", name="Sign in").wait_for()
        await page.goto(f"{shown.stage.url}/#code={await code(shown)}")  # as pasted: nothing is loaded anew
        await page.get_by_role("table", name="Executions").wait_for()
        assert "code" not in page.url
        visit.forgive("401")
        assert visit.complaints == []
