"""An execution of 500 steps: all of it is reached, nothing moves, and only what is on screen is in the document."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio
from gateway_stage import GatewayStage
from page_browser import MOST_SHIFT, SUM_SHIFTS, Visit, expect, needs_browser, visiting
from page_stage import Shown
from page_tracing import costing

from noetl_stream.ports.operations.executions import Start
from noetl_stream.settings.gateway_settings import GatewayLimits

pytestmark = needs_browser

COUNT = 500
PARALLEL = 20
"""So many of the steps run beside each other, after the others."""

LONGEST_TASK_MS = 50
MOST_ELEMENTS = 1_200
"""Of the whole page: with all 500 steps it would have five times as many."""

HEAD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: large, path: tests/page/large}
workflow:
"""


TO_THE_LAST_LINE = "box => box.scrollTo(0.4 * box.scrollWidth - box.clientWidth / 2, box.scrollHeight)"
"""The graph is broken into lines: the last one, which ends with the steps side by side, is not full."""


def large() -> str:
    """500 steps: in a row, and at its end some side by side, of which one waits 2 s."""
    row = COUNT - PARALLEL
    steps = [
        f"  - step: s{n}\n    tool: {{kind: noop}}\n    next: {{arcs: [{{step: s{n + 1}}}]}}\n" for n in range(row - 1)
    ]
    arcs = ", ".join(f"{{step: beside_{n}}}" for n in range(PARALLEL))
    steps.append(
        f"  - step: s{row - 1}\n    tool: {{kind: noop}}\n    next: {{spec: {{mode: inclusive}}, arcs: [{arcs}]}}\n"
    )
    steps += [f"  - step: beside_{n}\n    tool: {{kind: noop}}\n" for n in range(PARALLEL - 1)]
    rest = "[{name: rest, kind: wait, for_s: 2}, {name: end, kind: noop}]"
    return HEAD + "".join(steps) + f"  - step: beside_{PARALLEL - 1}\n    tool: {rest}\n"


class Large(NamedTuple):
    shown: Shown
    visit: Visit
    address: str


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def opened() -> AsyncIterator[Large]:
    async with GatewayStage(GatewayLimits()).open() as stage, visiting() as visit:
        executions = stage.operations.executions
        started = await executions.start(Start(playbook=large()), "token:local")
        ended = await executions.wait(started.execution_id, 600)
        assert ended.status == "completed", ended.error
        shown = Shown(stage, {})
        await shown.sign_in(visit)
        await visit.page.add_init_script(f"({SUM_SHIFTS})()")
        yield Large(shown, visit, f"/executions/{started.execution_id}")
        assert visit.complaints == []


async def elements(visit: Visit) -> int:
    return int(await visit.page.evaluate("document.querySelectorAll('*').length"))


@pytest.mark.verify
async def test_the_graph_has_its_room_from_the_first_moment_and_draws_what_is_on_screen(opened: Large) -> None:
    page = opened.visit.page
    await page.goto(opened.shown.stage.url + opened.address)
    await page.get_by_role("button", name="s0: done").wait_for()
    await page.get_by_role("table", name="Step runs").get_by_role("button", name="s3", exact=True).wait_for()
    await page.get_by_text("The execution completed.").wait_for()
    await page.locator(".reading").wait_for(state="detached")
    assert await page.evaluate("shift") < MOST_SHIFT
    assert await elements(opened.visit) < MOST_ELEMENTS

    graph = page.get_by_role("region", name="Graph")
    await graph.evaluate(TO_THE_LAST_LINE)
    await graph.get_by_role("button", name=re.compile("beside_")).first.wait_for()
    assert await elements(opened.visit) < MOST_ELEMENTS
    await page.get_by_role("button", name="Fit").click()
    await graph.locator("canvas").wait_for()
    assert await graph.evaluate("box => box.scrollWidth <= box.clientWidth && box.scrollHeight <= box.clientHeight")
    assert await elements(opened.visit) < MOST_ELEMENTS
    await graph.locator("canvas").click()
    await graph.get_by_role("button", name=re.compile(r"s4\d\d: done")).first.wait_for()


@pytest.mark.verify
async def test_the_longest_step_runs_come_first_if_asked(opened: Large) -> None:
    page = opened.visit.page
    await page.goto(opened.shown.stage.url + opened.address)
    await page.get_by_role("button", name="Duration").click()
    await page.wait_for_url("**?order=duration")
    first = page.get_by_role("table", name="Step runs").locator(".row.link").first
    await expect(first).to_contain_text(f"beside_{PARALLEL - 1}")
    await page.reload()
    await expect(first).to_contain_text(f"beside_{PARALLEL - 1}")


async def test_all_rows_of_the_timeline_are_scrolled_to_and_zoomed_to(opened: Large) -> None:
    page = opened.visit.page
    await page.goto(f"{opened.shown.stage.url}{opened.address}/timeline")
    await page.get_by_text(f"{COUNT} rows").wait_for()
    chart = page.get_by_role("region", name="Timeline")
    async with page.expect_response(lambda answer: "first=" in answer.url) as asked:
        await chart.evaluate("box => box.scrollTo(0, box.scrollHeight)")
    found = await (await asked.value).json()
    assert found["rows"][-1]["step"] == f"beside_{PARALLEL - 1}" and found["more"] == COUNT - len(found["rows"])
    await page.get_by_text("As a table").click()
    table = page.get_by_role("table", name="Timeline")
    assert await table.get_attribute("aria-rowcount") == str(COUNT)
    assert await elements(opened.visit) < MOST_ELEMENTS

    await page.get_by_role("button", name="Details").click()
    await page.get_by_text(re.compile(r"1,\d\d\d rows")).wait_for()
    box = await chart.bounding_box()
    await page.mouse.move(box["x"] + box["width"] - 80, box["y"] + 100)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] - 4, box["y"] + 100, steps=4)
    await page.mouse.up()
    await page.wait_for_url("**since=*")
    await expect(page.get_by_role("heading", name="Timeline")).not_to_have_text(re.compile(r"1,\d\d\d rows"))


async def test_events_of_one_second_differ_by_their_milliseconds(opened: Large) -> None:
    page = opened.visit.page
    await page.goto(f"{opened.shown.stage.url}{opened.address}/events")
    times = page.get_by_role("table", name="Events").locator(".row.link time")
    await expect(times.first).to_have_text(re.compile(r"\d\d:\d\d:\d\d\.\d{3}$"))


@pytest.mark.verify
async def test_no_task_of_the_main_thread_takes_long_while_it_is_opened_and_drawn(opened: Large) -> None:
    page, url = opened.visit.page, opened.shown.stage.url
    async with costing(opened.visit) as cost:
        for place, drawn in (("", "s0: done"), ("/timeline", "Details")):
            await page.goto(url + opened.address)
            await page.locator(".reading").wait_for(state="detached")
            async with cost.tasks() as tasks:
                await page.goto(url + opened.address + place)
                await page.get_by_role("button", name=drawn).wait_for()
                await page.locator(".reading").wait_for(state="detached")
                if place:
                    await page.get_by_role("button", name="Details").click()
                    await page.get_by_text(re.compile(r"1,\d\d\d rows")).wait_for()
                    for key in ("+", "+", "ArrowRight", "-", "0"):
                        await page.get_by_role("region", name="Timeline").press(key)
                else:
                    await page.get_by_role("button", name="Fit").click()
                    await page.get_by_role("region", name="Graph").locator("canvas").wait_for()
            assert tasks[0] < LONGEST_TASK_MS, tasks[:5]
