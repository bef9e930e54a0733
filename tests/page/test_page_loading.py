"""Before something is known, its place is drawn: no screen is blank while the page, or what it shows, is on its way."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from page_browser import MOST_SHIFT, SUM_SHIFTS, expect, needs_browser, visiting
from page_stage import Shown

from effort import first_in_gate

pytestmark = needs_browser


class Held:
    """Requests that are answered when :meth:`let_go` is called."""

    def __init__(self) -> None:
        self._free = asyncio.Event()

    async def __call__(self, route: Any) -> None:
        await self._free.wait()
        await route.continue_()

    def let_go(self) -> None:
        self._free.set()


@pytest.mark.verify
async def test_a_slow_line_shows_where_things_will_be_at_each_step(shown: Shown) -> None:
    async with visiting() as visit:
        page, skeleton = visit.page, visit.page.get_by_role("status", name="Loading")
        await shown.sign_in(visit)
        script, me, items = Held(), Held(), Held()
        for pattern, held in (("**/assets/index-*.js", script), ("**/api/v1/me", me), ("**/api/v1/playbooks?*", items)):
            await page.route(pattern, held)
        going = asyncio.create_task(page.goto(shown.stage.url + "/playbooks"))
        await expect(skeleton).to_be_visible()
        async with page.expect_request("**/api/v1/me"):
            script.let_go()
        await expect(skeleton).to_be_visible()
        me.let_go()
        await page.get_by_role("columnheader", name="Path").wait_for()
        await expect(skeleton).to_be_visible()
        items.let_go()
        await page.get_by_role("link", name="team/nightly").wait_for()
        await expect(skeleton).to_have_count(0)
        await going


PATIENT = "const set = setTimeout; setTimeout = (act, ms) => set(act, ms === 1000 ? 60000 : ms)"
"""However slow this machine is, the page waits for the answer to why."""


@pytest.mark.parametrize("size", first_in_gate([(1280, 800), (390, 844)]), ids=["wide", "phone"])
@pytest.mark.parametrize("name", ["waiting", "failed"])
async def test_the_page_does_not_move_when_a_reason_appears(name: str, size: tuple[int, int], shown: Shown) -> None:
    width, height = size
    async with visiting(width=width, height=height) as visit:
        page = visit.page
        await shown.sign_in(visit)
        await page.add_init_script(f"({SUM_SHIFTS})(); {PATIENT}")
        address = shown.screens["waiting"] if name == "waiting" else f"/executions/{shown.ids['fails']}"
        await page.goto(shown.stage.url + address)
        await page.get_by_role("region", name="Why").wait_for()
        await page.get_by_role("table", name="Step runs").locator(".row.link").first.wait_for()
        await page.get_by_role("button", name=re.compile("^(start|decide): ")).first.wait_for()
        assert await page.evaluate("shift") < MOST_SHIFT


SCREENS = (
    *("executions", "steps", "compared", "playbooks", "playbook", "changes", "statistics", "editor", "schedules"),
    *("triggers", "health", "pools", "limits", "workers", "partitions", "dead-letters", "credentials", "tokens"),
    *("audit", "storage"),
)


@pytest.mark.parametrize("size", first_in_gate([(390, 844), (1280, 800)]), ids=["phone", "wide"])
async def test_no_screen_is_blank_while_it_is_read(size: tuple[int, int], shown: Shown) -> None:
    width, height = size
    async with visiting(width=width, height=height) as visit:
        page = visit.page
        await shown.sign_in(visit)
        held = Held()
        await page.route(lambda url: "/api/v1/" in url and not url.endswith(("/me", "/session")), held)
        for screen in SCREENS:
            await page.goto(shown.stage.url + shown.screens[screen], wait_until="commit")
            await expect(page.locator("main").get_by_role("status", name="Loading").first).to_be_visible()
        held.let_go()
