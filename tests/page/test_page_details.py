"""What is small and yet seen: errors on a phone, colours of logs, numbers under their heads, red for what ends it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from gateway_playbooks import LOOP
from page_browser import Visit, expect, needs_browser, visiting
from page_stage import EVIL, Shown

from noetl_stream.ports.operations.executions import Start

pytestmark = needs_browser


async def box(found: Any) -> dict[str, float]:
    """Where something is on screen."""
    made = await found.bounding_box()
    assert made is not None
    return dict(made)


async def test_on_a_phone_the_list_says_why_something_failed(shown: Shown) -> None:
    async with visiting(width=390, height=844) as visit:
        page = visit.page
        await shown.sign_in(visit, "/?q=path:tests/fails")
        row = page.locator(".executions .row.link").filter(has_text="tests/fails")
        error = row.locator(".bad")
        await expect(error).to_contain_text("the inputs of task start_task")
        assert (await box(error))["width"] > 280
        assert (await box(error))["y"] >= (await box(row.get_by_role("link")))["y"] + 16
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390
        assert visit.complaints == []


async def test_logs_are_coloured_and_nothing_in_them_is_obeyed(shown: Shown) -> None:
    async with visiting() as visit:
        page = visit.page
        await shown.sign_in(visit, f"/executions/{shown.ids['nightly']}/logs")
        line = page.get_by_role("table", name="Log").get_by_role("row").filter(has_text="38: 1240 orders")
        await expect(line.locator(".fg2")).to_have_text("1240 orders")
        await expect(line.locator(".bold")).to_have_text("north")
        await expect(line.locator(".text")).to_have_text("38: 1240 orders of north, none late")
        await page.goto(f"{shown.stage.url}/executions/{shown.ids['hostile']}/logs")
        await page.get_by_role("table", name="Log").get_by_text(EVIL).first.wait_for()
        assert await page.evaluate("window.evil") is None
        assert visit.complaints == []


async def test_the_numbers_of_groups_stand_under_their_heads(shown: Shown) -> None:
    async with visiting() as visit:
        await shown.sign_in(visit, "/?group=path")
        table = visit.page.get_by_role("region", name="Groups").get_by_role("table")
        await table.get_by_role("row").nth(1).wait_for()
        heads = await table.locator("th").all()
        for head, cell in list(zip(heads, await table.locator("tbody tr").first.locator("td").all(), strict=True))[1:]:
            inner = cell.get_by_role("button")
            if await inner.count():
                right = [one["x"] + one["width"] for one in (await box(head), await box(inner))]
                assert abs(right[0] - 16 - right[1]) < 2, right
        assert visit.complaints == []


async def test_the_time_of_a_line_is_whole_on_a_large_screen_and_a_clock_on_a_phone(shown: Shown) -> None:
    for width, expected in ((1280, r"^\w{3} \d+ \d\d:\d\d:\d\d\.\d{3}$"), (390, r"^\d\d:\d\d:\d\d$")):
        async with visiting(width=width) as visit:
            await shown.sign_in(visit, shown.screens["logs"])
            cell = visit.page.get_by_role("table", name="Log").get_by_role("cell").first
            await cell.locator("time").wait_for()
            assert re.match(expected, await cell.inner_text())
            assert await cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth")
            assert visit.complaints == []


async def test_unfinished_work_grows_by_the_clock(shown: Shown) -> None:
    async with visiting() as visit:
        page = visit.page
        await shown.sign_in(visit)
        await page.clock.install()
        await shown.open(visit, shown.screens["waiting"])
        found = page.locator("header.execution .facts div").filter(has_text="Duration").locator("dd")
        await expect(found).to_have_text(re.compile(r"\d s$"))
        await page.clock.fast_forward("02:00:00")
        await expect(found).to_have_text(re.compile(r"^2 h \d min$"))
        assert visit.complaints == []


@pytest.mark.verify
async def test_the_key_and_the_labels_of_an_execution_lead_to_all_that_have_them(shown: Shown) -> None:
    order = {"key": "order A-9", "labels": {"ticket": "T 17"}}
    await shown.stage.operations.executions.start(Start(playbook=LOOP, **order), "token:local")
    async with visiting() as visit:
        page = visit.page
        await shown.sign_in(visit, "/?q=path:tests/loop")
        for name, word in (("order A-9", 'key:"order A-9"'), ("ticket=T 17", 'label:"ticket=T 17"')):
            await page.locator(".executions .row.link").first.get_by_role("link").click()
            await page.get_by_role("link", name=name).click()
            await expect(page.get_by_label("Filter executions")).to_have_value(word)
            await expect(page.locator(".executions .row.link")).to_have_count(1)
        assert visit.complaints == []


async def test_a_warning_leads_to_what_it_is_about(shown: Shown) -> None:
    async with visiting() as visit:
        await shown.sign_in(visit, "/system")
        await visit.page.locator(".alarm-list").get_by_role("link", name="Triggers").click()
        await visit.page.get_by_role("region", name="Triggers").get_by_text("team/pushes", exact=True).wait_for()
        assert visit.complaints == []


def overlap(one: dict[str, float], other: dict[str, float]) -> bool:
    """Whether two boxes have more than their edges in common, which those of letters are higher than."""
    edge = 2
    return all(
        one[at] + edge < other[at] + other[size] and other[at] + edge < one[at] + one[size]
        for at, size in (("x", "width"), ("y", "height"))
    )


@pytest.mark.verify
async def test_marks_of_a_graph_cover_no_name(shown: Shown) -> None:
    async with visiting() as visit:
        page = visit.page
        await shown.sign_in(visit)
        for screen in ("waiting", "steps", "loop"):
            await shown.open(visit, shown.screens[screen])
            marks, names = page.locator(".graph .marks > *"), page.locator(".graph g:not(.marks, .badge) > text")
            await marks.first.wait_for()
            found = [await box(one) for one in await names.all()]
            assert len(found) > 2
            for mark in [await box(one) for one in await marks.all()]:
                assert not [name for name in found if overlap(mark, name)]
        assert visit.complaints == []


@pytest.mark.verify
async def test_a_phone_has_all_places_in_one_line_and_every_act_within_reach(shown: Shown) -> None:
    async with visiting(width=390, height=844) as visit:
        page = visit.page
        await shown.sign_in(visit, shown.screens["limits"])
        for screen in ("executions", "playbooks", "triggers", "limits"):
            await shown.open(visit, shown.screens[screen])
            places = await page.get_by_role("navigation", name="Main").get_by_role("link").all()
            assert len({(await box(one))["y"] for one in places if await one.is_visible()}) == 1
        act = await box(page.get_by_role("button", name="Cancel").first)
        assert act["x"] + act["width"] <= 390
        assert visit.complaints == []


async def colours(visit: Visit, found: Any) -> tuple[str, str]:
    """The background of something, and the red of the theme."""
    bad = "(() => { const one = document.createElement('i'); one.style.color = 'var(--bad)'; document.body.append(one)"
    red = await visit.page.evaluate(f"{bad}; return getComputedStyle(one).color }})()")
    return await found.evaluate("one => getComputedStyle(one).backgroundColor"), red


@pytest.mark.verify
async def test_actions_that_end_work_are_red_and_state_whether_they_need_a_reason(shown: Shown) -> None:
    async with visiting() as visit:
        page, dialog = visit.page, visit.page.get_by_role("dialog")
        await shown.sign_in(visit, f"/executions/{shown.ids['approval']}")
        await page.get_by_role("button", name="Cancel").click()
        await dialog.get_by_text("Reason (optional)").wait_for()
        background, red = await colours(visit, dialog.get_by_role("button", name="Cancel"))
        assert background == red
        await shown.open(visit, "/system/tokens")
        await page.get_by_role("button", name="Revoke ci").click()
        await dialog.get_by_text("Reason (required)").wait_for()
        await shown.open(visit, f"/executions/{shown.ids['approval']}")
        await page.get_by_role("button", name="Pause").click()
        background, red = await colours(visit, dialog.get_by_role("button", name="Pause"))
        assert background != red
        assert visit.complaints == []


@pytest.mark.verify
async def test_playbooks_say_what_ran_last_and_when_they_start_next_and_starters_have_their_own_places(
    shown: Shown,
) -> None:
    async with visiting() as visit:
        page = visit.page
        await shown.sign_in(visit, "/playbooks?q=team")
        row = page.locator(".playbooks .row.link").filter(has_text="team/nightly")
        await row.get_by_text("completed").wait_for()
        last = (await shown.stage.operations.playbooks.page("team/nightly", {}, 1, None, last=True)).items[0].last
        assert last is not None
        links = row.get_by_role("cell").nth(3).get_by_role("link"), row.get_by_role("cell").nth(4).get_by_role("link")
        await expect(links[0]).to_have_attribute("href", f"/executions/{last.execution_id}")
        await expect(page.get_by_role("link", name="team/each-night")).to_have_count(0)
        await expect(page.get_by_role("link", name="team/pushes")).to_have_count(0)
        await links[1].click()
        await page.get_by_role("region", name="Schedule team/each-night").wait_for()
        assert visit.complaints == []


@pytest.mark.verify
async def test_on_a_large_screen_what_is_open_stands_beside_its_list(shown: Shown) -> None:
    async with visiting(width=3840, height=2160) as visit:
        page = visit.page
        await shown.sign_in(visit, shown.screens["schedules"])
        opened = await box(page.get_by_role("region", name="Schedule team/each-night"))
        rows = await box(page.get_by_role("region", name="Schedules", exact=True))
        assert opened["x"] >= rows["x"] + rows["width"] and opened["y"] == rows["y"]
        assert await page.evaluate("getComputedStyle(document.body).fontSize") == "16px"
        assert visit.complaints == []


@pytest.mark.verify
async def test_the_audit_leads_to_what_was_started(shown: Shown) -> None:
    async with visiting() as visit:
        page = visit.page
        body = {"path": "team/nightly"}
        async with shown.stage.client.post("/api/v1/executions", json=body) as answered:
            started = (await answered.json())["execution_id"]
        await shown.sign_in(visit, "/system/audit?operation=startExecution")
        await page.get_by_role("link", name=started).click()
        await page.wait_for_url(f"**/executions/{started}")
        await page.get_by_role("heading", name="team/nightly").wait_for()
        assert visit.complaints == []


@pytest.mark.verify
async def test_an_event_that_is_open_leaves_the_others_in_lines(shown: Shown) -> None:
    for width in (1280, 390):
        async with visiting(width=width) as visit:
            page = visit.page
            await shown.sign_in(visit, shown.screens["triggers"])
            events = page.get_by_role("list", name="Events").get_by_role("listitem")
            await page.get_by_role("button", name="Copy event").wait_for()
            for event in await events.all():
                status, act = await box(event.locator(".status")), await box(event.get_by_role("button", name="Resend"))
                assert status["x"] + status["width"] <= act["x"]
                assert (await box(event.locator(".what")))["width"] > 200
            assert visit.complaints == []


@pytest.mark.verify
async def test_on_a_phone_a_long_name_leaves_room_for_its_time_and_all_tabs_are_on_screen(shown: Shown) -> None:
    path = f"tests/{'long-' * 20}name"
    named = LOOP.replace('tests/loop, version: "1.0"', f"{path}, version: 2026.11.30-rc.1+build.4711")
    started = await shown.stage.operations.executions.start(Start(playbook=named), "token:local")
    async with visiting(width=390, height=844) as visit:
        page = visit.page
        await shown.sign_in(visit, f"/?q=path:{path}")
        row = page.locator(".executions .row.link").first
        name, time = await box(row.get_by_role("link")), await box(row.locator("time"))
        assert name["x"] + name["width"] <= time["x"]
        await shown.open(visit, f"/executions/{started.execution_id}/logs")
        last = await box(page.get_by_role("navigation", name="Execution").get_by_role("link", name="Logs"))
        assert last["x"] + last["width"] <= 390
        assert visit.complaints == []


@pytest.mark.verify
async def test_texts_of_the_engine_are_shown_without_marks_and_with_times_of_the_page(shown: Shown) -> None:
    async with visiting() as visit:
        page = visit.page
        await shown.sign_in(visit, f"/executions/{shown.ids['approval']}")
        why = page.get_by_label("Why", exact=True)
        await why.locator(".summary").wait_for()
        await expect(why).not_to_contain_text("+00:00")
        await shown.open(visit, "/system")
        alarms = page.locator(".alarm-list")
        await alarms.get_by_role("listitem").first.wait_for()
        await expect(alarms).not_to_contain_text("`")
        assert visit.complaints == []


@pytest.mark.verify
async def test_a_failure_is_shown_once_and_each_place_is_linked_once(shown: Shown) -> None:
    async with visiting() as visit:
        page = visit.page
        await shown.sign_in(visit, f"/executions/{shown.ids['fails']}")
        message = (await shown.stage.operations.executions.get(shown.ids["fails"])).error
        assert message is not None
        await page.get_by_label("Why", exact=True).get_by_text("…").first.wait_for()
        await expect(page.locator("main").get_by_text(message.message)).to_have_count(2)  # the cause, and its step run
        await page.keyboard.press("Control+k")
        await expect(page.get_by_role("option", name="Executions", exact=False)).to_have_count(2)  # and failed ones
        assert visit.complaints == []
