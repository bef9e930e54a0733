"""The page for people: files built from ``web/`` into ``page/``, served from memory to anybody.

They contain no data: the page reads it from the API, with the rights of the signed-in user.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from typing import Final

from aiohttp import web

from noetl_stream.gateway.http.problems import HttpProblem
from noetl_stream.gateway.http.serving import VARIES, takes_gzip

INDEX: Final = "index.html"
VIEWS: Final = "/{view:(?:(?:executions|playbooks|schedules|triggers|system)(?:/.*)?)?}"
"""The addresses of the page, which itself finds out what to show there."""

ASSET: Final = "/assets/{name}"
MEDIA: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "connect", "worker")),
        "img-src 'self' data:",
        *(f"{kind} 'none'" for kind in ("base-uri", "form-action", "frame-ancestors")),
        "require-trusted-types-for 'script'",
        "trusted-types svelte-trusted-html noetl-worker",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    **VARIES,
}
FOREVER: Final = "public, max-age=31536000, immutable"
"""The caching of assets: their names change with their contents."""


@dataclass(frozen=True)
class PageFile:
    """A file as served: plain, and compressed."""

    media: str
    body: bytes
    etag: str

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.body, mtime=0)


class PageFiles:
    """The files by name: ``index.html``, and assets."""

    def __init__(self, named: Iterable[tuple[str, bytes]]) -> None:
        self._files = {name: _page_file(name, body) for name, body in named}

    async def index(self, request: web.Request) -> web.StreamResponse:
        """The answer at :data:`VIEWS`."""
        return _answer(self._files[INDEX], request, "no-cache")

    async def missing(self, request: web.Request) -> web.StreamResponse:
        """The answer to a browser at an unknown address: the page explains it and has a way back."""
        answer = _answer(self._files[INDEX], request, "no-cache")
        if answer.status != HTTPStatus.NOT_MODIFIED:
            answer.set_status(HTTPStatus.NOT_FOUND)
        return answer

    async def asset(self, request: web.Request) -> web.StreamResponse:
        """The answer at :data:`ASSET`.

        Raises:
            HttpProblem: the file does not exist.
        """
        found = self._files.get(request.match_info["name"])
        if found is None:
            raise HttpProblem("not-found", "The page has no such file", hint="load the page again")
        return _answer(found, request, FOREVER)


def read_page() -> PageFiles:
    folder = files("noetl_stream.gateway") / "page"
    found = [*folder.iterdir(), *(folder / "assets").iterdir()]
    return PageFiles((one.name, one.read_bytes()) for one in found if one.is_file())


def _page_file(name: str, body: bytes) -> PageFile:
    media = MEDIA[name[name.rindex(".") :]]
    return PageFile(media, body, f'"{sha256(body).hexdigest()[:32]}"')


def _answer(file: PageFile, request: web.Request, cache: str) -> web.Response:
    headers = {**HEADERS, "Content-Type": file.media, "Cache-Control": cache, "ETag": file.etag}
    if file.etag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    if not takes_gzip(request):
        return web.Response(body=file.body, headers=headers)
    return web.Response(body=file.compressed, headers={**headers, "Content-Encoding": "gzip"})
