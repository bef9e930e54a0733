"""The form of a schedule or trigger beside its text: each follows the other, and what is wrong stands at its field."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import pytest
from page_browser import AXE, Visit, expect, needs_browser, visiting
from page_stage import Shown

from noetl_stream.playbook.model.sections import Schema
from noetl_stream.playbook.schedule.schedule_document import schedule_schema
from noetl_stream.playbook.trigger.trigger_document import trigger_schema

pytestmark = needs_browser


async def text_of(visit: Visit, kind: str) -> str:
    """The text in the editor."""
    return str(await visit.page.get_by_role("textbox", name=kind, exact=True).inner_text())


async def test_a_schedule_is_filled_in_mended_where_it_is_wrong_and_published(shown: Shown) -> None:
    async with visiting() as visit:
        page, form = visit.page, visit.page.get_by_role("form", name="Form")
        await shown.sign_in(visit, "/playbooks?new=Schedule")
        editor = page.get_by_role("textbox", name="Schedule", exact=True)
        await form.get_by_label("Path").fill("team/each-hour")
        await form.get_by_label("Playbook").fill("team/nightly")
        await form.get_by_label("If one still runs").select_option("queue_one")
        await form.get_by_label("Workload").fill('{"regions": ["north"]}')
        await form.get_by_label("Cron").fill("61 * * * *\n30 * * * *")
        await form.get_by_text("not a cron expression: bad minute").wait_for()
        await expect(form.get_by_label("Cron")).to_have_attribute("aria-invalid", "true")
        await expect(page.get_by_role("button", name="Publish")).to_be_disabled()
        await form.get_by_label("When it is due").select_option("every")
        await form.get_by_label("Every").fill("2 hours")
        await form.get_by_text("is not a duration").wait_for()
        await form.get_by_label("Every").fill("2h")
        await page.get_by_text("No problems").wait_for()
        said = await text_of(visit, "Schedule")
        for line in (
            "{name: example, path: team/each-hour}",
            "playbook: team/nightly",
            "workload: {regions: [north]}",
            "overlap: queue_one",
            "every: 2h",
        ):
            assert line in said, said
        assert "cron" not in said
        await editor.focus()
        await page.keyboard.press("Control+End")
        await page.keyboard.insert_text("  jitter: 5m\n")
        await expect(form.get_by_label("Jitter")).to_have_value("5m")
        await page.keyboard.press("Control+z")
        await expect(form.get_by_label("Jitter")).to_have_value("")
        await page.get_by_text("No problems").wait_for()
        await page.get_by_role("button", name="Publish").click()
        await page.get_by_role("dialog").get_by_role("button", name="Publish").click()
        await page.get_by_role("region", name="Schedule team/each-hour").get_by_role("link", name="Edit").click()
        await expect(form.get_by_label("Every")).to_have_value("2h")
        await expect(form.get_by_label("Path")).to_have_count(0)  # that of what is registered stays
        assert (await shown.stage.operations.schedules.get("team/each-hour")).overlap == "queue_one"
        await shown.stage.operations.schedules.delete("team/each-hour", "token:local")
        visit.forgive("404")  # nothing was there to compare with
        assert visit.complaints == []


@pytest.mark.verify
async def test_a_trigger_is_filled_in_and_changed_from_a_webhook_to_a_stream(shown: Shown) -> None:
    async with visiting(width=390, height=844) as visit:
        page, form = visit.page, visit.page.get_by_role("form", name="Form")
        await shown.sign_in(visit, "/playbooks?new=Trigger")
        await form.get_by_label("Playbook").fill("team/nightly")
        await form.get_by_label("Senders are known by").select_option("hmac")
        await form.get_by_text("needs `header`").or_(form.get_by_text("needs header")).first.wait_for()
        await form.get_by_label("On which events").select_option("nats")
        await form.get_by_label("Stream").fill("ORDERS EU")
        await form.get_by_label("Workload").fill("{")
        await form.get_by_text("This is not JSON").wait_for()
        await form.get_by_label("Starts in a minute at most").fill("0")
        await form.get_by_text("must be from 1 to 60,000").wait_for()
        said = await text_of(visit, "Trigger")
        assert 'on: {nats: {stream: "ORDERS EU"}}' in said, said
        assert "rate: {per_minute: 0}" in said
        assert 'workload: {greeting: "{{ event.json.greeting }}"}' in said  # what is no JSON changes nothing
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390
        assert visit.complaints == []


@pytest.mark.verify
async def test_a_trigger_on_an_event_that_a_step_emits_is_filled_in_and_published(shown: Shown) -> None:
    async with visiting() as visit:
        page, form = visit.page, visit.page.get_by_role("form", name="Form")
        await shown.sign_in(visit, "/playbooks?new=Trigger")
        await form.get_by_label("Path").fill("team/shipped")
        await form.get_by_label("On which events").select_option(label="events that steps emit")
        await form.get_by_label("Name of the event").fill("order_shipped")
        await form.get_by_label("Of the playbook").fill("team/*")
        await form.get_by_label("Playbook", exact=True).fill("team/nightly")
        await form.get_by_label("Workload").fill("")
        await page.get_by_text("No problems").wait_for()
        await page.get_by_role("button", name="Publish").click()
        await page.get_by_role("dialog").get_by_role("button", name="Publish").click()
        await page.get_by_role("region", name="Trigger team/shipped").wait_for()
        made = await shown.stage.operations.triggers.get("team/shipped")
        assert (made.on["event"]["name"], made.on["event"]["path"]) == ("order_shipped", "team/*")
        await shown.stage.operations.triggers.delete("team/shipped", "token:local")
        visit.forgive("404")  # nothing was there to compare with
        assert visit.complaints == []


class Shape(NamedTuple):
    """Of keys that exclude each other those that are chosen, by where they are; and the places of all values."""

    chosen: dict[str, str]
    places: frozenset[str]


def shapes(schema: Schema, at: str = "") -> Iterator[Shape]:
    """The shapes that a document may have."""
    schema = next((one for one in schema.get("anyOf", ()) if one["type"] != "null"), schema)
    rivals = [one["required"][0] for one in schema.get("oneOf", ())]
    if "properties" not in schema:
        yield Shape({}, frozenset([at]))
        return
    for rival in rivals or [None]:
        kept = {key: one for key, one in schema["properties"].items() if key == rival or key not in rivals}
        inner = (shapes(one, f"{at}/{key}") for key, one in kept.items())
        for parts in product(*inner):
            chosen = {at: rival} if rival else {}
            for part in parts:
                chosen |= part.chosen
            yield Shape(chosen, frozenset(chosen).union(*(part.places for part in parts)))


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("Schedule", schedule_schema()),
        pytest.param("Trigger", trigger_schema(), marks=pytest.mark.verify),
    ],
    ids=["schedule", "trigger"],
)
async def test_the_form_has_a_field_for_each_value_of_the_schema(kind: str, schema: Schema, shown: Shown) -> None:
    async with visiting() as visit:
        await shown.sign_in(visit, f"/playbooks?new={kind}")
        form = visit.page.get_by_role("form", name="Form")
        await form.get_by_label("Path").wait_for()
        for shape in shapes(schema):
            for place, key in shape.chosen.items():
                await form.locator(f'[name="{place}"]').select_option(key)
            found = await form.evaluate("form => [...form.elements].map(one => one.name)")
            assert frozenset(found) == shape.places - {"/apiVersion", "/kind"}, shape.chosen


@pytest.mark.skipif(not AXE.exists(), reason="NO AXE: accessibility is not tested. Run `npm ci` in web/")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_a_form_with_problems_violates_no_rule_of_accessibility(dark: bool, shown: Shown) -> None:
    async with visiting(dark=dark) as visit:
        await shown.sign_in(visit, "/playbooks?new=Schedule")
        form = visit.page.get_by_role("form", name="Form")
        await form.get_by_label("Cron").fill("61 * * * *")
        await form.get_by_text("not a cron expression: bad minute").wait_for()
        await visit.page.evaluate(AXE.read_text())
        ran = await visit.page.evaluate("axe.run({resultTypes: ['violations']})")
        assert [(one["id"], one["nodes"][0]["html"]) for one in ran["violations"]] == []
