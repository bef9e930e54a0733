"""Requests of the HTTP API, the text of their parts, and the errors of their answers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import quote, urlencode

from noetl_stream_client.errors import ApiError, ClientError, UnexpectedAnswer
from noetl_stream_client.problems import PROBLEMS

if TYPE_CHECKING:
    from noetl_stream_client.documents import Fault, Problem

API: Final = "/api/v1"
JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
TYPE_PREFIX: Final = "/problems/"

AWAY: Final = frozenset({502, 503, 504})
"""The statuses with which proxies report that a gateway is down."""

DIAGNOSTICS_SHOWN: Final = 3
"""The maximum number of diagnostics of a refused playbook in its message."""

Answer = TypeVar("Answer")


class Request(NamedTuple):
    """A request.

    Attributes:
        parts: Of the address below ``/api/v1``, unquoted.
        body: An object, sent as JSON without ``None`` values; or bytes of another ``media``.
        request_id: The Idempotency-Key, which makes a POST or PATCH safe to repeat.
        wait_s: The time that it asks the gateway to wait.
        is_repeatable: Whether the request may be repeated safely.
    """

    method: str
    parts: tuple[str, ...]
    query: Mapping[str, Any] = {}
    headers: Mapping[str, str | None] = {}
    body: Mapping[str, Any] | bytes | None = None
    media: str = JSON
    request_id: str | None = None
    wait_s: float = 0.0
    is_repeatable: bool = True

    @property
    def target(self) -> str:
        """The path and the query."""
        path = f"{API}/" + "/".join(quote(part, safe="") for part in self.parts)
        query = [(name, text) for name, value in self.query.items() for text in _texts(value)]
        return f"{path}?{urlencode(query)}" if query else path

    def content(self) -> bytes | None:
        """The body as it is sent.

        Raises:
            TypeError: a value is none of JSON.
        """
        if self.body is None or isinstance(self.body, bytes):
            return self.body
        import msgspec

        given = self.body if "merge" in self.media else {k: v for k, v in self.body.items() if v is not None}
        return msgspec.json.encode(given)

    def headers_with(self, token: str | None) -> dict[str, str]:
        found = {name: value for name, value in self.headers.items() if value}
        if token is not None:
            found["Authorization"] = f"Bearer {token}"
        if self.request_id is not None:
            found["Idempotency-Key"] = self.request_id
        if self.body is not None:
            found["Content-Type"] = self.media
        return found


def _texts(value: Any) -> Iterator[str]:
    if value is None:
        return
    if isinstance(value, bool):
        yield str(value).lower()
    elif isinstance(value, str | int | float):
        yield str(value)
    else:
        for one in value:
            yield from _texts(one)


def new_id() -> str:
    """A random id that sorts by time (UUID, version 7)."""
    number = (time.time_ns() // 1_000_000) << 80 | 7 << 76 | int.from_bytes(os.urandom(10)) >> 4
    digits = f"{number & ~(3 << 62) | 2 << 62:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


class Received(NamedTuple):
    """An answer, read whole."""

    status: int
    media: str
    headers: Mapping[str, str]
    data: bytes


class Broken(Exception):
    """A request without an answer. ``sent``: the gateway may have received and executed it."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.why = why
        self.sent = sent


class Refused(Exception):
    """A problem that may pass. ``again_s`` is the pause that the gateway asks for."""

    def __init__(self, error: ApiError, again_s: float) -> None:
        super().__init__(str(error))
        self.error = error
        self.again_s = again_s


