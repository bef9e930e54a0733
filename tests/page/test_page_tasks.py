"""Twelve tasks of an operator, each from the list of executions to its answer, in as many clicks as are documented."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from gateway_playbooks import APPROVAL
from gateway_stage import GatewayStage
from page_browser import Visit, expect, needs_browser, visiting
from page_stage import Shown

from noetl_stream.model.events import CtxPatched
from noetl_stream.ports.operations.executions import Start

pytestmark = needs_browser

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "page.md"
HEAD: Final = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {0}, path: tasks/{0}}}\n"
REFUND: Final = HEAD.format("refund") + (
    "workload: {order: {id: A-0}, card: good}\n"
    "workflow:\n"
    "  - step: charge\n"
    "    tool: {name: card, kind: noop, args: {paid: \"{{ 1 if workload.card == 'good' else 1 // 0 }}\"}}\n"
)
SETTLE: Final = HEAD.format("settle") + (
    "workflow: [{step: pay, tool: {name: refund, kind: playbook, path: tasks/refund, args: {card: lost}}}]\n"
)
RETRIES: Final = HEAD.format("retries") + (
    "workflow:\n"
    "  - step: fetch\n"
    "    tool:\n"
    "      {name: get, kind: noop, args: {it: '{{ 1 // 0 }}'}, spec: {policy: {rules: [\n"
    "        {when: \"{{ outcome.status == 'error' }}\", then: {do: retry, attempts: 10, delay: 3600}}]}}}\n"
)


class Hand:
    """What clicks and types, and counts the clicks."""

    def __init__(self, shown: Shown, visit: Visit) -> None:
        self.shown, self.page = shown, visit.page
        self.clicks = 0

    async def click(self, found: Any) -> None:
        await found.click()
        self.clicks += 1

    async def place(self, *names: str) -> None:
        for name in names:
            await self.click(self.page.get_by_role("link", name=name, exact=True).first)

    async def line(self, words: str) -> None:
        """Types into the line above the executions, which a click has put the cursor into."""
        await self.click(self.page.get_by_label("Filter executions"))
        await self.page.keyboard.type(words)
        await self.page.keyboard.press("Enter")
        await self.page.wait_for_url("**/?q=*")

    async def row(self, text: str) -> None:
        await self.click(self.page.locator(".executions .row.link").filter(has_text=text).first.get_by_role("link"))


async def failed(hand: Hand) -> None:
    await hand.row("tests/fails")
    await hand.page.get_by_label("Failure", exact=True).get_by_text("`ctx.missing` is undefined").first.wait_for()


async def nested(hand: Hand) -> None:
    await hand.row("tasks/settle")
    cause = hand.page.get_by_label("Failure", exact=True)
    await cause.get_by_text("division by zero").first.wait_for()
    await expect(cause.get_by_label("Way to the failure")).to_contain_text("tasks/refund charge.card")


async def by_order(hand: Hand) -> None:
    await hand.line("input:order.id=A-7")
    await hand.row("tasks/refund")
    await hand.page.get_by_label("Inputs").get_by_text("A-7").wait_for()


async def given(hand: Hand) -> None:
    await hand.row("team/fetches")
    await hand.page.get_by_label("Result").get_by_text("rows").wait_for()


async def approve(hand: Hand) -> None:
    await hand.row("examples/approval")
    await hand.click(hand.page.get_by_label("Why").get_by_role("button", name="Approve", exact=True))
    await hand.page.locator("header.execution .status.completed").wait_for()


async def retry(hand: Hand) -> None:
    await hand.row("tasks/retries")
    why = hand.page.get_by_label("Why")
    await expect(why).to_contain_text("attempt 2 of 10")
    await hand.click(why.get_by_role("button", name="Retry now"))
    await expect(why).to_contain_text("attempt 3 of 10")


async def held(hand: Hand) -> None:
    await hand.place("System", "Limits")
    await hand.click(hand.page.get_by_text("import-acme"))
    await hand.page.get_by_role("region", name="Held by").get_by_role("link", name="team/import").wait_for()


async def next_start(hand: Hand) -> None:
    await hand.place("Playbooks")
    row = hand.page.locator(".playbooks .row.link").filter(has_text="team/nightly")
    await row.locator("time").nth(1).wait_for()


async def of_worker(hand: Hand) -> None:
    await hand.place("System", "Workers")
    await hand.click(hand.page.get_by_role("link", name="worker-1"))
    await hand.page.locator(".executions .row.link").filter(has_text="team/nightly").first.wait_for()


async def slowest(hand: Hand) -> None:
    await hand.row("team/fetches")
    await hand.click(hand.page.get_by_role("button", name="Duration"))
    await expect(hand.page.get_by_role("table", name="Step runs").locator(".row.link").first).to_contain_text("settle")


async def log_of_failure(hand: Hand) -> None:
    await hand.row("tests/fails")
    await hand.click(hand.page.get_by_label("Failure", exact=True).get_by_role("link", name="Logs"))
    await hand.page.wait_for_url("**/logs?step=start*")


async def who_patched(hand: Hand) -> None:
    await hand.row("examples/approval")
    await hand.place("Context")
    await hand.page.get_by_text("she knows the customer").first.wait_for()


TASKS: Final[tuple[Callable[[Hand], Awaitable[None]], ...]] = (
    *(failed, nested, by_order, given, who_patched, approve),
    *(retry, held, next_start, of_worker, slowest, log_of_failure),
)


def told() -> list[tuple[str, int]]:
    """The tasks of the page of the documents, with their clicks."""
    part = PAGE.read_text(encoding="utf-8").partition("## Twelve tasks")[2]
    return [(name, int(clicks)) for name, clicks in re.findall(r"^\| (.+?) \| (\d+) \|", part, re.MULTILINE)]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ready(shown: Shown) -> AsyncIterator[Shown]:
    stage: GatewayStage = shown.stage
    await stage.operations.playbooks.register(REFUND.encode(), "refund", "token:local")
    approval = await stage.operations.executions.start(
        Start(playbook=APPROVAL, workload={"amount": 250}), "token:local"
    )
    patched = CtxPatched("patch-of-tasks", "token:local", "she knows the customer", patch={"notes": "asked Ada"})
    await stage.operations.executions.ask(approval.execution_id, patched)
    for text, workload in (
        (RETRIES, {}),
        (REFUND, {"order": {"id": "A-7"}}),
        (REFUND, {"order": {"id": "A-8"}}),
        (SETTLE, {}),
    ):
        started = await stage.operations.executions.start(Start(playbook=text, workload=workload), "token:local")
        if text is not RETRIES:
            await stage.operations.executions.wait(started.execution_id, 60)
    yield shown


@pytest.mark.parametrize(("number", "task"), enumerate(TASKS), ids=[task.__name__ for task in TASKS])
async def test_a_task_takes_as_many_clicks_as_the_documents_say(
    number: int, task: Callable[[Hand], Awaitable[None]], ready: Shown, record_property: Callable[[str, Any], None]
) -> None:
    async with visiting() as visit:
        await ready.sign_in(visit)
        await visit.page.locator(".executions .row.link").first.wait_for()
        hand = Hand(ready, visit)
        began_s = time.monotonic()
        await task(hand)
        record_property("seconds", round(time.monotonic() - began_s, 2))
        record_property("clicks", hand.clicks)
        assert hand.clicks == told()[number][1], told()[number][0]
        assert visit.complaints == []


def test_the_documents_tell_twelve_tasks() -> None:
    assert len(told()) == len(TASKS) == 12
