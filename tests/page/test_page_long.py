"""Journals of many events and loops of many iterations: the page stays small and quick."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio
from gateway_stage import GatewayStage
from long_runs import long_laps, long_loop
from page_browser import Visit, needs_browser, visiting
from page_stage import Shown
from page_tracing import costing, first_paint_ms

from noetl_stream.settings.gateway_settings import GatewayLimits

pytestmark = [needs_browser, pytest.mark.verify]

of_many = pytest.mark.parametrize("count", [20_000, 100_000])
EVENTS_OF_A_LAP = 8
PATIENCE_MS = 240_000
"""The first look at such a journal reads it whole, in the process that this test runs in."""

LONGEST_TASK_MS = 50
FIRST_PAINT_MS = 1_000
MOST_BYTES = 1_000_000
MOST_ELEMENTS = 1_500
MOST_HEAP_BYTES = 200_000_000


class Long(NamedTuple):
    shown: Shown
    visit: Visit
    position: int


@pytest_asyncio.fixture(loop_scope="session")
async def visit() -> AsyncIterator[Visit]:
    async with visiting() as visit:
        visit.page.context.set_default_timeout(PATIENCE_MS)
        yield visit


@pytest_asyncio.fixture(loop_scope="session")
async def stage() -> AsyncIterator[GatewayStage]:
    async with GatewayStage(GatewayLimits()).open() as stage:
        yield stage


async def drag(visit: Visit, label: str) -> None:
    """Drags the handle of a slider over its whole length and back to a quarter, without a rest."""
    page = visit.page
    box = await page.get_by_role("slider", name=label, exact=True).bounding_box()
    y = box["y"] + box["height"] / 2
    places = [box["x"] + box["width"] * share / 40 for share in (*range(39, 0, -1), *range(1, 11))]
    await page.mouse.move(box["x"] + box["width"] - 8, y)
    await page.mouse.down()
    for x in places:
        await page.mouse.move(x, y)
    await page.mouse.up()


@of_many
async def test_a_long_journal_is_scrolled_and_scrubbed_smoothly(stage: GatewayStage, visit: Visit, count: int) -> None:
    run = await long_laps(stage, count // EVENTS_OF_A_LAP)
    assert run.position > count
    shown, page = Shown(stage, {}), visit.page
    address = f"/executions/{run.execution_id}"
    await shown.sign_in(visit)
    await page.goto("about:blank")
    async with costing(visit) as cost:
        await page.goto(f"{stage.url}{address}/events")
        await page.locator(".events .row.link").get_by_text("execution.requested").wait_for()
        assert await first_paint_ms(visit) < FIRST_PAINT_MS
        async with cost.tasks() as tasks:
            await page.locator(".events .windowed").hover()
            for _ in range(40):
                await page.mouse.wheel(0, 400)
            await page.locator(".events .windowed").evaluate("box => box.scrollTo(0, box.scrollHeight)")
            await page.locator(".events .row.link").get_by_text("playbook.processed").wait_for()
        assert tasks[0] < LONGEST_TASK_MS
        assert await cost.elements() < MOST_ELEMENTS

        await page.get_by_role("link", name="Steps", exact=True).click()
        await page.get_by_role("button", name="lap: done").wait_for()
        async with cost.tasks() as tasks:
            await drag(visit, "Position")
            await page.get_by_role("button", name="lap: ").wait_for()
            await page.get_by_role("table", name="Tokens").wait_for()
            await page.wait_for_url("**?at=*")
            for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "PageUp"):
                await page.get_by_role("slider", name="Position", exact=True).press(key)
        assert tasks[0] < LONGEST_TASK_MS
        assert await cost.elements() < MOST_ELEMENTS

        await page.get_by_role("link", name="Timeline", exact=True).click()
        chart = page.get_by_role("region", name="Timeline")
        await page.get_by_text("As a table").wait_for()
        async with cost.tasks() as tasks:
            await chart.focus()
            for key in ("+", "+", "+", "ArrowRight", "ArrowLeft", "ArrowDown", "-", "0"):
                await chart.press(key)
            await page.get_by_text("As a table").click()
            await page.get_by_role("table", name="Timeline").get_by_text(str(count // EVENTS_OF_A_LAP)).first.wait_for()
        assert tasks[0] < LONGEST_TASK_MS
        assert cost.bytes_moved < MOST_BYTES, cost.moved
        assert await cost.heap_bytes() < MOST_HEAP_BYTES
    assert visit.complaints == []


@of_many
async def test_a_long_loop_is_one_node_and_a_strip(stage: GatewayStage, visit: Visit, count: int) -> None:
    run = await long_loop(stage, count)
    shown, page = Shown(stage, {}), visit.page
    await shown.sign_in(visit)
    await page.goto("about:blank")
    async with costing(visit) as cost:
        await page.goto(f"{stage.url}/executions/{run.execution_id}?step=each")
        await page.get_by_role("button", name=f"each: done, 1 run, iterations {count:,}/{count:,}").wait_for()
        strip = page.get_by_role("slider", name="Iterations")
        rows = page.get_by_role("table", name="Iterations").locator(".row")
        await rows.nth(3).wait_for()
        async with cost.tasks() as tasks:
            await strip.focus()
            for key in ("ArrowRight", "ArrowRight", "End"):
                await strip.press(key)
            last = page.locator(".iterations .row.chosen").get_by_text(re.compile(rf"^{(count - 1) // 1000},?\d{{3}}$"))
            await last.wait_for()
            for key in ("+", "ArrowLeft", "0"):
                await strip.press(key)
        assert tasks[0] < LONGEST_TASK_MS
        async with cost.tasks() as tasks:
            await page.get_by_role("button", name=re.compile(r"^[\d,]+ failed$")).click()
            await page.get_by_text("the answer was 503").first.wait_for()
        assert tasks[0] < LONGEST_TASK_MS
        assert await cost.elements() < MOST_ELEMENTS
        assert cost.bytes_moved < MOST_BYTES, cost.moved
        assert await cost.heap_bytes() < MOST_HEAP_BYTES
    assert visit.complaints == []
