"""The client in TypeScript in a page of the gateway: it uses the session of the browser, and follows an execution."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from gateway_playbooks import LOOP
from gateway_stage import GatewayStage
from page_browser import needs_browser, visiting
from page_stage import Shown

from noetl_stream.settings.gateway_settings import GatewayLimits

ROOT = Path(__file__).resolve().parents[2]
COMPILER = ROOT / "web" / "node_modules" / ".bin" / "tsc"

pytestmark = [
    needs_browser,
    pytest.mark.skipif(not COMPILER.exists(), reason="NO NODE: run `npm ci` in web/ to test the client in TypeScript"),
]

USED = """async (playbook) => {
  const { Client, NotFound } = await import('/client/index.js')
  const headers = () => ({ 'X-CSRF-Token': sessionStorage.getItem('noetl_csrf_token') })
  const client = new Client('', { headers })
  const started = await client.start({ playbook })
  const names = []
  for await (const event of started.events()) names.push(event.name)
  const refused = await client.getExecution({ execution_id: 'none' }).catch((error) => error instanceof NotFound)
  return [(await started.get()).status, names.at(-1), refused, (await client.me()).principal]
}"""


async def test_a_page_of_the_gateway_uses_the_client_with_the_session_of_the_browser(tmp_path: Path) -> None:
    command = [COMPILER, "--project", ROOT / "clients" / "typescript", "--outDir", tmp_path]
    subprocess.run(command, check=True)  # noqa: ASYNC221  # nothing else is under way

    async def file(route: Any) -> None:
        name = route.request.url.rpartition("/")[2]
        await route.fulfill(body=(tmp_path / name).read_text(), content_type="text/javascript")

    async with GatewayStage(GatewayLimits()).open() as stage, visiting() as visit:
        await Shown(stage, {}).sign_in(visit)
        await visit.page.route("**/client/*.js", file)
        status, last, refused, principal = await visit.page.evaluate(USED, LOOP)
    assert (status, last, refused) == ("completed", "playbook.processed", True)
    assert principal.startswith("token:")
