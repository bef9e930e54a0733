"""The list of executions: found by a line that completes itself, counted, grouped, marked, and acted on together."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from gateway_playbooks import FAILS, HELD, LOOP
from gateway_stage import GatewayStage
from page_browser import WATCH_SHIFTS, Visit, expect, needs_browser, visiting
from page_stage import Shown
from page_tracing import costing

from noetl_stream.ports.operations.access import NewToken
from noetl_stream.ports.operations.executions import ExecutionFilter, Start
from noetl_stream.ports.operations.selections import BulkOrder
from noetl_stream.settings.gateway_settings import GatewayLimits
from noetl_testkit.waiting import TIMEOUT_S

pytestmark = needs_browser

MANY = 1_000
LONGEST_TASK_MS = 50
MOST_ELEMENTS = 1_500
MOST_READS = MANY // 5


@pytest_asyncio.fixture(loop_scope="session")
async def stage() -> AsyncIterator[GatewayStage]:
    async with GatewayStage(GatewayLimits()).open() as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="session")
async def visit() -> AsyncIterator[Visit]:
    async with visiting() as visit:
        yield visit


async def started(stage: GatewayStage, text: str, count: int) -> list[str]:
    return [(await stage.operations.executions.start(Start(playbook=text), "test")).execution_id for _ in range(count)]


async def ended(stage: GatewayStage, text: str, count: int) -> list[str]:
    ids = await started(stage, text, count)
    for one in ids:
        await stage.operations.executions.wait(one, TIMEOUT_S)
    return ids


async def type_line(page: Any, *parts: str) -> None:
    """Types a line: of ``status:`` the first completion is taken, of a part in capitals it is a key."""
    await page.keyboard.press("/")
    for part in parts:
        if part[0].isupper():
            await page.keyboard.press(part)
        else:
            await page.keyboard.type(part)


@asynccontextmanager
async def held_up(page: Any, addresses: str) -> AsyncIterator[None]:
    """Answers of these addresses do not arrive meanwhile."""
    over = asyncio.Event()

    async def hold(route: Any) -> None:
        await over.wait()
        await route.continue_()

    await page.route(addresses, hold)
    yield
    over.set()
    await page.unroute_all(behavior="wait")


async def test_a_line_is_completed_and_what_it_finds_is_cancelled_together(stage: GatewayStage, visit: Visit) -> None:
    held, looped = await started(stage, HELD, 5), await ended(stage, LOOP, 2)
    page = visit.page
    await Shown(stage, {}).sign_in(visit)
    await page.locator(".executions .status.waiting").first.wait_for()
    options = page.get_by_role("listbox", name="Words")
    await type_line(page, "stat", "ArrowDown", "Enter", "wai", "ArrowDown", "Tab", "path:tests/h", "ArrowDown")
    await expect(options.get_by_role("option", selected=True)).to_have_text("path:tests/held")
    await page.keyboard.press("Enter")
    rows, table = page.locator(".executions .row.link"), page.get_by_role("table", name="Executions")
    async with held_up(page, "**/executions?*status=waiting*"):  # what was shown stays until the answer has come
        await page.evaluate(WATCH_SHIFTS)
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/?q=status%3Awaiting+path%3Atests%2Fheld")
        await expect(table).to_have_attribute("aria-busy", "true")
        await expect(rows).to_have_count(7)
        await expect(page.get_by_label(f"Mark {looped[0]}")).to_be_disabled()
    await expect(rows).to_have_count(5)
    await expect(table).to_have_attribute("aria-busy", "false")
    assert await page.evaluate("shifted") == []

    for key in ("j", "x", "j", "j", "Shift+X"):
        await page.keyboard.press(key)
    await page.get_by_text("3 marked").wait_for()
    await page.get_by_label(f"Mark {held[0]}").click(modifiers=["Shift"])
    await page.get_by_text("5 marked").wait_for()
    await page.keyboard.press("Control+k")
    await page.keyboard.type("pause")
    await page.keyboard.press("Enter")
    await page.get_by_role("dialog").get_by_text("Pause 5 executions.").wait_for()
    await page.keyboard.press("Escape")
    await page.keyboard.press("*")
    await page.get_by_text("All that match are marked").wait_for()
    await page.get_by_role("button", name="Delete…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_text("5 × it has not ended (waiting)").wait_for()
    await dialog.get_by_role("button", name="Close").click()
    await page.get_by_role("button", name="Cancel…").click()
    await dialog.get_by_text("Cancel 5 executions.").wait_for()
    await dialog.get_by_label("Reason").fill("ordered twice")
    await dialog.get_by_text("Same call from a terminal").click()
    line = "noetl-stream execution cancel --status waiting --path tests/held --reason 'ordered twice'"
    await expect(dialog.locator("code").first).to_have_text(line)
    await dialog.get_by_role("button", name="Cancel 5").click()
    await dialog.get_by_text("5 of 5 done.").wait_for()
    await dialog.get_by_role("button", name="Close").click()
    await page.get_by_text("No execution matches.").wait_for()
    cancelled = await stage.operations.executions.page(ExecutionFilter(status=("cancelled",)), 10, None)
    assert {one.execution_id for one in cancelled.items} == set(held)
    [event] = [
        one
        for one in await stage.operations.executions.events(held[0], 0, 100)
        if one.name == "execution.cancel_requested"
    ]
    assert event.data["reason"] == "ordered twice"

    await page.keyboard.press("Control+k")
    await page.keyboard.type("failed ex")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/?q=status%3Afailed")
    await page.keyboard.press("Control+k")
    await page.keyboard.type(looped[0])
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/executions/{looped[0]}")
    await page.keyboard.press("Control+k")
    await page.keyboard.type("show the keys")
    await page.keyboard.press("Enter")
    await page.get_by_role("dialog", name="Keys").wait_for()
    assert visit.complaints == []


async def test_an_execution_is_found_by_its_order_and_the_view_is_remembered(stage: GatewayStage, visit: Visit) -> None:
    executions, page = stage.operations.executions, visit.page
    for number in range(3):
        order = {"workload": {"order": {"id": f"A-{number}"}}, "key": f"order=A-{number}", "labels": {"ticket": number}}
        await executions.start(Start(playbook=LOOP, **order), "test")
    await Shown(stage, {}).sign_in(visit)
    rows = page.locator(".executions .row.link")
    await expect(rows).to_have_count(3)
    await page.get_by_text("Columns", exact=True).first.click()
    for column in ("Key", "order.id input", "Execution"):
        await page.get_by_role("checkbox", name=column, exact=True).click()
    await page.keyboard.press("Escape")
    heads = ["Status", "Playbook", "Key", "Labels", "order.id", "Started", "Duration"]
    await expect(page.get_by_role("columnheader")).to_have_text(heads)
    await type_line(page, "key:order=A-1", "Enter")
    await expect(rows).to_have_count(1)
    await expect(rows.get_by_role("cell").nth(2)).to_have_text("order=A-1")
    await expect(rows.get_by_role("cell").nth(4)).to_have_text("A-1")
    await page.get_by_text("Views", exact=True).click()
    await page.get_by_label("Save this view as").fill("my order")
    await page.get_by_role("button", name="Save", exact=True).click()
    await page.keyboard.press("Escape")
    await type_line(page, "input:order.id=A-2 label:ticket=2", "Enter")
    await expect(rows.get_by_role("cell").nth(2)).to_have_text("order=A-2")
    await page.reload()
    await expect(page.get_by_role("columnheader")).to_have_text(heads)
    await page.get_by_text("Views", exact=True).click()
    await page.get_by_role("button", name="my order", exact=True).click()
    await page.wait_for_url("**/?q=key%3Aorder%3DA-1")
    await expect(rows).to_have_count(1)
    await page.get_by_text("Views", exact=True).click()
    await page.get_by_role("button", name="Forget my order").click()
    await expect(page.get_by_role("list", name="Saved views")).to_have_count(0)
    assert visit.complaints == []


@pytest.mark.verify
async def test_refusals_are_shown_one_by_one(stage: GatewayStage, visit: Visit) -> None:
    failed = await ended(stage, FAILS, 2)
    page = visit.page
    await Shown(stage, {}).sign_in(visit, "/?q=path:tests/fails")
    await page.get_by_label(f"Mark {failed[0]}").click()
    await page.get_by_label(f"Mark {failed[1]}").click()
    await page.get_by_role("button", name="Rerun…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("From step").fill("nowhere")
    await dialog.get_by_label("Reason").fill("to see")
    await dialog.get_by_role("button", name="Rerun 2").click()
    await dialog.get_by_text("0 of 2 done, 2 refused.").wait_for()
    refused = dialog.get_by_role("table", name="Refused")
    for one in failed:
        await expect(refused.get_by_role("row").filter(has_text=one)).to_contain_text("nowhere")
    assert visit.complaints == []


async def test_words_that_are_wrong_are_underlined_with_what_the_server_says(stage: GatewayStage, visit: Visit) -> None:
    page = visit.page
    await Shown(stage, {}).sign_in(visit)
    faults = page.locator("#query-faults")
    await type_line(page, "path:a status:lost")
    await expect(faults).to_contain_text("lost is no status")
    await expect(page.locator(".underlay mark")).to_have_text("status:lost")
    await page.get_by_label("Filter executions").fill('path:a error:"- -"')
    await page.keyboard.press("Enter")
    await faults.get_by_text("'- -' contains no word to search errors for").wait_for()
    await expect(page.locator(".underlay mark")).to_have_text('error:"- -"')
    visit.forgive("422")
    assert visit.complaints == []


@pytest.mark.verify
async def test_a_range_is_dragged_and_groups_lead_to_their_executions(stage: GatewayStage, visit: Visit) -> None:
    await ended(stage, LOOP, 2)
    await ended(stage, FAILS, 1)
    page = visit.page
    await Shown(stage, {}).sign_in(visit, "/?q=since:1h")
    await page.get_by_role("group", name="Status").get_by_role("button", name="completed 2").wait_for()
    box = await page.locator(".histogram canvas").bounding_box()
    await page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 20, steps=4)
    said = page.locator(".histogram .said")
    await said.get_by_text("2 completed, 1 failed").wait_for()
    await page.mouse.up()
    await page.wait_for_url("**/?q=since%3A2*until%3A2*")
    await page.get_by_role("button", name="All times").click()
    await page.wait_for_url("**/")
    region = page.get_by_role("region", name="Starts over time")
    await page.get_by_text("As a table").wait_for()
    await region.focus()
    await page.keyboard.press("ArrowLeft")
    await said.get_by_text("2 completed, 1 failed").wait_for()
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/?q=since*")
    await page.get_by_role("button", name="All times").click()

    await page.get_by_label("Group by").select_option("label:team")
    await page.wait_for_url("**/?group=label%3Ateam")
    groups = page.get_by_role("region", name="Groups")
    await groups.get_by_text("without team").wait_for()
    await groups.get_by_role("button", name="2 completed of sales").wait_for()
    await page.get_by_label("Group by").select_option("path")
    await groups.get_by_role("button", name="1 failed of tests/fails").click()
    await page.wait_for_url("**/?q=path%3Atests%2Ffails+status%3Afailed*")
    assert visit.complaints == []


async def test_a_reader_without_rights_can_select_nothing(stage: GatewayStage, visit: Visit) -> None:
    await started(stage, HELD, 1)
    secret = (await stage.operations.access.create_token(NewToken("viewer", "viewer"), "test")).secret
    bearer = {"Authorization": f"Bearer {secret}"}
    async with stage.client.post("/api/v1/session/codes", headers=bearer) as answered:
        code = (await answered.json())["code"]
    page = visit.page
    await page.goto(f"{stage.url}/#code={code}")
    await page.locator(".executions .status.waiting").wait_for()
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await expect(page.get_by_role("checkbox")).to_have_count(0)
    await expect(page.get_by_role("region", name="Marked")).to_have_count(0)


@pytest.mark.verify
async def test_a_thousand_executions_that_change_at_once_cost_little(stage: GatewayStage, visit: Visit) -> None:
    ids = await started(stage, HELD, MANY)
    page = visit.page
    await Shown(stage, {}).sign_in(visit)
    chips = page.get_by_role("group", name="Status")
    await chips.get_by_role("button", name=f"waiting {MANY}").wait_for()
    async with costing(visit) as cost:
        async with cost.tasks() as tasks:
            left = ids
            while left:
                done = await stage.operations.selections.act(BulkOrder("cancel", left), "test")
                left = [one.execution_id for one in done.items if one.outcome == "left"]
            await chips.get_by_role("button", name=f"cancelled {MANY}").wait_for()
            await page.locator(".executions .status.cancelled").first.wait_for()
            await page.locator(".executions .windowed").evaluate("box => box.scrollTo(0, box.scrollHeight)")
        assert tasks[0] < LONGEST_TASK_MS
        assert await cost.elements() < MOST_ELEMENTS
        reads = {path: len(sizes) for path, sizes in cost.moved.items() if path.startswith("/api/v1/executions")}
        assert max(reads.values()) < MOST_READS, reads
    assert visit.complaints == []


async def test_an_execution_says_what_it_is_still_reading_in_place_of_counts_it_does_not_know(
    stage: GatewayStage, visit: Visit
) -> None:
    [execution_id] = await ended(stage, LOOP, 1)
    page = visit.page
    await Shown(stage, {}).sign_in(visit)

    async def as_of_an_earlier_event(route: Any) -> None:
        answer = await route.fetch()
        await route.fulfill(response=answer, json={**await answer.json(), "position": 1})

    await page.route("**/graph?*", as_of_an_earlier_event)
    async with held_up(page, "**/steps?*"):
        await page.goto(f"{stage.url}/executions/{execution_id}")
        await expect(page.get_by_role("heading", name="Step runs")).to_have_text("Step runs …")
        await page.get_by_role("table", name="Step runs").get_by_text("Reading…").wait_for()
        await page.get_by_role("status").get_by_text("The graph is as of event 1 of").wait_for()
    await expect(page.get_by_role("heading", name="Step runs")).to_have_text(re.compile(r"Step runs [1-9]"))
    await expect(page.get_by_role("status").get_by_text("The graph is as of event")).to_have_count(0)
