"""The client in TypeScript in a page of the gateway: it uses the session of the browser, and follows an execution. The
page makes its calls with it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from gateway_playbooks import APPROVAL, LOOP
from gateway_stage import GatewayStage
from page_browser import expect, needs_browser, visiting
from page_stage import Shown

from noetl_stream.ports.operations.executions import Start
from noetl_stream.settings.gateway_settings import GatewayLimits

ROOT = Path(__file__).resolve().parents[2]
COMPILER = ROOT / "web" / "node_modules" / ".bin" / "tsc"

pytestmark = [
    needs_browser,
    pytest.mark.skipif(not COMPILER.exists(), reason="NO NODE: run `npm ci` in web/ to test the client in TypeScript"),
]

USED = """async ({ playbook, code }) => {
  const { Client, NotFound, Unauthenticated } = await import('/client/index.js')
  let [token, told] = ['', []]
  const headers = () => ({ 'X-CSRF-Token': token })
  const client = new Client('', { headers, told: (error) => told.push(error?.code ?? '') })
  token = (await client.signIn({ code })).csrf_token
  const started = await client.start({ playbook })
  const names = []
  for await (const event of started.events()) names.push(event.name)
  const requests = { names: ['execution.requested'] }
  const coming = client.events(requests).next().then(({ value }) => value)
  let first
  while (first === undefined) {
    await (await client.start({ playbook })).wait()
    first = await Promise.race([coming, undefined])
  }
  const missed = await client.start({ playbook })
  for await (const event of client.events({ ...requests, after: first.feed_id })) {
    if (event.execution_id === missed.id) break
  }
  const { status } = await started.get()
  const { principal } = await client.me()
  told = []
  const refused = await client.getExecution({ execution_id: 'none' }).catch((error) => error instanceof NotFound)
  await client.signOut()
  const left = await client.me().catch((error) => error instanceof Unauthenticated)
  return [status, names.at(-1), principal, refused, left, told]
}"""

REQUESTED = """async () => {
  const { requestOf } = await import('/client/index.js')
  return requestOf('patchCtx', { execution_id: 'a/b', changes: { n: 1 }, reason: 'gut für alle', if_match: '"3"' })
}"""


async def test_a_page_of_the_gateway_uses_the_client_with_the_session_of_the_browser(tmp_path: Path) -> None:
    command = [COMPILER, "--project", ROOT / "clients" / "typescript", "--outDir", tmp_path]
    subprocess.run(command, check=True)  # noqa: ASYNC221  # nothing else is under way

    async def file(route: Any) -> None:
        name = route.request.url.rpartition("/")[2]
        await route.fulfill(body=(tmp_path / name).read_text(), content_type="text/javascript")

    async with GatewayStage(GatewayLimits()).open() as stage, visiting() as visit:
        async with stage.client.post("/api/v1/session/codes") as answered:
            code = (await answered.json())["code"]
        await visit.page.goto(stage.url)
        await visit.page.route("**/client/*.js", file)
        status, last, principal, *after = await visit.page.evaluate(USED, {"playbook": LOOP, "code": code})
        assert await visit.page.evaluate(REQUESTED) == {
            "method": "PATCH",
            "path": "/api/v1/executions/a%2Fb/ctx",
            "headers": {"X-Reason": "gut f%C3%BCr alle", "If-Match": '"3"', "Content-Type": "application/json"},
            "body": '{"n":1}',
        }
    assert (status, last) == ("completed", "playbook.processed")
    assert principal.startswith("token:")
    assert after == [True, True, ["not-found", "", "unauthenticated"]]


async def test_an_act_that_is_tried_again_as_it_was_has_the_same_request_id() -> None:
    keys: list[str] = []

    async def pause(route: Any) -> None:
        keys.append(route.request.headers["idempotency-key"])
        problem = {"type": "/problems/internal", "title": "t", "status": 500, "detail": "it broke", "instance": "/"}
        if len(keys) <= 2:
            await route.fulfill(status=500, json=problem, content_type="application/problem+json")
        else:
            await route.continue_()

    async with GatewayStage(GatewayLimits()).open() as stage, visiting() as visit:
        page, shown = visit.page, Shown(stage, {})
        waits = Start(playbook=APPROVAL, workload={"amount": 250, "order": "1007"})
        started = await stage.operations.executions.start(waits, "token:local")
        await shown.sign_in(visit)
        await shown.open(visit, f"/executions/{started.execution_id}")
        await page.route("**/pause", pause)
        await page.get_by_role("button", name="Pause").click()
        dialog = page.get_by_role("dialog")
        for tries in range(2):
            await dialog.get_by_role("button", name="Pause").click()
            await dialog.get_by_text("it broke").wait_for()
            await expect(dialog.get_by_role("button", name="Pause")).to_be_enabled()
            assert len(keys) == tries + 1
        await dialog.get_by_label("Reason").fill("lunch")
        await dialog.get_by_role("button", name="Pause").click()
        await page.locator("header.execution .status.paused").wait_for()
    assert keys[0] == keys[1] != keys[2]
