"""What failed and why, and what is tried again, by clicks in a real browser over a whole stack."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from page_browser import Visit, expect, needs_browser, visiting

from warm_program import noetl

pytestmark = [needs_browser, pytest.mark.xdist_group("stack")]

HEAD: Final = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {0}, path: tests/failures/{0}}}\n"
LEAF: Final = """\
workload: {order: A-1005}
workflow:
  - step: charge
    tool:
      name: card
      kind: python
      code: |
        def charge(order):
            raise ValueError(f"order {order} <b>declined</b>, see https://shop.example/orders/{order}")
        charge(input_data["order"])
      args: {order: "{{ workload.order }}"}
"""
MIDDLE: Final = "workflow: [{step: pay, tool: {name: leaf, kind: playbook, path: tests/failures/leaf}}]\n"
FINE: Final = "workflow: [{step: only, tool: {kind: noop}}]\n"
OUTER: Final = """\
workload: {order: A-1005, note: "LONG"}
workflow:
  - step: settle
    tool:
      - {name: first, kind: playbook, path: tests/failures/fine}
      - {name: second, kind: playbook, path: tests/failures/middle}
"""
RETRIES: Final = """\
workflow:
  - step: fetch
    tool:
      name: get
      kind: noop
      args: {it: "{{ 1 // 0 }}"}
      spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 10, delay: 3600}}]}}
"""
PLAYBOOKS: Final = {
    "leaf": LEAF,
    "middle": MIDDLE,
    "fine": FINE,
    "outer": OUTER.replace("LONG", "long " * 1000),
    "retries": RETRIES,
}


@pytest.fixture(scope="module")
def home(shared_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("failures")
    for name, text in PLAYBOOKS.items():
        (folder / f"{name}.yaml").write_text(HEAD.format(name) + text)
        registered = noetl("playbook", "register", folder / f"{name}.yaml", "--home", shared_home)
        assert registered.returncode == 0, registered.stderr
    yield shared_home


def printed(home: Path, *words: object) -> str:
    ran = noetl(*words, "--home", home)
    assert ran.returncode in (0, 1), ran.stderr
    return ran.stdout.strip()


async def open_list(visit: Visit, home: Path, query: str) -> None:
    """The list of executions, from which clicks are counted."""
    link = printed(home, "sign-in")
    await visit.page.goto(link)
    await visit.page.get_by_role("table", name="Executions").wait_for()
    await visit.page.goto(f"{link.split('/#')[0]}/?q={query}")


async def test_one_click_shows_a_failure_its_cause_and_the_way_to_it(home: Path) -> None:
    failed = printed(home, "execution", "start", "tests/failures/outer", "--wait", "-o", "name")
    async with visiting() as visit:
        page = visit.page
        await open_list(visit, home, "path:tests/failures/outer")
        await page.get_by_role("link", name="tests/failures/outer").first.click()  # the only one
        cause = page.get_by_label("Failure", exact=True)
        await cause.get_by_text("order A-1005 <b>declined</b>").first.wait_for()
        await expect(cause.locator("b")).to_have_text("exception")
        await expect(cause).to_contain_text("attempt 1")
        await expect(cause.get_by_label("Way to the failure").get_by_role("listitem")).to_contain_text(
            ["tests/failures/outer settle.second", "tests/failures/middle pay.leaf", "tests/failures/leaf charge.card"]
        )
        await expect(cause.locator("pre")).to_contain_text("in charge")
        address = cause.get_by_role("link", name="https://shop.example/orders/A-1005").first
        await expect(address).to_have_attribute("rel", "noopener noreferrer")
        inputs = page.get_by_label("Inputs")
        await expect(inputs).to_contain_text("5 KB")
        await inputs.get_by_role("button", name="Load").click()  # all of it
        await expect(inputs).to_contain_text("A-1005")
        called = page.locator(".called")  # of the two the one that failed is marked, and comes first
        await expect(called).to_contain_text(["failed", "tests/failures/fine"])
        await cause.get_by_role("link", name="tests/failures/leaf").first.click()  # the nested one: one more
        await expect(page.locator("header.execution h1")).to_contain_text("tests/failures/leaf")
        await expect(page.get_by_label("Inputs")).to_contain_text("A-1005")
        assert visit.complaints == []
    why = printed(home, "execution", "why", failed)
    assert "caused by: tests/failures/leaf" in why and "ValueError: order A-1005" in why


async def test_work_that_did_not_fail_is_not_red(home: Path) -> None:
    waiting = printed(home, "execution", "start", "tests/failures/retries", "-o", "name")
    async with visiting() as visit:
        page = visit.page
        await open_list(visit, home, "path:tests/failures/retries")
        await page.get_by_role("link", name="tests/failures/retries").first.click()
        why = page.get_by_label("Why")
        await expect(why).to_contain_text("attempt 2 of 10")
        await expect(why).to_contain_text("the last error: expression_error")
        await expect(page.get_by_role("table", name="Step runs").locator(".status.waiting")).to_have_count(1)
        await page.get_by_role("button", name="fetch: waiting").wait_for()  # in the graph, as in the header
        await page.locator("header.execution .status.waiting").wait_for()
        await why.get_by_role("button", name="Retry now").click()
        await expect(why).to_contain_text("attempt 3 of 10")
        await expect(page.locator("main .bad, main .failure")).to_have_count(0)
        printed(home, "execution", "cancel", waiting)
        await page.locator("header.execution .status.cancelled").wait_for()
        await expect(page.locator("main .bad, main .failure, main .cause")).to_have_count(0)
        assert visit.complaints == []