def body_of(received: Received, url: str) -> bytes:
    """The body of a success.

    Raises:
        Refused: it is a problem that may pass.
        ApiError: it is another problem.
        Broken: a proxy says that the gateway is down.
        UnexpectedAnswer: it is not the answer of a gateway.
    """
    if received.media == PROBLEM:
        error = problem_error(received.data, url)
        if received.status in (429, 503):
            raise Refused(error, retry_after_s(received.headers))
        raise error
    if received.status in AWAY:
        raise Broken(f"it answers {received.status}", sent=True)
    if received.status < 300:
        return received.data
    hint = "Client(url), NOETL_URL or the context sets the address"
    if received.status < 400:
        where = received.headers.get("location", "?")
        raise UnexpectedAnswer(f"{url} redirects to {where}", hint="use that address: the token is sent to one alone")
    raise UnexpectedAnswer(f"{url} is not a gateway: it answers {received.status} with {received.media}", hint=hint)


def document_of(data: bytes, kind: type[Answer], url: str) -> Answer:
    """The document of this kind; for ``str``, its text.

    Raises:
        UnexpectedAnswer: it is something else.
    """
    if kind is type(None) or kind is str:
        return cast(Answer, None if kind is type(None) else data.decode())
    import msgspec

    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        text = f"{url} answers with something unexpected: {error}"
        raise UnexpectedAnswer(text, hint="is it a gateway, and of a release that this client knows?") from None


def retry_after_s(headers: Mapping[str, str]) -> float:
    given = headers.get("retry-after", "")
    return float(given) if given.isascii() and given.isdigit() else 1.0


def problem_error(data: bytes, url: str) -> ApiError:
    """The exception for a problem. An unknown kind, from a newer gateway, counts as the first with its status."""
    from noetl_stream_client.documents import Problem

    problem = document_of(data, Problem, url)
    kind = PROBLEMS.get(problem.type.rpartition(TYPE_PREFIX)[2])
    alike = (one for one in PROBLEMS.values() if one.status == problem.status)
    message = "; ".join((problem.detail, *_faults(problem)))
    return (kind or next(alike, ApiError))(message, hint=problem.hint, problem=problem)


def _faults(problem: Problem) -> Iterator[str]:
    for fault in problem.errors or ():
        if fault.detail not in problem.detail:
            yield f"{_place(fault)}: {fault.detail}"
    diagnostics = [one for one in problem.diagnostics or () if one.message not in problem.detail]
    for one in diagnostics[:DIAGNOSTICS_SHOWN]:
        yield f"{one.file}:{one.line}:{one.column}: {one.message}"
    left_out = problem.left_out + max(len(diagnostics) - DIAGNOSTICS_SHOWN, 0)
    if left_out:
        yield f"and {left_out} more"


def _place(fault: Fault) -> str:
    return fault.parameter or fault.pointer or "the body"


def lost_error(broken: Broken, asked: Request, url: str) -> ClientError:
    """The exception for an answer that did not arrive."""
    if not broken.sent:
        hint = "is `noetl-stream gateway` running there? Client(url), NOETL_URL or the context sets the address"
        return PROBLEMS["unreachable"](f"no gateway answers at {url}: {broken.why}", hint=hint)
    if asked.is_repeatable and asked.request_id is None:
        return PROBLEMS["unreachable"](f"the connection to {url} broke: {broken.why}")
    text = f"the connection to {url} broke before the answer came: {broken.why}"
    again = f"ask again with request_id={asked.request_id!r}" if asked.request_id else "look before you ask again"
    return PROBLEMS["outcome-unknown"](text, hint=f"it may have been done: {again}")


def ended_error(asked: Request, url: str) -> ClientError:
    """The exception for a stream that ends each time it is opened."""
    return PROBLEMS["unreachable"](f"{url} ends the stream {'/'.join(asked.parts)} again and again")


def words_of(error: BaseException) -> str:
    """The reason why a connection broke, in the words of the system if it has any."""
    if "Timeout" in type(error).__name__:
        return "it timed out"
    cause: BaseException | None = error
    while cause is not None:
        if hasattr(cause, "verify_message"):
            return f"its certificate is not trusted: {cause.verify_message}"
        if isinstance(cause, OSError) and cause.errno is not None and not hasattr(cause, "library"):
            return os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror or cause)
        several = cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()
        cause = several[0] if several else cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__
