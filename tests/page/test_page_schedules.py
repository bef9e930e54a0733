"""Schedules in a real browser, over a whole stack: seen, triggered, paused, backfilled, deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from page_browser import expect, needs_browser, visiting

from warm_program import noetl

pytestmark = [needs_browser, pytest.mark.xdist_group("stack")]

COUNT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: count, path: tests/page/count}
workflow:
  - step: start
    tool: {kind: noop}
"""
YEARLY = """\
apiVersion: noetl.io/v2
kind: Schedule
metadata: {name: yearly, path: tests/page/yearly}
spec:
  playbook: tests/page/count
  cron: ["30 6 29 2 *"]
  timezone: UTC
"""
ARRIVALS = """\
apiVersion: noetl.io/v2
kind: Schedule
metadata: {name: arrivals, path: tests/page/arrivals}
spec:
  playbook: tests/page/count
  cron: ["30 6 29 2 *"]
  timezone: UTC
  workload: {}
  files: {list: "file:///srv/inbox", marker: "file:///srv/state/inbox.json"}
"""


@pytest.fixture
def home(shared_home: Path, tmp_path: Path) -> Iterator[Path]:
    for name, text in (("count", COUNT), ("yearly", YEARLY), ("arrivals", ARRIVALS)):
        file = tmp_path / f"{name}.yaml"
        file.write_text(text)
        registered = noetl("playbook", "register", file, "--home", shared_home)
        assert registered.returncode == 0, registered.stderr
    yield shared_home


async def test_a_schedule_is_seen_triggered_paused_backfilled_and_deleted(home: Path) -> None:
    printed = noetl("sign-in", "--home", home)
    async with visiting() as visit:
        page = visit.page
        await page.goto(printed.stdout.strip())
        await page.get_by_role("link", name="Playbooks", exact=True).click()
        await page.get_by_label("Find a playbook").fill("tests/page")  # other tests register more than a page
        await page.get_by_role("row").filter(has_text="tests/page/count").wait_for()
        await expect(page.get_by_role("row").filter(has_text="tests/page/yearly")).to_have_count(0)
        await page.get_by_role("link", name="Schedules", exact=True).click()
        row = page.get_by_role("row").filter(has_text="tests/page/yearly")
        await expect(row).to_contain_text("30 6 29 2 *")
        await row.get_by_role("button", name="tests/page/yearly").click()
        schedule = page.get_by_role("region", name="Schedule tests/page/yearly")
        to_come = schedule.get_by_role("list", name="To come").get_by_role("listitem")
        occurrences = schedule.get_by_role("list", name="Occurrences").get_by_role("listitem")
        await expect(to_come).to_have_count(5)
        await schedule.get_by_role("button", name="More to come").click()
        await expect(to_come).to_have_count(25)
        await expect(schedule).to_contain_text("None yet.")

        await schedule.get_by_role("button", name="Run now").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("noetl-stream schedule run-now tests/page/yearly")
        await dialog.get_by_role("button", name="Run", exact=True).click()
        await expect(occurrences.first).to_contain_text("completed")
        await occurrences.first.get_by_role("link").click()
        await page.get_by_role("link", name="schedule tests/page/yearly, 1").click()

        await schedule.get_by_role("button", name="Pause").click()
        await dialog.get_by_label("Reason").fill("the source is away")
        await dialog.get_by_role("button", name="Pause", exact=True).click()
        await expect(schedule).to_contain_text("the source is away")
        await expect(row).to_contain_text("paused: the source is away")

        await schedule.get_by_role("button", name="Resume").click()
        await dialog.get_by_role("button", name="Resume", exact=True).click()
        await expect(row).not_to_contain_text("paused")

        await schedule.get_by_role("button", name="Backfill").click()
        await expect(dialog.get_by_role("button", name="Backfill", exact=True)).to_be_disabled()
        await dialog.get_by_label("From").fill("2016-01-01T00:00")
        await dialog.get_by_label("Until").fill("2024-03-01T12:00")
        await expect(dialog.get_by_role("status")).to_contain_text("3 are due, from 2016-02-29")
        await dialog.get_by_role("button", name="Backfill", exact=True).click()
        await expect(schedule.get_by_text("backfill", exact=True)).to_have_count(3)
        await schedule.get_by_role("button", name="completed", exact=True).click()
        await expect(occurrences).to_have_count(4)
        assert "status=completed" in page.url

        await page.reload()
        await schedule.get_by_role("button", name="Delete").click()
        await dialog.get_by_label("Reason").fill("it was for a test")
        await dialog.get_by_role("button", name="Delete", exact=True).click()
        await expect(row).to_have_count(0)
        assert visit.complaints == []


async def test_a_schedule_that_looks_for_files_shows_what_it_starts_for_each(home: Path) -> None:
    printed = noetl("sign-in", "--home", home)
    async with visiting() as visit:
        page = visit.page
        await page.goto(printed.stdout.strip())
        await page.get_by_role("link", name="Schedules", exact=True).click()
        row = page.get_by_role("row").filter(has_text="tests/page/arrivals")
        await expect(row.get_by_role("link")).to_have_text("tests/page/count")
        await row.get_by_role("button", name="tests/page/arrivals").click()
        schedule = page.get_by_role("region", name="Schedule tests/page/arrivals")
        started = schedule.get_by_text("Starts for each file").locator("..")
        await expect(started.get_by_role("link")).to_have_text("tests/page/count")
        looking = schedule.get_by_text("Looks for files by").locator("..")
        await expect(looking.get_by_role("link")).to_have_text("tests/page/arrivals/files")
