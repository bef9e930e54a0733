"""The HTTP API that playbooks of the audit call, at the address they were written for."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

WRITTEN: Final = "http://127.0.0.1:8765"
"""The address in the playbooks."""

PAGE: Final = {"data": [{"id": 1}], "paging": {"hasMore": False, "page": 1, "pageSize": 10}}


class AuditApi(ThreadingHTTPServer):
    """Answers ``/api/v1/users`` with a page, ``/big?kb=`` with rows of 1 KB, ``/boom`` with 500, and
    ``/api/v1/flaky?page=2`` at first with 429.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.asked: list[str] = []

    def playbook(self, file: Path, folder: Path) -> Path:
        """A copy of a playbook, in ``folder``, that calls this API."""
        copy = folder / file.name
        copy.write_text(file.read_text().replace(WRITTEN, f"http://127.0.0.1:{self.server_port}"))
        return copy


class _Answer(BaseHTTPRequestHandler):
    server: AuditApi

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        self.server.asked.append(self.path)
        again = self.server.asked.count(self.path) > 1
        if address.path == "/boom":
            self._send(500, {"error": "always broken"})
        elif address.path == "/big":
            count = int(parse_qs(address.query)["kb"][0])
            self._send(200, {"rows": [{"i": i, "text": "x" * 1000} for i in range(count)]})
        elif address.path == "/api/v1/flaky" and parse_qs(address.query).get("page") == ["2"] and not again:
            self._send(429, {"error": "slow down"}, {"retry-after": "1"})
        else:
            self._send(200, PAGE)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""

    def _send(self, status: int, body: object, headers: Mapping[str, str] = {}) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def audit_api() -> Iterator[AuditApi]:
    """The API, while it serves."""
    with AuditApi() as api:
        serving = threading.Thread(target=api.serve_forever, args=(0.05,), daemon=True)
        serving.start()
        try:
            yield api
        finally:
            api.shutdown()
            serving.join()
