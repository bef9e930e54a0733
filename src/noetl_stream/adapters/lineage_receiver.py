"""The HTTP receiver of lineage: each event is one POST request (the HTTP transport of OpenLineage)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from noetl_stream.errors import PayloadRefused, Unreachable
from noetl_stream.model.json import codec
from noetl_stream.settings.monitoring import LineageSettings

SEND_S: Final = 10.0
"""The timeout of one POST, in seconds."""
_SHOWN: Final = 200
_REFUSALS: Final = (400, 409, 413, 422)
"""HTTP statuses that reject the event for good. After any other error status the event is sent again."""


class HttpLineageReceiver:
    """:class:`~noetl_stream.ports.traces.LineageReceiver` over HTTP, at the configured URL."""

    def __init__(self, settings: LineageSettings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None

    async def send(self, event: Mapping[str, Any]) -> None:
        headers = {"Content-Type": "application/json"}
        if self._settings.key:
            headers["Authorization"] = f"Bearer {self._settings.key}"
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SEND_S))
        try:
            sending = self._session.post(
                self._settings.url, data=codec.encode(event), headers=headers, allow_redirects=False
            )
            async with sending as answer:
                status, said = answer.status, (await answer.content.read(_SHOWN)).decode(errors="replace")
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise Unreachable(f"the receiver of lineage {self._settings.shown} does not answer: {reason}") from None
        if 200 <= status < 300:
            return
        what = f"the receiver of lineage {self._settings.shown} answered {status}: {' '.join(said.split())}"
        raise PayloadRefused(what) if status in _REFUSALS else Unreachable(what)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
