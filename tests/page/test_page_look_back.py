"""One execution, looked at by its positions, times, events, keys, results, logs and calls, by clicks and keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_browser import Visit, expect, needs_browser, visiting
from page_stage import Shown

pytestmark = needs_browser


async def positions(shown: Shown, visit: Visit) -> None:
    """The scrubber shows tokens as they were; its place is in the address, and in that of the other tabs."""
    page, nightly = visit.page, f"/executions/{shown.ids['nightly']}"
    await shown.open(visit, f"{nightly}?at=40")
    tokens = page.get_by_role("table", name="Tokens")
    await tokens.get_by_text("1 of all arrived").wait_for()
    await page.get_by_role("button", name="publish: has not run").wait_for()
    slider = page.get_by_role("slider", name="Position", exact=True)
    await slider.press("ArrowLeft")
    await page.wait_for_url("**?at=39")
    await slider.press("Home")
    await page.wait_for_url("**?at=1")
    await tokens.get_by_text("There is no token").wait_for()
    await page.get_by_role("link", name="Results").click()
    await page.get_by_text("No step has a result at this position.").wait_for()
    assert page.url.endswith("/result?at=1")
    await page.get_by_role("button", name="Now", exact=True).click()
    await page.get_by_label("Result of combine", exact=True).get_by_text("4960").wait_for()
    assert page.url.endswith("/result")


async def moves(shown: Shown, visit: Visit) -> None:
    """While the handle is moved the page stays in the past: what is shown as of now is not asked for."""
    page, asked = visit.page, []
    await shown.open(visit, f"/executions/{shown.ids['nightly']}")
    await page.get_by_role("table", name="Step runs").get_by_text("publish").wait_for()
    page.on("request", lambda request: asked.append(request.url))
    box = await page.get_by_role("slider", name="Position", exact=True).bounding_box()
    x, y = box["x"] + box["width"] - 8, box["y"] + box["height"] / 2
    await page.mouse.move(x, y)
    await page.mouse.down()
    await page.mouse.move(x - box["width"] / 2, y, steps=20)
    await page.mouse.up()
    await page.wait_for_url("**?at=*")
    await page.get_by_role("table", name="Tokens").wait_for()
    assert asked
    assert not [url for url in asked if "/steps" in url]


async def summary(shown: Shown, visit: Visit) -> None:
    """What the summary says is not said again below it, and what more there is, stands there."""
    page = visit.page
    await shown.open(visit, f"/executions/{shown.ids['loop']}")
    why = page.get_by_label("Why", exact=True)
    await why.get_by_text("tolerates").wait_for()
    await expect(why.get_by_text("more)")).to_have_count(0)
    await expect(why.get_by_text("The execution completed")).to_have_count(1)


async def times(shown: Shown, visit: Visit) -> None:
    """A part of the timeline is chosen with the pointer, and shared."""
    page = visit.page
    await shown.open(visit, f"/executions/{shown.ids['loop']}/timeline")
    chart = page.get_by_role("region", name="Timeline")
    await page.get_by_text("As a table").click()
    await page.get_by_role("table", name="Timeline").get_by_text("iterations").wait_for()
    box = await chart.bounding_box()
    await page.mouse.move(box["x"] + 300, box["y"] + 60)
    await page.mouse.down()
    await page.mouse.move(box["x"] + 500, box["y"] + 60, steps=4)
    await page.mouse.up()
    await page.wait_for_url("**?since=*until=*")
    await page.reload()
    await page.get_by_role("button", name="Whole").wait_for()
    await chart.press("0")
    await page.wait_for_url("**/timeline")


async def events(shown: Shown, visit: Visit) -> None:
    """Filters are in the address; what an event holds is read when it is opened."""
    page = visit.page
    await shown.open(visit, f"/executions/{shown.ids['loop']}/events")
    await page.get_by_placeholder("Step").fill("fetch")
    await page.get_by_placeholder("Step").press("Enter")
    await page.get_by_placeholder("Event").fill("loop.iteration.failed")
    await page.get_by_placeholder("Event").press("Enter")
    await page.wait_for_url("**?step=fetch&name=loop.iteration.failed")
    await page.get_by_text("4 found").wait_for()
    await page.get_by_role("button", name="loop.iteration.failed").first.click()
    await page.get_by_role("complementary").get_by_text("report_id").first.wait_for()
    await page.get_by_role("button", name="Show all").click()
    await page.get_by_role("button", name="execution.requested").wait_for()


async def keys(shown: Shown, visit: Visit) -> None:
    """A key of ctx has a history: who, why, before and after."""
    page = visit.page
    await shown.open(visit, f"/executions/{shown.ids['approval']}/ctx")
    await page.get_by_role("button", name="History of notes").click()
    await page.wait_for_url("**?key=notes")
    changes = page.get_by_label("Changes")
    for said in ("she knows the customer", "not set", "by token:local"):
        await changes.get_by_text(said).first.wait_for()


async def results(shown: Shown, visit: Visit) -> None:
    """Rows are a table whose cells are copied as expressions; what is large is loaded when asked."""
    page = visit.page
    await shown.open(visit, f"/executions/{shown.ids['loop']}/result")
    plan = page.get_by_label("Result of plan", exact=True)
    await plan.get_by_text("5 KB").wait_for()
    await plan.get_by_role("button", name="Load").click()
    await plan.get_by_text("long long").first.wait_for()
    await page.get_by_label("Result of report", exact=True).get_by_role("button", name="As a table").first.click()
    await page.get_by_role("button", name="São Paulo").click()
    expression = page.get_by_title("{{ report.rows[1].city }}")
    await expression.first.wait_for()


async def logs(shown: Shown, visit: Visit, folder: Path) -> None:
    """Logs of an iteration, wrapped, downloaded whole."""
    page = visit.page
    await shown.open(visit, f"/executions/{shown.ids['nightly']}/logs?iteration=2")
    await page.get_by_text("10 lines").wait_for()
    await page.get_by_role("button", name="Wrap").click()
    await page.get_by_role("table", name="Log").get_by_text("none late").first.wait_for()
    async with page.expect_download() as downloading:
        await page.get_by_role("button", name="Download").click()
    await (await downloading.value).save_as(folder / "log")
    lines = (folder / "log").read_text().splitlines()
    assert len(lines) == 10 and all("none late" in line for line in lines)


async def calls(shown: Shown, visit: Visit) -> None:
    """The playbook that a step has called opens inside the step, and both executions lead to each other."""
    page = visit.page
    await shown.open(visit, f"/executions/{shown.ids['caller']}")
    await page.get_by_role("button", name="Open the playbook that report calls").click()
    await page.get_by_role("img", name="combine: done, 1 run").wait_for()
    await page.get_by_role("button", name="Close the playbook that report calls").click()
    await page.get_by_role("img", name="combine: done, 1 run").wait_for(state="detached")
    await page.get_by_role("link", name="team/nightly").click()
    await page.get_by_role("button", name="combine: done, 1 run").wait_for()
    await page.get_by_role("link", name=shown.ids["caller"]).click()
    await page.get_by_role("button", name="report: done, 1 run").wait_for()


@pytest.mark.verify
async def test_an_execution_is_found_again_by_any_of_its_properties(shown: Shown, tmp_path: Path) -> None:
    async with visiting() as visit:
        await shown.sign_in(visit)
        for look in (positions, moves, summary, times, events, keys, results, calls):
            await look(shown, visit)
        await logs(shown, visit, tmp_path)
        assert visit.complaints == []
