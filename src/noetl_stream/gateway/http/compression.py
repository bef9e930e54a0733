"""Answers are compressed for those who take that, where it is worth it."""

from __future__ import annotations

from typing import Final

from aiohttp import web

VARIES: Final = {"Vary": "Accept-Encoding"}
COMPRESSED_BYTES: Final = 4 * 1024
"""Smaller answers take few packets either way."""


def takes_gzip(request: web.Request) -> bool:
    return "gzip" in request.headers.get("Accept-Encoding", "")


def compress(response: web.Response, size: int, request: web.Request) -> None:
    """Has the answer to a GET compressed by another thread. Answers to changes stay as they are: some hold secrets
    beside what the caller sent, and their compressed lengths would tell about them.

    Args:
        size: Of the body, bytes.
    """
    if request.method != "GET" or size < COMPRESSED_BYTES:
        return
    response.headers.update(VARIES)
    if takes_gzip(request):
        response.enable_compression(web.ContentCoding.gzip)
