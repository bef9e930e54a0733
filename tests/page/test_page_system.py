"""The screens of the system: alarms, dead letters, credentials, tokens, the audit; and each role sees its part."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from page_browser import Visit, expect, needs_browser, visiting
from page_stage import READ, Shown, something_to_show

pytestmark = [needs_browser, pytest.mark.verify]


async def health(shown: Shown, visit: Visit) -> None:
    """What needs somebody comes first, with what mends it and where more of it is."""
    page = visit.page
    await shown.open(visit, "/system")
    alarm = page.get_by_role("listitem").filter(has=page.get_by_role("heading", name="dead-letters"))
    await alarm.get_by_text("3 messages could not be delivered").wait_for()
    await page.get_by_role("table").get_by_text("1 server: server-1").wait_for()
    await alarm.get_by_role("link", name="Dead letters").click()
    await page.wait_for_url("**/system/dead-letters")


async def letters(shown: Shown, visit: Visit) -> None:
    """A dead letter is read, sent again, and discarded for good: each after a question that says what it does."""
    page, dialog = visit.page, visit.page.get_by_role("dialog")
    table = page.get_by_role("table", name="Dead letters")
    await shown.open(visit, "/system/dead-letters")
    await table.get_by_role("button").nth(2).click()
    letter = page.get_by_role("complementary")
    await letter.get_by_text("not a report").wait_for()
    address = page.url
    await page.keyboard.press("k")
    await letter.get_by_text("another system").wait_for()
    await page.goto(address)
    await letter.get_by_role("button", name="Requeue").click()
    await dialog.get_by_text("Same call from a terminal").click()
    await expect(dialog).to_contain_text("noetl-stream dead-letter requeue")
    await dialog.get_by_role("button", name="Requeue").click()
    await dialog.wait_for(state="detached")

    async def is_back() -> bool:  # the server finds again that it is no message
        return len((await shown.stage.operations.cluster.dead_letters(10, None)).items) == 3

    await shown.stage.until(is_back)
    await page.reload()
    await table.get_by_role("button").nth(2).click()
    await letter.get_by_role("button", name="Discard").click()
    await dialog.get_by_text("This cannot be undone").wait_for()
    await dialog.get_by_label("Reason").fill("from a test")
    await dialog.get_by_role("button", name="Discard").click()
    await table.get_by_role("button").nth(2).wait_for(state="detached")
    await expect(table.get_by_role("button")).to_have_count(2)
    await shown.open(visit, "/system/audit?operation=discardDeadLetter")
    await page.get_by_role("table").get_by_text("from a test").wait_for()


async def tokens(shown: Shown, visit: Visit) -> None:
    """The secret of a new token is shown once, and works until the token is revoked."""
    page, dialog = visit.page, visit.page.get_by_role("dialog")
    await shown.open(visit, "/system/tokens")
    await page.get_by_role("button", name="Create a token").click()
    await dialog.get_by_label("Name").fill("nightly")
    await dialog.get_by_label("Role").select_option("operator")
    await dialog.get_by_label("Paths").fill("team/nightly, team/fetches")
    await dialog.get_by_text("Same call from a terminal").click()
    line = await dialog.locator("dd code").first.inner_text()
    expected = "noetl-stream token create nightly --role operator --paths team/nightly,team/fetches --expires 90d"
    assert shlex.split(line) == expected.split()
    await dialog.get_by_role("button", name="Create", exact=True).click()
    secret = await dialog.get_by_label("Secret").inner_text()
    await dialog.get_by_role("button", name="I have stored it").click()
    row = page.get_by_role("row").filter(has_text="nightly")
    await row.get_by_text("team/nightly, team/fetches").wait_for()
    assert secret not in await page.content()

    async def answered() -> int:
        headers = {"Authorization": f"Bearer {secret}"}
        async with shown.stage.client.get("/api/v1/pools", headers=headers) as answer:
            return answer.status

    assert await answered() == 200
    await row.get_by_role("button", name="Revoke nightly").click()
    await dialog.get_by_label("Reason").fill("it has leaked")
    await dialog.get_by_role("button", name="Revoke").click()
    await row.get_by_text("revoked").wait_for()

    async def is_refused() -> bool:
        return await answered() == 401

    await shown.stage.until(is_refused)


async def credentials(shown: Shown, visit: Visit) -> None:
    """A credential shows who was given it and never its value; the rest of its use is in the audit."""
    page = visit.page
    await shown.open(visit, "/system/credentials")
    await page.get_by_role("button", name="warehouse").click()
    use = page.get_by_role("region", name="Use of warehouse")
    await use.get_by_text("to worker-default").wait_for()
    assert "hidden" not in await page.content()
    await use.get_by_role("link", name="All in the audit").click()
    await page.wait_for_url(f"**/system/audit?operation={READ}&target=warehouse")
    await page.get_by_text("1 found").wait_for()
    await page.get_by_role("button", name="Refused only").click()
    await page.get_by_text("No entry matches.").wait_for()
    await page.get_by_role("button", name="Show all").click()
    await page.get_by_role("button", name="createToken").first.click()
    await page.get_by_role("complementary").get_by_text("idempotency_key").wait_for()
    await page.get_by_role("button", name="All on this target").wait_for(state="hidden")


async def values(shown: Shown, visit: Visit) -> None:
    """A credential is created, and gets a new value, by a form; what was typed is sent once and stands nowhere else."""
    page, dialog, secret = visit.page, visit.page.get_by_role("dialog"), "a-word-that-is-hidden"
    await shown.open(visit, "/system/credentials")
    await page.get_by_role("button", name="Create a credential").click()
    await dialog.get_by_label("Name", exact=True).fill("ledger")
    await dialog.get_by_label("Kind").fill("postgres")
    await dialog.get_by_label("Value of host").fill("db.example.org")
    await expect(dialog.get_by_label("Value of host")).to_have_attribute("type", "text")
    await expect(dialog.get_by_label("Value of password")).to_have_attribute("type", "password")
    await dialog.get_by_label("Value of password").fill(secret)
    await dialog.get_by_label("Reason").fill("a new ledger")
    await dialog.get_by_text("Same call from a terminal").click()
    await expect(dialog).to_contain_text(
        "credential set ledger --kind postgres --file value.txt --reason 'a new ledger'"
    )
    await expect(dialog).not_to_contain_text(secret)
    async with page.expect_request(lambda one: one.method == "PUT") as sent:
        await dialog.get_by_role("button", name="Create", exact=True).click()
    value = {"host": "db.example.org", "password": secret}
    assert (await sent.value).post_data_json == {"value": value, "kind": "postgres"}
    await page.get_by_role("button", name="ledger").click()
    await page.get_by_role("button", name="New value").click()
    await dialog.get_by_role("combobox", name="Value").select_option("text")
    await dialog.get_by_label("Text of the value").fill("abc")
    await dialog.get_by_role("button", name="Store").click()
    await dialog.get_by_text("fewer than 4 characters").wait_for()
    await dialog.get_by_label("Text of the value").fill(secret)
    await dialog.get_by_role("button", name="Store").click()
    row = page.get_by_role("row").filter(has_text="ledger")
    await expect(row.get_by_role("cell").nth(2)).to_have_text("2")
    await expect(dialog).to_have_count(0)
    kept = await page.evaluate(
        "[location.href, ...Object.values(localStorage), ...Object.values(sessionStorage)].join()"
    )
    assert secret not in await page.content() + kept
    visit.forgive("422")  # of the value that was too short


async def limits(shown: Shown, visit: Visit) -> None:
    """A key shows who holds it and who waits, in order; one that holds it for too long is cancelled there, and the next
    one has it.
    """
    page, dialog, ids = visit.page, visit.page.get_by_role("dialog"), shown.ids
    await shown.open(visit, "/system/limits")
    row = page.get_by_role("row").filter(has_text="import-acme")
    assert (await row.inner_text()).split() == ["import-acme", "team", "1", "2", "1", "at", "once", "team/import"]
    await page.get_by_label("Find a key").fill("team acm")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/system/limits?open=import-acme&namespace=team")
    limit = page.get_by_role("complementary", name="Limit import-acme")
    holders, waiting = (limit.get_by_role("table", name=name) for name in ("Held by", "Waiting, in order"))
    await expect(holders.locator("a")).to_have_attribute("title", ids["holds"])
    assert [await one.get_attribute("title") for one in await waiting.locator("a").all()] == [
        ids["waits"],
        ids["waits too"],
    ]
    await expect(limit.get_by_role("link", name="Change it there")).to_have_attribute(
        "href", "/playbooks/team%2Fimport/edit"
    )
    await limit.get_by_role("button", name=f"Cancel {ids['holds']}").click()
    await dialog.get_by_label("Reason (optional)").fill("it hangs")
    await dialog.get_by_role("button", name="Cancel").click()
    await expect(holders.locator("a")).to_have_attribute("title", ids["waits"])
    await expect(waiting.locator("a")).to_have_count(1)
    await page.get_by_label("Find a key").fill("nobody")
    await page.keyboard.press("Enter")
    await page.get_by_text("nobody holds key nobody").wait_for()
    visit.forgive("404")


async def workers(shown: Shown, visit: Visit) -> None:
    """A worker shows how many child processes of a kind are busy, and how many tasks wait for one."""

    async def with_children(route: Any) -> None:
        answer = await route.fetch()
        found = await answer.json()
        found["items"][0]["children"] = {"python": {"busy": 2, "most": 2, "waiting": 3}}
        await route.fulfill(response=answer, json=found)

    await visit.page.route("**/api/v1/workers", with_children)
    await shown.open(visit, "/system/workers")
    table = visit.page.get_by_role("table", name="Workers")
    await expect(table.get_by_role("cell").nth(3)).to_have_text("python 2 of 2, 3 waiting")


async def faults(shown: Shown, visit: Visit) -> None:
    """A trigger says how many events it could not handle, and leads to the last of them."""
    page = visit.page
    await shown.open(visit, "/triggers")
    row = page.get_by_role("row").filter(has_text="team/pushes")
    await expect(row.get_by_role("cell").nth(4)).to_have_text("1")
    await row.get_by_role("button", name="team/pushes").click()
    trigger = page.get_by_role("region", name="Trigger team/pushes")
    await expect(trigger).to_contain_text("Faults: 1, the last of them event 4")
    await trigger.get_by_role("button", name="event 4", exact=True).click()
    await page.wait_for_url("**event=4*")
    await trigger.get_by_role("button", name="Event 4", exact=True, expanded=True).wait_for()


async def test_the_system_is_looked_after_by_clicks() -> None:
    async with something_to_show() as shown, visiting() as visit:
        await shown.sign_in(visit)
        for look in (health, limits, letters, tokens, credentials, values, workers, faults):
            await look(shown, visit)
        assert visit.complaints == []


async def test_each_role_is_offered_its_part_of_the_system_and_alarms_from_what_it_may_read() -> None:
    offered = {
        "viewer": "Health Pools Limits Workers Partitions",
        "operator": "Health Pools Limits Workers Partitions",
        "author": "Health Pools Limits Workers Partitions Credentials",
    }
    async with something_to_show() as shown:
        for role, parts in offered.items():
            async with visiting() as visit:
                page = visit.page
                await shown.sign_in(visit, role=role)  # type: ignore[arg-type]
                await shown.open(visit, "/system")
                await page.get_by_role("heading", name="All is well").wait_for()
                assert (await page.get_by_role("navigation", name="System").inner_text()).split() == parts.split()
                await shown.open(visit, "/system/tokens")
                await page.get_by_text("Your role does not show this.").wait_for()
                await shown.open(visit, shown.screens["limits"])
                await page.get_by_role("table", name="Held by").wait_for()
                await expect(page.get_by_role("button", name="Cancel")).to_have_count(0 if role == "viewer" else 3)
                if role == "author":
                    await shown.open(visit, "/system/credentials?open=warehouse")
                    await page.get_by_role("region", name="Use of warehouse").wait_for()
                    for act in ("Rotate", "Create", "New value"):
                        await expect(page.get_by_role("button", name=act)).to_have_count(0)
                    await expect(page.get_by_role("button", name="Delete")).to_have_count(0)
                assert visit.complaints == []
