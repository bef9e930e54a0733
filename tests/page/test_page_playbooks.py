"""Playbooks in a real browser, over a whole stack: written, mended, published, compared, started, counted."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_browser import Visit, expect, needs_browser, visiting

from warm_program import noetl

pytestmark = [needs_browser, pytest.mark.xdist_group("stack")]

REPORT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: report, path: tests/page/report, labels: {team: books}, version: "1.0"}
executor: {spec: {workload: {properties: {city: {enum: [Rome, São Paulo]}, rows: {type: integer, maximum: 50}}}}}
workload: {city: Rome, rows: 10, dry: false}
workflow:
  - step: start
    tool: {kind: noop, args: {city: "{{ workload.city }}"}}
"""
NEXT = """\
    next: {arcs: [{step: finish, when: "{{ workload.rows > 1 }}"}]}
  - step: finish
    tool: {kind: nop, args: {rows: "{{ workload.rows }}"}}
"""
INSIDE = '    desc: "{{ workload.'


@pytest.fixture(scope="module")
def home(shared_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    file = tmp_path_factory.mktemp("playbooks") / "report.yaml"
    file.write_text(REPORT)
    registered = noetl("playbook", "register", file, "--home", shared_home)
    assert registered.returncode == 0, registered.stderr
    yield shared_home


def link_of(home: Path) -> str:
    """A link that signs in."""
    printed = noetl("sign-in", "--home", home)
    assert printed.returncode == 0, printed.stderr
    return printed.stdout.strip()


async def edit(visit: Visit) -> None:
    """Opens the editor from the list."""
    page = visit.page
    await page.get_by_role("link", name="Playbooks", exact=True).click()
    await page.get_by_label("Find a playbook").fill("tests/page/report")  # other tests register more than a page
    await page.get_by_role("link", name="tests/page/report", exact=True).click()
    await page.get_by_role("link", name="Edit", exact=True).click()
    await page.get_by_text("No problems").wait_for()


async def append(visit: Visit, text: str) -> None:
    """Writes at the end of the text, as if it were pasted: no key completes or indents."""
    await visit.page.get_by_role("textbox", name="Playbook").focus()
    await visit.page.keyboard.press("Control+End")
    await visit.page.keyboard.insert_text(text)


async def test_a_playbook_is_mended_published_compared_started_and_counted(home: Path) -> None:
    async with visiting() as visit:
        page = visit.page
        await page.goto(link_of(home))
        await edit(visit)
        editor = page.get_by_role("textbox", name="Playbook")
        await editor.get_by_text("workflow", exact=True).hover()
        await page.get_by_text("The steps.").wait_for()
        await append(visit, NEXT)
        problem = page.get_by_label("Problems").get_by_role("listitem")
        await problem.get_by_text("nop").first.wait_for()
        await expect(problem.first).to_contain_text("noop")  # did you mean
        preview = page.get_by_label("Graph", exact=True)
        await preview.get_by_role("button", name="finish: error. error: no tool of kind").wait_for()
        await expect(preview.get_by_role("img", name="start to finish")).to_be_attached()
        await preview.get_by_role("button", name="start", exact=True).click()  # the editor goes there
        await expect(editor).to_be_focused()
        await problem.first.get_by_role("button", name="11:18").click()  # selects the word at its place
        await page.keyboard.type("no")
        await page.get_by_role("option", name="noop").click()
        await page.get_by_text("No problems").wait_for()
        await preview.get_by_role("button", name="finish", exact=True).wait_for()
        await append(visit, INSIDE)  # names of the playbook itself
        await page.keyboard.press("Control+ ")
        await page.get_by_role("option", name="city").wait_for()
        await page.keyboard.press("Escape")
        await page.keyboard.press("Control+z")
        await page.get_by_text("No problems").wait_for()

        await page.reload()
        await page.get_by_text("before the page was loaded again").wait_for()
        await expect(editor).to_contain_text("finish")
        await page.get_by_text("No problems").wait_for()
        await page.get_by_role("button", name="Publish").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_text("step: finish", exact=False).first.wait_for()
        await dialog.get_by_role("button", name="Publish").click()
        await dialog.get_by_text("give the new text another metadata.version").wait_for()  # a version never changes
        visit.forgive("409")
        await dialog.get_by_role("button", name="Close").click()
        await editor.focus()
        for key in ("Control+Home", "ArrowDown", "ArrowDown", "End", *["ArrowLeft"] * 2, *["Backspace"] * 3):
            await page.keyboard.press(key)
        await page.keyboard.type("2.0")
        await page.get_by_text("No problems").wait_for()
        await page.get_by_role("button", name="Publish").click()
        await dialog.get_by_role("button", name="Publish").click()
        await page.get_by_role("heading", name="tests/page/report@2.0").wait_for()

        await page.get_by_role("link", name="Changes").click()
        await page.get_by_role("img", name="finish: added").wait_for()
        changes = page.get_by_label("Changes of the graph")
        await expect(changes).to_contain_text("added: step finish")
        await expect(changes).to_contain_text("added: arc start → finish")
        await page.get_by_label("Side by side").check()
        await page.get_by_label("Difference of the texts").locator("td.added").nth(2).wait_for()

        await page.get_by_role("button", name="Start", exact=True).click()
        starts = dialog.get_by_role("button", name="Start", exact=True)
        await dialog.get_by_label("rows", exact=True).fill("many")
        await expect(starts).to_be_disabled()
        await dialog.get_by_label("rows", exact=True).press("Tab")
        await dialog.get_by_text("This is not a number.").wait_for()
        await dialog.get_by_label("city", exact=True).select_option("São Paulo")
        await dialog.get_by_label("rows", exact=True).fill("51")
        await starts.click()
        await dialog.get_by_text("greater than the maximum of 50").wait_for()
        visit.forgive("422")
        await dialog.get_by_label("rows", exact=True).fill("3")
        await dialog.get_by_label("dry", exact=True).select_option("true")
        await dialog.get_by_label("Priority").select_option("8")
        await dialog.get_by_text("Same call from a terminal").click()
        line = await dialog.locator("code", has_text="noetl-stream execution start").inner_text()
        await expect(dialog.locator("code", has_text="curl")).to_contain_text('"priority":8')
        await starts.click()
        await page.locator("header.execution .status.completed").wait_for()
        assert "--set dry=true" in line and "--set rows=3" in line and "--priority 8" in line
        await expect(page.locator(".facts").get_by_text("Priority")).to_be_visible()
        again = noetl(*shlex.split(line)[1:], "--home", home, "--wait")
        assert again.returncode == 0, again.stderr

        await page.get_by_role("link", name="Playbooks", exact=True).click()
        await page.get_by_label("Find a playbook").fill("elsewhere page/rep")
        await page.get_by_text("Nothing has all these words.").wait_for()
        await page.get_by_label("Find a playbook").fill("PAGE/REP  team=books")
        await page.get_by_role("link", name="tests/page/report", exact=True).click()
        await page.go_back()
        await expect(page.get_by_label("Find a playbook")).to_have_value("PAGE/REP  team=books")
        await page.get_by_role("link", name="tests/page/report", exact=True).click()
        await page.get_by_role("link", name="Statistics").click()
        row = page.get_by_label("Durations").get_by_role("row", name="finish")
        await expect(row).to_contain_text("0.0 %")
        assert visit.complaints == []


@pytest.mark.verify
async def test_a_newer_version_than_the_edited_one_is_announced(home: Path, tmp_path: Path) -> None:
    async with visiting() as visit:
        page = visit.page
        await page.goto(link_of(home))
        await edit(visit)
        await append(visit, "    desc: ")
        await page.keyboard.type("pressed")  # keys of the page, elsewhere
        await page.get_by_text("No problems").wait_for()
        newer = tmp_path / "newer.yaml"
        newer.write_text(REPORT.replace("1.0", "3.0"))
        assert noetl("playbook", "register", newer, "--home", home).returncode == 0
        await page.get_by_role("button", name="Publish").click()
        await page.get_by_role("dialog").get_by_text("tests/page/report@3.0").wait_for()
        await page.get_by_role("dialog").get_by_role("button", name="Close").click()
        await page.get_by_text("tests/page/report@3.0 was registered by").wait_for()
        await page.get_by_role("button", name="Discard changes").click()
        await page.get_by_text("No problems").wait_for()
        await expect(page.get_by_role("textbox", name="Playbook")).not_to_contain_text("pressed")
        assert visit.complaints == []
