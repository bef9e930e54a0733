"""The acts of the page, by clicks in a real browser over a whole stack; and that the lines it shows do the same."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import ClientSession
from page_browser import Visit, expect, needs_browser, visiting

from cli_program import environment
from warm_program import noetl, write_script

pytestmark = [needs_browser, pytest.mark.xdist_group("stack")]

PLAYBOOKS: Final = Path(__file__).resolve().parents[2] / "playbooks"
PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
BILL: Final = f"""\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: bill, path: tests/page/bill}}
workflow:
  - step: start
    tool: {{kind: noop, args: {{logo: "data:image/png;base64,{PIXEL}"}}}}
    next: {{arcs: [{{step: charge, args: {{amount: 40, currency: EUR}}}}]}}
  - step: charge
    tool: {{kind: noop, args: {{paid: "{{{{ args.amount }}}}", by: "{{{{ ctx.by | default('nobody') }}}}"}}}}
"""
QUOTE: Final = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: quote, path: tests/page/quote}
workflow:
  - step: quote
    tool: {kind: noop, args: {amount: 120}}
    next:
      spec: {wait: {timeout_s: 3600}}
      arcs:
        - {step: order, when: "{{ ctx.approved == true and event.result.amount > 100 }}"}
        - {step: drop, when: "{{ ctx.approved == false }}"}
  - {step: order, tool: {kind: noop, args: {ordered: true}}}
  - {step: drop, tool: {kind: noop, args: {dropped: true}}}
  - {step: note, tool: {kind: noop, args: {noted: "{{ args.text }}"}}}
"""


INSIDE: Final = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: inside, path: tests/page/inside}
workflow:
  - step: ask
    next: {spec: {wait: {timeout_s: 3600}}, arcs: [{step: order, when: "{{ ctx.order.approved == true }}"}]}
  - {step: order, tool: {kind: noop, args: {amount: "{{ ctx.order.amount }}"}}}
"""

ORDER: Final = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: order, path: tests/page/order}
executor: {spec: {policy: {compensation: {}, finally: note}}}
workflow:
  - step: charge
    tool: {kind: noop, args: {paid: 40}}
    spec: {policy: {compensation: {tool: {kind: wait, signal: refunded, timeout_s: 600}}}}
    next: {arcs: [{step: ship}]}
  - {step: ship, tool: {kind: noop, args: {at: "{{ 1 // 0 }}"}}}
  - {step: note, tool: {kind: noop}}
"""


