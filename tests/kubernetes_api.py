"""The Secrets of one namespace, as the API of Kubernetes serves them to the account of a pod."""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from aiohttp import web

from own_certificate import write_certificate

TOKEN = "token-of-the-account"
SECRET = "/api/v1/namespaces/flows/secrets/{name}"


class KubernetesApi:
    """Serves on loopback, with TLS.

    Args:
        may: The Secret that the account may get, create and patch.

    Attributes:
        account: A folder with what a pod has of its account.
        secrets: The data of each Secret, as text.
        patches: The query and the type of each change.
    """

    def __init__(self, folder: Path, may: str = "bootstrap") -> None:
        self.account = folder / "account"
        self.account.mkdir()
        certificate, private = write_certificate(self.account, 2)
        certificate.rename(self.account / "ca.crt")
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(self.account / "ca.crt", private)
        (self.account / "token").write_text(TOKEN)
        (self.account / "namespace").write_text("flows")
        self.secrets: dict[str, dict[str, str]] = {}
        self._allowed = {may}
        self.patches: list[tuple[dict[str, str], str]] = []
        self.url = ""

    @contextmanager
    def running(self) -> Iterator[KubernetesApi]:
        loop = asyncio.new_event_loop()
        runner = loop.run_until_complete(self._start())
        thread = Thread(target=loop.run_forever)
        thread.start()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.run_until_complete(runner.cleanup())
            loop.close()

    async def _start(self) -> web.AppRunner:
        app = web.Application()
        app.add_routes([web.get(SECRET, self._get), web.patch(SECRET, self._apply)])
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        self.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    def _refusal(self, request: web.Request) -> web.Response | None:
        name = request.match_info["name"]
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return status(401, "Unauthorized")
        return None if name in self._allowed else status(403, f'secrets "{name}" is forbidden')

    async def _get(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if (refused := self._refusal(request)) is not None:
            return refused
        if name not in self.secrets:
            return status(404, f'secrets "{name}" not found')
        return web.json_response({"kind": "Secret", "data": encoded(self.secrets[name])})

    async def _apply(self, request: web.Request) -> web.Response:
        if (refused := self._refusal(request)) is not None:
            return refused
        wanted: dict[str, Any] = json.loads(await request.read())
        self.patches.append((dict(request.query), request.content_type))
        data = self.secrets.setdefault(wanted["metadata"]["name"], {})
        data |= {key: b64decode(value).decode() for key, value in wanted["data"].items()}
        return web.json_response(wanted, status=201)


def encoded(data: dict[str, str]) -> dict[str, str]:
    return {key: b64encode(value.encode()).decode() for key, value in data.items()}


def status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)
