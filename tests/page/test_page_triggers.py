"""The screen of triggers: what became of events and why, and what one can do about it, by the mouse and by keyboard
alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from page_browser import WATCH_SHIFTS, expect, needs_browser, visiting
from page_pictures import SIZES
from page_stage import ODD, Shown

from effort import first_in_gate
from noetl_stream.model.rights import Role
from warm_program import noetl

pytestmark = [needs_browser, pytest.mark.xdist_group("stack")]

COUNT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: count, path: tests/page/counted}
workflow:
  - step: start
    tool: {kind: noop}
"""
PUSHES = """\
apiVersion: noetl.io/v2
kind: Trigger
metadata: {name: pushes, path: tests/page/pushes}
spec:
  on: {webhook: {verify: none}}
  when: "{{ event.json.ref == 'main' }}"
  playbook: tests/page/counted
  workload: {commit: "{{ event.json.after }}"}
  key: "{{ event.json.after }}"
"""
PATH = "tests/page/pushes"


@pytest.fixture
def home(shared_home: Path, tmp_path: Path) -> Iterator[Path]:
    """With the trigger, which no event has come to."""
    for name, text in (("count", COUNT), ("pushes", PUSHES)):
        file = tmp_path / f"{name}.yaml"
        file.write_text(text)
        registered = noetl("playbook", "register", file, "--home", shared_home)
        assert registered.returncode == 0, registered.stderr
    yield shared_home
    noetl("trigger", "delete", PATH, "--home", shared_home)


async def sent(port: int, **event: Any) -> dict[str, Any]:
    """What the sender of an event is told, once what it started has ended."""
    address = f"http://127.0.0.1:{port}/api/v1/hooks/{PATH}?wait=30s"
    async with ClientSession() as client, client.post(address, data=json.dumps(event)) as answered:
        assert answered.status == 200, await answered.text()
        told: dict[str, Any] = await answered.json()
        return told


@pytest.mark.verify
async def test_events_are_explained_and_sent_again_and_the_trigger_is_paused_and_deleted(
    home: Path, shared_gateway_port: int
) -> None:
    port = shared_gateway_port
    for event in ({"ref": "main", "said": ODD}, {"ref": "dev"}, {"ref": "main", "said": "the same"}):
        await sent(port, after="6113728f", **event)
    printed = noetl("sign-in", "--home", home)
    async with visiting() as visit:
        page, dialog = visit.page, visit.page.get_by_role("dialog")
        await page.goto(printed.stdout.strip())
        await page.get_by_role("link", name="Triggers", exact=True).click()
        row = page.get_by_role("row").filter(has_text=PATH)
        await expect(row).to_contain_text("webhook /api/v1/hooks/tests/page/pushes")
        await row.get_by_role("button", name=PATH).click()
        trigger = page.get_by_role("region", name=f"Trigger {PATH}")
        events = trigger.get_by_role("list", name="Events").get_by_role("listitem")
        await expect(events).to_have_count(3)
        for at, said in enumerate(("its key has started", "when does not hold: {{ event.json.ref", "started")):
            await expect(events.nth(at)).to_contain_text(said)
        await expect(trigger).to_contain_text("it asks for no signature")

        await trigger.get_by_role("button", name="ignored", exact=True).click()
        await expect(events).to_have_count(1)
        await trigger.get_by_role("button", name="Event 2", exact=True).click()
        await page.reload()
        await expect(events).to_have_count(1)
        await expect(events.first).to_contain_text("dev")
        await trigger.get_by_role("button", name="ignored", exact=True).click()
        await trigger.get_by_role("button", name="Event 1", exact=True).click()
        await events.last.get_by_text("<script>window.evil=1").first.wait_for()
        assert await page.evaluate("window.evil") is None

        await trigger.get_by_role("button", name="Resend event 2").click()
        await dialog.get_by_text("Same call from a terminal").click()
        await expect(dialog).to_contain_text("noetl-stream trigger resend tests/page/pushes 2")
        await expect(dialog).to_contain_text("/api/v1/triggers/tests%2Fpage%2Fpushes/events/2/resend -H")
        await dialog.get_by_role("button", name="Resend", exact=True).click()
        await expect(events).to_have_count(4)
        await expect(events.first).to_contain_text("event 2, sent again")

        await trigger.get_by_role("button", name="Pause").click()
        await dialog.get_by_label("Reason").fill("the branch is closed")
        await dialog.get_by_text("Same call from a terminal").click()
        await expect(dialog).to_contain_text("trigger pause tests/page/pushes --reason 'the branch is closed'")
        await dialog.get_by_role("button", name="Pause", exact=True).click()
        await expect(row).to_contain_text("paused: the branch is closed")
        assert (await sent(port, after="7", ref="main"))["status"] == "ignored"
        await expect(events.first).to_contain_text("the trigger is paused: the branch is closed")

        await trigger.get_by_role("button", name="Resume").click()
        await dialog.get_by_role("button", name="Resume", exact=True).click()
        await expect(row).not_to_contain_text("paused")
        told = await sent(port, after="8", ref="main")
        await trigger.get_by_role("link", name=told["execution_id"]).click()
        await page.get_by_role("link", name=f"trigger {PATH}, {told['number']}").click()
        await trigger.get_by_role("button", name=f"Event {told['number']}", expanded=True).wait_for()

        await trigger.get_by_role("button", name="Delete").click()
        await dialog.get_by_text("This cannot be undone").wait_for()
        await dialog.get_by_role("button", name="Delete", exact=True).click()
        await expect(dialog).to_be_visible()  # a reason is missing
        await dialog.get_by_label("Reason").fill("it was for a test")
        await dialog.get_by_role("button", name="Delete", exact=True).click()
        await expect(row).to_have_count(0)
        await page.goto(f"{page.url.partition('?')[0]}?open={PATH}")
        await page.get_by_text(f"There is no trigger at {PATH}").wait_for()
        assert visit.complaints == []


