"""HTTP to one gateway: repeatable requests are retried, problems become exceptions."""
# Made by scripts/client_code.py: do not edit.

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from noetl_stream_client.errors import ClientError, UnexpectedAnswer
from noetl_stream_client.frames import Frame, Frames
from noetl_stream_client.requests import (
    Broken,
    Received,
    Refused,
    Request,
    body_of,
    document_of,
    ended_error,
    lost_error,
    words_of,
)
from noetl_stream_client.retrying import REFUSED_CONNECTIONS, Retries, RetryBudget

if TYPE_CHECKING:  # it is loaded when the first client is made
    import httpx

    from noetl_stream_client.gateways import Gateway

CONNECT_S: Final = 5.0
ANSWER_S: Final = 60.0
"""The time that an answer may take beyond the request's own ``wait_s``."""

LATE_S: Final = 2.0
"""The time that an answer may come after its caller's wait, so that one on its way is not lost."""

PATIENCE_S: Final = 10.0
"""The time for retries of a request."""

FOLLOW_PATIENCE_S: Final = 60.0
"""The same for waits and streams, which have been answered before."""

SILENCE_S: Final = 45.0
"""The time without a byte after which a stream counts as broken: three times the interval of the gateway's frames."""

MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024

Answer = TypeVar("Answer")


class Transport:
    """The connections of a client."""

    def __init__(self, gateway: Gateway) -> None:
        import httpx

        self.gateway: Final = gateway
        limits = httpx.Limits(max_connections=100, max_keepalive_connections=20)
        self._http = httpx.Client(
            verify=gateway.verify, trust_env=False, proxy=gateway.proxy, follow_redirects=False, limits=limits
        )
        self.budget = RetryBudget()
        self._was_answered = False

    def close(self) -> None:
        self._http.close()

    def ask(
        self, asked: Request, kind: type[Answer], *, within_s: float = PATIENCE_S, end_s: float | None = None
    ) -> Answer:
        """The answer as a document of this kind; ``type(None)`` for an answer without one.

        Args:
            within_s: The time for retries.
            end_s: The end of the caller's wait, on the monotonic clock; ``None`` without an end.
        """
        return document_of(self._body(asked, within_s, end_s), kind, self.gateway.url)

    def _body(self, asked: Request, within_s: float, end_s: float | None) -> bytes:
        from time import sleep

        retries = Retries(self.budget, within_s, end_s)
        while True:
            left_s = ANSWER_S + asked.wait_s if end_s is None else max(end_s - time.monotonic(), 0.0) + LATE_S
            timeout_s = min(left_s, ANSWER_S + asked.wait_s)
            try:
                found = body_of(self._receive(asked, timeout_s), self.gateway.url)
                self._was_answered = True
                return found
            except Refused as refused:
                self._was_answered = True
                may_repeat = refused.error.status == 429 or refused.error.code == "overloaded" or asked.is_repeatable
                pause_s = retries.pause_s(refused.again_s) if may_repeat else None
                if pause_s is None:
                    raise refused.error from None
            except Broken as broken:
                most = None if self._was_answered else REFUSED_CONNECTIONS
                may_repeat = not broken.sent or asked.is_repeatable
                pause_s = retries.pause_s(most=most) if may_repeat else None
                if pause_s is None:
                    raise lost_error(broken, asked, self.gateway.url) from None
            sleep(pause_s)

    def _receive(self, asked: Request, timeout_s: float) -> Received:
        with self._answer(asked, timeout_s) as response:
            pieces, size = [], 0
            for piece in response.iter_bytes():
                pieces.append(piece)
                size += len(piece)
                if size > MAX_ANSWER_BYTES:
                    raise UnexpectedAnswer(f"{self.gateway.url} answers with more than {MAX_ANSWER_BYTES} bytes")
            media = response.headers.get("content-type", "").partition(";")[0]
            return Received(response.status_code, media, response.headers, b"".join(pieces))

    @contextmanager
    def _answer(self, asked: Request, timeout_s: float) -> Iterator[httpx.Response]:
        import httpx

        timeout = httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))
        headers = asked.headers_with(self.gateway.token)
        url = f"{self.gateway.url}{asked.target}"
        try:
            with self._http.stream(
                asked.method, url, content=asked.content(), headers=headers, timeout=timeout
            ) as response:
                yield response
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise Broken(words_of(error), sent=False) from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise Broken(words_of(error), sent=True) from None

    @contextmanager
    def stream(self, asked: Request) -> Iterator[Iterator[Frame] | None]:
        """The frames of one connection; ``None`` after the end of the stream. Opening it is retried."""
        asked = asked._replace(headers={**asked.headers, "Accept": "text/event-stream"})
        with self._answer(asked, SILENCE_S) as response:
            if response.status_code == 204:
                yield None
                return
            self._check(response)
            self._was_answered = True
            yield self._frames(response)

    @contextmanager
    def download(self, asked: Request) -> Iterator[Iterator[bytes]]:
        """The bytes of a file; an incomplete file ends with an error. Nothing is retried."""
        try:
            with self._answer(asked, ANSWER_S) as response:
                self._check(response)
                yield response.iter_bytes()
        except Refused as refused:
            raise refused.error from None
        except Broken as broken:
            raise lost_error(broken, asked, self.gateway.url) from None

    def _check(self, response: httpx.Response) -> None:
        if response.status_code != 200:
            media = response.headers.get("content-type", "").partition(";")[0]
            received = Received(response.status_code, media, response.headers, response.read())
            body_of(received, self.gateway.url)

    def _frames(self, response: httpx.Response) -> Iterator[Frame]:
        frames = Frames()
        for chunk in response.iter_bytes():
            before = frames.last_id
            for frame in frames.take(chunk):
                before = frame.id
                yield frame
            if frames.last_id != before:
                yield Frame(frames.last_id, b"")

    def follow(
        self, asked: Request, last: str | None, has_more: Callable[[str | None], bool]
    ) -> Generator[Frame, None]:
        """The frames of a stream after the id ``last``, over as many connections as needed. A frame without data is a
        place to resume from.

        Args:
            has_more: Whether more follows an id after which a connection was closed properly: gateways stop, too.

        Raises:
            ApiError: it cannot be opened again within a minute.
        """
        from time import sleep

        retries = Retries(self.budget, FOLLOW_PATIENCE_S)
        while True:
            headers = {} if last is None else {"Last-Event-ID": last}
            lost: ClientError
            try:
                with self.stream(asked._replace(headers=headers)) as frames:
                    if frames is None:
                        return
                    is_new = True
                    for frame in frames:
                        if is_new:
                            retries, is_new = Retries(self.budget, FOLLOW_PATIENCE_S), False
                        last = frame.id or last
                        yield frame
                if not has_more(last):
                    return
                lost, pause_s = ended_error(asked, self.gateway.url), retries.pause_s()
            except Refused as refused:
                lost, pause_s = refused.error, retries.pause_s(refused.again_s)
            except Broken as broken:
                lost = lost_error(broken, asked, self.gateway.url)
                pause_s = retries.pause_s(most=None if self._was_answered else REFUSED_CONNECTIONS)
            if pause_s is None:
                raise lost
            sleep(pause_s)
