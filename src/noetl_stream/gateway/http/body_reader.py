"""Taking in the body of a request, never more of it than its route may have."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import web

from noetl_stream.gateway.http.bodies import Body
from noetl_stream.gateway.http.problems import HttpProblem
from noetl_stream.settings.environment import GatewayLimits

BODY_S: Final = 60.0
"""Within which a body must have come: as long it counts as a request under way."""


async def read_body(body: Body[Any], request: web.Request, limits: GatewayLimits) -> tuple[bytes, str]:
    """The bytes, and the media type they have; nothing is read for a route that takes none.

    Raises:
        Refusal: it is too large, too slow, broken, or of a type that is not taken.
    """
    if not body.media:
        return b"", ""
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise HttpProblem("unsupported-media-type", f"A body is not taken as {encoding!r}", hint="send it as it is")
    data = await _bytes(request, body, limits)
    media = request.content_type if "Content-Type" in request.headers else next(iter(body.media))
    if not data and not body.required:
        return data, media
    if not body.takes(media) or (request.charset or "utf-8").lower() not in ("utf-8", "us-ascii"):
        raise HttpProblem(
            "unsupported-media-type",
            f"A body of the type {request.headers['Content-Type']!r} is not taken here",
            hint=f"send {' or '.join(body.media)}, in UTF-8",
        )
    return data, media


async def _bytes(request: web.Request, body: Body[Any], limits: GatewayLimits) -> bytes:
    variable, limit = limits.body(body.size)
    if (request.content_length or 0) > limit:
        raise _too_large(variable, limit)
    read = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.content.iter_any():
                read += chunk
                if len(read) > limit:
                    raise _too_large(variable, limit)
    except (web.RequestPayloadError, ConnectionError) as error:
        raise HttpProblem("invalid-request", f"The body cannot be read: {error}") from None
    except TimeoutError:
        raise HttpProblem("invalid-request", f"The body has not come within {BODY_S:g} s") from None
    return bytes(read)


def _too_large(variable: str, limit: int) -> HttpProblem:
    return HttpProblem(
        "too-large", f"The body is larger than {limit} bytes ({variable})", hint="send less, or raise it"
    )