async def test_an_author_writes_a_trigger_on_the_page(home: Path) -> None:
    noetl("trigger", "delete", PATH, "--home", home)
    printed = noetl("sign-in", "--home", home)
    async with visiting() as visit:
        page, dialog = visit.page, visit.page.get_by_role("dialog")
        editor = page.get_by_role("textbox", name="Trigger")

        async def write(text: str) -> None:
            """In place of all that is there."""
            await editor.focus()
            for key in ("Control+a", "Delete"):
                await page.keyboard.press(key)
            await page.keyboard.insert_text(text)

        await page.goto(printed.stdout.strip())
        await page.get_by_role("link", name="Triggers", exact=True).click()
        await page.get_by_role("link", name="New trigger").click()
        await expect(editor).to_contain_text("kind: Trigger")
        await write(PUSHES.replace("verify: none", "verify: anybody"))
        await page.get_by_label("Problems").get_by_text("verify must be").wait_for()
        await write(PUSHES)
        await page.get_by_text("0 errors").or_(page.get_by_text("No problems")).wait_for()
        await page.get_by_role("button", name="Publish").click()
        await expect(dialog).to_contain_text("it starts executions, with your rights")
        await dialog.get_by_role("button", name="Publish").click()
        await page.get_by_role("region", name=f"Trigger {PATH}").wait_for()
        await page.get_by_role("link", name="Document").click()
        await page.get_by_role("link", name="Edit").click()
        await expect(editor).to_contain_text("verify: none")
        visit.forgive("404")  # nothing was there to compare with
        assert visit.complaints == []


@pytest.mark.verify
async def test_an_event_is_found_and_sent_again_by_keyboard_alone(home: Path, shared_gateway_port: int) -> None:
    await sent(shared_gateway_port, ref="dev")
    printed = noetl("sign-in", "--home", home)
    async with visiting() as visit:
        page = visit.page

        async def tab_to(name: str) -> None:
            """Moves the focus, as Tab does, to what has this name."""
            for _ in range(80):
                await page.keyboard.press("Tab")
                if await page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.innerText") == name:
                    return
            raise AssertionError(f"Tab does not come to {name}")

        await page.goto(printed.stdout.strip())
        await page.get_by_role("button", name="Sign out").wait_for()
        await page.keyboard.press("t")
        await page.get_by_role("heading", name="Triggers").wait_for(state="attached")
        await page.keyboard.press("/")
        await page.keyboard.type("tests/page/pu")
        rows = page.get_by_role("table").locator("tbody tr")
        await expect(rows).to_have_count(1)
        await tab_to(PATH)
        await page.keyboard.press("Enter")
        await page.get_by_role("region", name=f"Trigger {PATH}").wait_for()
        await page.get_by_role("button", name="Event 1", exact=True).wait_for()
        await tab_to("Event 1")
        await page.keyboard.press("Enter")
        await page.get_by_text('{"ref": "dev"}').wait_for()
        await tab_to("Resend event 1")
        await page.keyboard.press("Enter")
        await page.get_by_role("dialog").wait_for()
        await page.keyboard.type("it was lost")
        await page.keyboard.press("Enter")
        await page.get_by_text("event 1, sent again").wait_for()
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog")).to_contain_text("Next trigger")
        assert visit.complaints == []


@pytest.mark.parametrize("size", first_in_gate(SIZES))
async def test_nothing_moves_while_what_starts_by_itself_is_loaded(size: str, shown: Shown) -> None:
    width, height = SIZES[size]
    async with visiting(width=width, height=height) as visit:
        await shown.sign_in(visit)
        await visit.page.add_init_script(f"({WATCH_SHIFTS})()")
        for screen, last in (("triggers", "Event 1"), ("schedules", "More to come")):
            await shown.open(visit, shown.screens[screen])
            await visit.page.get_by_role("button", name=last, exact=True).wait_for()
            await visit.page.get_by_role("link", name="01").first.wait_for()
            assert await visit.page.evaluate("shifted") == [], screen


@pytest.mark.parametrize(
    ("role", "acts"),
    [
        ("viewer", ["Close"]),
        ("operator", ["Pause", "Close"]),
        ("author", ["Pause", "Delete", "Close"]),
    ],
)
async def test_an_action_that_the_role_forbids_is_not_offered(role: Role, acts: list[str], shown: Shown) -> None:
    async with visiting() as visit:
        await shown.sign_in(visit, "/triggers?open=team%2Fpushes", role)
        trigger = visit.page.get_by_role("region", name="Trigger team/pushes")
        await trigger.get_by_text("its key has started this execution before").wait_for()
        assert await trigger.locator(".acts button").all_inner_texts() == acts
        await expect(trigger.get_by_role("button", name="Resend event 3")).to_have_count(0 if role == "viewer" else 1)
        assert visit.complaints == []