@pytest.fixture(scope="module")
def home(shared_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("acts")
    for name, text in (("bill", BILL), ("quote", QUOTE), ("inside", INSIDE), ("order", ORDER)):
        (folder / f"{name}.yaml").write_text(text)
        registered = noetl("playbook", "register", folder / f"{name}.yaml", "--home", shared_home)
        assert registered.returncode == 0, registered.stderr
    yield shared_home


def printed(home: Path, *words: object) -> str:
    ran = noetl(*words, "--home", home)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def begun(home: Path, playbook: str, *words: object) -> str:
    return printed(home, "execution", "start", playbook, *words, "-o", "name")


async def open_execution(visit: Visit, home: Path, execution_id: str) -> None:
    link = printed(home, "sign-in")
    await visit.page.goto(link)
    await visit.page.get_by_role("table", name="Executions").wait_for()
    await visit.page.goto(f"{link.split('/#')[0]}/executions/{execution_id}")
    await visit.page.get_by_role("region", name="Graph").locator("svg").wait_for()


async def expect_status(visit: Visit, status: str) -> None:
    await visit.page.locator(f"header.execution .status.{status}").wait_for()


async def lines_of(place: Any) -> tuple[str, str]:
    """The same call as a command and for curl."""
    await place.get_by_text("Same call from a terminal").click()
    cli, curl = await place.locator(".lines code").all_inner_texts()
    return cli, curl


def ran(line: str, home: Path, folder: Path) -> str:
    """What a shell prints for a line that the page has shown."""
    write_script(folder)
    token = (home / "gateway.token").read_text().strip()
    given = environment(NOETL_HOME=str(home), TOKEN=token)
    given["PATH"] = f"{folder}:{given['PATH']}"
    done = subprocess.run(["sh", "-c", line], env=given, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "problem" not in done.stdout, (line, done.stdout, done.stderr)
    return done.stdout


async def test_an_answer_is_given_by_one_click_and_its_lines_do_the_same(home: Path, tmp_path: Path) -> None:
    first, second, third = (begun(home, "tests/page/quote") for _ in range(3))
    async with visiting() as visit:
        page = visit.page
        await open_execution(visit, home, first)
        await expect_status(visit, "waiting")
        why = page.get_by_label("Why")
        await why.get_by_text("goes on to drop").wait_for()
        await why.get_by_label("Reason").fill("it's the customer's wish")
        await why.get_by_role("button", name="Reject", exact=True).click()
        await expect_status(visit, "completed")
        assert "dropped" in printed(home, "execution", "result", first)
        assert "it's the customer's wish" in printed(home, "execution", "ctx", first)
        await page.goto(page.url.replace(first, second))
        await why.get_by_label("Reason").fill("it's fine; $HOME")
        await why.get_by_text("Same call from a terminal").click()
        shown = await why.locator(".lines code").all_inner_texts()
        approve = [line for line in shown if "true" in line]
        ran(approve[0], home, tmp_path)
        await expect_status(visit, "completed")
        assert "it's fine; $HOME" in printed(home, "execution", "ctx", second)
        ran(approve[1].replace(second, third), home, tmp_path)
        assert "ordered" in printed(home, "execution", "wait", third)

        inside = [begun(home, "tests/page/inside") for _ in range(3)]  # the answer leaves what stands beside it
        for one in inside:
            printed(home, "execution", "patch", one, "--set", 'order={"amount": 4321}')
        await page.goto(page.url.replace(second, inside[0]))
        await why.get_by_text("Same call from a terminal").click()
        shown = await why.locator(".lines code").all_inner_texts()
        await why.get_by_role("button", name="Approve", exact=True).click()
        await expect_status(visit, "completed")
        for one, line in zip(inside[1:], [line for line in shown if "true" in line], strict=True):
            ran(line.replace(inside[0], one), home, tmp_path)
        for one in inside:
            assert "4321" in printed(home, "execution", "wait", one)
        assert visit.complaints == []


@pytest.mark.verify
async def test_a_key_of_ctx_is_set_by_a_form_that_says_what_is_wrong(home: Path, tmp_path: Path) -> None:
    execution_id = begun(home, "tests/page/quote")
    async with visiting() as visit:
        page = visit.page
        await open_execution(visit, home, execution_id)
        await page.get_by_role("link", name="Context").click()
        await page.get_by_role("button", name="Set a key").click()
        dialog = page.get_by_role("dialog")
        sends = dialog.get_by_role("button", name="Set", exact=True)
        await dialog.get_by_label("Key").fill("team.lead")
        await dialog.get_by_label("Key").press("Tab")
        await dialog.get_by_label("Value", exact=True).fill("ada's")
        for line in await lines_of(dialog):  # a key that `--set` would take apart
            ran(line, home, tmp_path)
        assert printed(home, "execution", "ctx", execution_id).count("team.lead") == 3
        await dialog.get_by_label("Key").fill("approved")
        await dialog.get_by_label("Key").press("Tab")
        await expect(dialog.get_by_label("Kind of Value")).to_have_value("yes or no")  # as the guards compare it
        await dialog.get_by_label("Kind of Value").select_option("JSON")
        await dialog.get_by_label("Value", exact=True).fill("{yes}")
        await dialog.get_by_label("Value", exact=True).press("Tab")
        await dialog.get_by_text("This is not JSON").wait_for()
        await expect(sends).to_be_disabled()
        await dialog.get_by_label("Value", exact=True).fill("12345678901234567890")
        await dialog.get_by_text("exactly").wait_for()
        await dialog.get_by_label("Value", exact=True).fill("true")
        await sends.click()
        await expect(dialog).to_be_visible()  # there is no reason yet
        await dialog.get_by_label("Reason").fill("asked twice")
        await sends.click()
        await expect_status(visit, "completed")
        assert visit.complaints == []


@pytest.mark.verify
async def test_a_step_is_run_again_with_another_ctx_and_other_arguments_by_clicks(home: Path, tmp_path: Path) -> None:
    original = begun(home, "tests/page/bill", "--wait")
    async with visiting() as visit:
        page = visit.page
        await open_execution(visit, home, original)
        await page.get_by_role("button", name="charge: done").click()
        await page.get_by_role("button", name="Rerun from charge").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_text("As they were: amount, currency.").wait_for()
        await dialog.get_by_role("button", name="Add a key of ctx").click()
        await dialog.get_by_label("Name 1").fill("by")
        await dialog.get_by_label("Name 1").press("Tab")
        await dialog.get_by_label("by", exact=True).fill("ada's $friend")
        await dialog.get_by_role("button", name="Change the arguments").click()
        await dialog.get_by_label("amount", exact=True).fill("55")
        await dialog.get_by_role("button", name="Remove currency").click()
        await dialog.get_by_label("Reason").fill("wrong amount")
        cli, curl = await lines_of(dialog)
        await dialog.get_by_role("button", name="Rerun", exact=True).click()
        await page.get_by_text("Rerun of").wait_for()
        await expect_status(visit, "completed")
        again = page.url.split("/")[-1]
        result = printed(home, "execution", "result", again)
        assert "55" in result and "ada's $friend" in result
        assert "wrong amount" in printed(home, "execution", "ctx", again)
        for line in (f"{cli} --wait", curl.replace("/rerun", "/rerun?wait=30s")):
            told = ran(line, home, tmp_path)
            assert "55" in told and "ada's $friend" in told, told
        assert visit.complaints == []


@pytest.mark.verify
async def test_a_token_is_injected_at_a_step_of_the_graph_by_clicks(home: Path, tmp_path: Path) -> None:
    execution_id = begun(home, "tests/page/quote")
    async with visiting() as visit:
        page = visit.page
        await open_execution(visit, home, execution_id)
        await page.get_by_role("button", name="note: has not run, and no token leads to it").click()
        await page.get_by_role("button", name="Inject a token").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Add an argument").click()
        await dialog.get_by_label("Name 1").fill("text")
        await dialog.get_by_label("Name 1").press("Tab")
        await dialog.get_by_label("text", exact=True).fill("by hand")
        cli, curl = await lines_of(dialog)
        await dialog.get_by_role("button", name="Inject", exact=True).click()
        runs = page.get_by_role("table", name="Step runs").locator(".row.link")
        await runs.get_by_text("injected").first.wait_for()
        ran(cli, home, tmp_path)
        ran(curl, home, tmp_path)
        await runs.nth(2).wait_for()
        assert "by hand" in printed(home, "execution", "steps", execution_id, "-o", "json")
        assert visit.complaints == []


@pytest.mark.verify
async def test_a_signal_is_sent_by_a_form_and_its_lines_do_the_same(home: Path, tmp_path: Path) -> None:
    executions = [begun(home, PLAYBOOKS / "approval_by_signal.yaml") for _ in range(3)]
    async with visiting() as visit:
        page = visit.page
        await open_execution(visit, home, executions[0])
        await expect_status(visit, "waiting")
        await page.get_by_role("button", name="Send release").click()
        dialog = page.get_by_role("dialog")
        sends = dialog.get_by_role("button", name="Send", exact=True)
        await dialog.get_by_label("go", exact=True).select_option("true")
        await expect(sends).to_be_disabled()  # the playbook reads `by`, too
        await dialog.get_by_label("by", exact=True).fill("ada's")
        lines = await lines_of(dialog)
        await sends.click()
        for one, line in zip(executions[1:], lines, strict=True):
            ran(line.replace(executions[0], one), home, tmp_path)
        for one in executions:
            assert "ada's" in printed(home, "execution", "wait", one)
        assert visit.complaints == []


@pytest.mark.verify
async def test_the_lines_of_the_header_pause_resume_and_cancel(home: Path, tmp_path: Path) -> None:
    execution_id = begun(home, "tests/page/quote")
    async with visiting() as visit:
        page = visit.page
        await open_execution(visit, home, execution_id)
        for name, which, status in (("Pause", 0, "paused"), ("Resume", 1, "waiting"), ("Cancel", 0, "cancelled")):
            await page.get_by_role("button", name=name, exact=True).click()
            dialog = page.get_by_role("dialog")
            await dialog.get_by_label("Reason").fill("as it says")
            ran((await lines_of(dialog))[which], home, tmp_path)
            await dialog.get_by_role("button", name="Close").click()
            await expect_status(visit, status)
        assert visit.complaints == []


@pytest.mark.verify
async def test_undoing_is_drawn_ended_at_once_with_a_reason_and_done_later(home: Path, tmp_path: Path) -> None:
    execution_id = begun(home, "tests/page/order")
    async with visiting() as visit:
        page = visit.page
        await open_execution(visit, home, execution_id)
        await expect_status(visit, "compensating")
        await page.get_by_role("button", name="charge: done, 1 run. Being undone").wait_for()
        await page.get_by_role("button", name="note: has not run. Runs at every end").wait_for()
        await page.get_by_role("link", name="Timeline").click()
        await page.get_by_text("As a table").click()
        timeline = page.get_by_role("table", name="Timeline")
        await timeline.get_by_text("1 done. Being undone").wait_for()
        await timeline.get_by_text("charge__compensation").first.wait_for()
        await page.get_by_role("link", name="Steps").click()
        await page.get_by_role("button", name="Cancel now").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Cancel", exact=True).click()
        await expect(dialog).to_be_visible()  # there is no reason yet
        await dialog.get_by_label("Reason").fill("refunded by hand")
        ran((await lines_of(dialog))[0], home, tmp_path)
        await dialog.get_by_role("button", name="Close").click()
        await expect_status(visit, "failed")
        await page.get_by_role("button", name="charge: done, 1 run. Not undone: it was cancelled at once").wait_for()
        await page.get_by_role("button", name="Compensate").click()
        await dialog.get_by_text("What is left to undo of charge is undone").wait_for()
        await dialog.get_by_role("button", name="Compensate", exact=True).click()
        await page.get_by_text("Rerun of").wait_for()
        printed(home, "execution", "signal", page.url.split("/")[-1], "refunded")
        await expect_status(visit, "completed")
        await page.get_by_role("button", name="charge: reused, 1 run. Undone").wait_for()
        assert visit.complaints == []


async def test_the_graph_says_what_tokens_wait_for_and_what_decided(home: Path) -> None:
    waits = begun(home, "tests/page/quote")
    ended = begun(home, "tests/page/quote")
    printed(home, "execution", "patch", ended, "--set", "approved=true")
    printed(home, "execution", "wait", ended)
    async with visiting() as visit:
        page = visit.page
        await open_execution(visit, home, waits)
        tip = page.locator(".tip")
        await page.get_by_text("What moves it").wait_for()
        await page.get_by_role("button", name="quote: waiting").hover()
        await tip.get_by_text("ctx.approved is missing").first.wait_for()
        await page.keyboard.press("Escape")
        await tip.wait_for(state="hidden")
        await page.get_by_role("button", name="order: has not run, may still run").focus()
        await tip.get_by_text("may still run").wait_for()
        printed(home, "execution", "patch", waits, "--set", "approved=true")
        await tip.get_by_text("order: done").wait_for()
        await page.goto(page.url.replace(waits, ended))
        await page.get_by_role("img", name="quote to order").focus()
        await tip.get_by_text("ctx.approved is true, event.result.amount is 120").wait_for()
        await page.keyboard.press("Escape")  # what is said may cover the table
        await page.get_by_text("The graph as a table").click()
        table = page.get_by_label("The graph as a table")
        await table.get_by_text("ctx.approved is true").first.wait_for()
        assert visit.complaints == []


async def test_a_picture_in_a_result_is_shown(home: Path) -> None:
    execution_id = begun(home, "tests/page/bill", "--wait")
    async with visiting() as visit:
        await open_execution(visit, home, execution_id)
        await visit.page.get_by_role("link", name="Results").click()
        picture = visit.page.get_by_role("img", name="logo")
        await picture.wait_for()
        assert await picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1
        assert visit.complaints == []  # the Content-Security-Policy lets it through


async def test_a_viewer_is_offered_no_action(home: Path) -> None:
    waits, ended = begun(home, "tests/page/quote"), begun(home, "tests/page/bill", "--wait")
    link = printed(home, "sign-in")
    gateway = link.split("/#")[0]
    token = printed(home, "token", "create", f"viewer-{waits}", "--role", "viewer")
    async with ClientSession() as client, visiting() as visit:
        given = {"Authorization": f"Bearer {token}"}
        async with client.post(f"{gateway}/api/v1/session/codes", headers=given) as answered:
            code = (await answered.json())["code"]
        page = visit.page
        await page.goto(f"{gateway}/executions/{waits}#code={code}")
        await page.get_by_role("button", name="quote: waiting").click()
        await page.get_by_text("What moves it").wait_for()
        found = await page.locator("main button").all_inner_texts()
        await page.goto(f"{gateway}/executions/{ended}")
        await page.get_by_role("button", name="charge: done").click()
        await page.get_by_role("button", name="Show all").wait_for()
        found += await page.locator("main button").all_inner_texts()
        await page.goto(f"{gateway}/executions/{waits}/ctx")
        await page.get_by_role("heading", name="Changes").wait_for()
        found += await page.locator("main button").all_inner_texts()
        acts = ("Pause", "Cancel", "Set", "Approve", "Reject", "Rerun", "Inject", "Send", "Retry", "Resume")
        acts += ("Compensate",)
        assert [one for one in found if one.startswith(acts)] == []
        assert visit.complaints == []
