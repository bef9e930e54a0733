"""The page in a real browser, over a whole stack: sign in, find, look, act, sign out; and when the gateway is away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from page_browser import Visit, expect, needs_browser, visiting

from proxy import CHUNK_BYTES, Proxy
from warm_program import noetl

pytestmark = [needs_browser, pytest.mark.xdist_group("stack")]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def home(shared_home: Path) -> Iterator[Path]:
    for name in ("approval", "approval_by_signal", "hello"):
        registered = noetl("playbook", "register", ROOT / "playbooks" / f"{name}.yaml", "--home", shared_home)
        assert registered.returncode == 0, registered.stderr
    yield shared_home


def link_of(home: Path) -> str:
    """A link that signs in."""
    printed = noetl("sign-in", "--home", home)
    assert printed.returncode == 0, printed.stderr
    return printed.stdout.strip()


class Line(Proxy):
    """To the gateway; while it is ``broken``, each connection is closed at once."""

    broken = False

    async def _to_server(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        await self._carry(source, target)

    async def _to_client(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        await self._carry(source, target)

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        if self.broken:
            raise ConnectionAbortedError
        while data := await source.read(CHUNK_BYTES):
            target.write(data)
            await target.drain()
        target.close()


async def start(visit: Visit, path: str, **inputs: str) -> None:
    """By clicks, from the list of playbooks."""
    page = visit.page
    await page.get_by_role("link", name="Playbooks", exact=True).click()
    await page.get_by_label("Find a playbook").fill(path)
    await page.get_by_role("link", name=path, exact=True).click()
    await page.get_by_role("button", name="Start", exact=True).click()
    for key, value in inputs.items():
        await page.get_by_role("dialog").get_by_label(key, exact=True).fill(value)
    await page.get_by_role("dialog").get_by_role("button", name="Start", exact=True).click()


async def expect_status(visit: Visit, status: str) -> None:
    await visit.page.locator(f"header.execution .status.{status}").wait_for()


async def test_an_approval_from_start_to_end_by_clicks(home: Path) -> None:
    async with visiting() as visit:
        page = visit.page
        await page.goto(link_of(home))
        await page.get_by_role("table", name="Executions").wait_for()
        assert "code" not in page.url
        await start(visit, "examples/approval", amount="250")
        await expect_status(visit, "waiting")
        await page.get_by_role("button", name="decide: waiting").wait_for()  # in the graph, with its reason
        await expect(page.get_by_label("Why")).to_contain_text("admit")
        await page.get_by_label("Reason").fill("spoke with the customer")
        await page.get_by_role("button", name="Approve", exact=True).click()
        await expect_status(visit, "completed")
        await page.get_by_role("link", name="Results", exact=True).click()
        await expect(page.get_by_label("Result", exact=True)).to_contain_text("order:1001")
        await page.get_by_role("link", name="Context").click()
        await page.get_by_label("Changes").get_by_text("spoke with the customer").wait_for()
        await page.get_by_role("link", name="Events").click()
        await page.get_by_role("button", name="ctx.patched").click()
        await expect(page.get_by_role("complementary")).to_contain_text("spoke with the customer")
        await page.get_by_role("link", name="Steps").click()
        await page.get_by_role("button", name="pay: done").click()
        await page.get_by_role("button", name="Rerun from pay").click()
        await page.get_by_role("dialog").get_by_role("button", name="Rerun", exact=True).click()
        await page.get_by_text("Rerun of").wait_for()
        await expect_status(visit, "completed")
        await page.get_by_role("button", name="Compare", exact=True).click()
        await page.get_by_role("button", name="the original").click()
        await page.get_by_label("Where they part first").get_by_text("They do not part.").wait_for()
        await page.get_by_role("button", name="Same ones, too").click()
        await page.get_by_role("table", name="Step runs").get_by_text("reused").first.wait_for()
        assert page.url.endswith("?rows=all")
        assert visit.complaints == []


async def test_two_executions_are_compared_by_clicks(home: Path) -> None:
    async with visiting() as visit:
        page = visit.page
        await page.goto(link_of(home))
        for amount in (20, 250):
            await start(visit, "examples/approval", amount=str(amount))
            await expect_status(visit, "waiting" if amount > 100 else "completed")
        await page.get_by_role("button", name="Compare", exact=True).click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("button", name="completed").first.click()
        choice = page.get_by_label("Where they first do something else")
        await choice.wait_for()
        shared = page.url
        said = await choice.inner_text()
        assert "admitted only in A: B waits at the admission" in said
        assert "workload.amount = 20" in said and "workload.amount = 250" in said  # which the guard read in each
        await expect(page.get_by_label("Values that differ").first).to_contain_text("/amount")
        await page.get_by_role("button", name="Swap").click()
        await choice.wait_for()
        assert page.url != shared
        await page.goto(shared)
        await choice.wait_for()
        await expect(choice).to_have_text(said, use_inner_text=True)
        assert visit.complaints == []


async def test_an_operator_pauses_resumes_signals_and_cancels(home: Path) -> None:
    async with visiting() as visit:
        page = visit.page
        await page.goto(link_of(home))
        await start(visit, "examples/approval_by_signal")
        await expect_status(visit, "waiting")

        async def act(name: str) -> None:
            await page.get_by_role("button", name=name, exact=True).click()
            await page.get_by_role("dialog").get_by_role("button", name=name.split()[0], exact=True).click()

        await act("Pause")
        await expect_status(visit, "paused")
        await act("Resume")
        await expect_status(visit, "waiting")
        await page.get_by_role("button", name="Send release").click()
        await page.get_by_label("go", exact=True).select_option("true")
        await page.get_by_label("by", exact=True).fill("ada")
        await page.get_by_role("dialog").get_by_role("button", name="Send").click()
        await expect_status(visit, "completed")
        await start(visit, "examples/approval_by_signal")
        await expect_status(visit, "waiting")
        await act("Cancel")
        await expect_status(visit, "cancelled")
        await page.get_by_role("link", name="Executions", exact=True).click()
        await page.keyboard.press("/")
        await page.keyboard.type("status:cancelled path:examples/approval_by_signal")
        await page.keyboard.press("Enter")
        await page.locator(".executions .status.cancelled").first.wait_for()
        assert "q=status" in page.url
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await expect_status(visit, "cancelled")
        assert visit.complaints == []


async def test_the_list_is_live_and_a_lost_connection_is_shown_and_restored(home: Path, tmp_path: Path) -> None:
    hello = tmp_path / "hello.yaml"
    hello.write_text((ROOT / "playbooks" / "hello.yaml").read_text().replace("examples/hello", "tests/page/hello"))
    async with visiting() as visit:
        page = visit.page
        link = link_of(home)
        gateway = urlsplit(link)
        line = Line(gateway.port or 0)
        await line.open()
        await page.goto(link.replace(gateway.netloc, f"127.0.0.1:{line.port}"))
        await page.get_by_label("Filter executions").fill("path:tests/page/hello label:")
        await expect(page.locator("#query-faults")).to_contain_text("needs a value")
        await page.get_by_label("Filter executions").fill("path:tests/page/hello")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/?q=*")
        await page.get_by_text("No execution matches.").wait_for()
        ran = noetl("run", hello, "--home", home)
        assert ran.returncode == 0, ran.stderr
        await page.locator(".executions .status.completed").wait_for()
        line.broken = True
        line.cut()
        await page.get_by_text("Connection lost. Trying again…").wait_for()
        line.broken = False
        await page.get_by_text("Connected again.").wait_for()
        ran = noetl("run", hello, "--home", home)
        assert ran.returncode == 0, ran.stderr
        await page.locator(".executions .status.completed").nth(1).wait_for()
        visit.forgive("net::ERR")
        assert visit.complaints == []
        await line.close()


async def test_a_link_works_once_and_signing_out_ends_the_session(home: Path) -> None:
    link = link_of(home)
    async with visiting() as visit:
        page = visit.page
        await page.goto(link)
        await page.get_by_role("button", name="Sign out").click()
        await page.get_by_role("heading", name="Sign in").wait_for()
        await page.goto(f"http://{urlsplit(link).netloc}/system")
        await page.get_by_role("heading", name="Sign in").wait_for()
        await page.get_by_label("Link or code").fill(link)
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_text("was used already").wait_for()
        await page.get_by_label("Link or code").fill(link_of(home))
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("link", name="Pools").wait_for()
        visit.forgive("401")
        assert visit.complaints == []


async def test_the_token_that_proves_a_change_is_shared_by_open_tabs_and_stored_by_none(home: Path) -> None:
    """On a disk, programs of the machine could read it, and any script of the origin long afterwards."""
    link = link_of(home)
    system = f"http://{urlsplit(link).netloc}/system"
    async with visiting() as visit:
        page = visit.page
        await page.goto(link)
        await page.get_by_role("button", name="Sign out").wait_for()
        assert await page.evaluate("JSON.stringify(localStorage)") == await page.evaluate("JSON.stringify({})")
        second = await page.context.new_page()
        await second.goto(system)
        await second.get_by_role("link", name="Pools").wait_for()
        await page.close()
        third = await page.context.new_page()
        await third.goto(system)
        await third.get_by_role("link", name="Pools").wait_for()
        await second.get_by_role("button", name="Sign out").click()
        await second.get_by_role("heading", name="Sign in").wait_for()
        await third.reload()
        await third.get_by_role("heading", name="Sign in").wait_for()
