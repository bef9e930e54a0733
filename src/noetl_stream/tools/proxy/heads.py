"""Heads of HTTP messages to and from a proxy (RFC 9110, RFC 9112): the client's request, and the forwarded one."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import urlsplit

END: Final = b"\r\n\r\n"
_HTTP_PORT: Final = 80
_OF_ONE_CONNECTION: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate", b"upgrade"}
)
"""The headers that are not forwarded."""
_REQUEST_LINE: Final = re.compile(rb"([A-Za-z-]+) ([\x21-\x7e]+) (HTTP/1\.[01])")
_HOST: Final = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")
"""Characters that stay in names and addresses: a further proxy might decode escapes."""


class ProxyRefusal(Exception):
    """The proxy refuses the request of its client.

    Attributes:
        status: The status of its answer.
    """

    def __init__(self, status: HTTPStatus, words: str) -> None:
        super().__init__(words)
        self.status = status

    def answer(self) -> bytes:
        """Returns the answer, with the message in its reason phrase: clients show nothing else of a refused
        ``CONNECT``.
        """
        words = str(self).encode("ascii", "replace")
        return (
            b"HTTP/1.1 %d %s: %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n"
            % (
                self.status,
                self.status.phrase.encode(),
                words,
                len(words) + 1,
                words,
            )
        )


class ProxyRequest(NamedTuple):
    """A request to a proxy.

    Attributes:
        host: The name or address of the server.
        place: Host and port, in the syntax of HTTP.
        head: The head for the server; empty if the client wants a connection (``CONNECT``).
    """

    host: str
    port: int
    place: bytes
    head: bytes

    def for_proxy(self, authorization: bytes) -> bytes:
        """Returns the head for a further proxy, with this ``Proxy-Authorization`` if it is not empty."""
        head = self.head or b"CONNECT %s HTTP/1.1\r\nHost: %s%s" % (self.place, self.place, END)
        line, _, rest = head.partition(b"\r\n")
        if self.head:
            line = line.replace(b" ", b" http://" + self.place, 1)
        return b"\r\n".join((line, *([b"Proxy-Authorization: " + authorization] if authorization else []), rest))


def read_request(head: bytes) -> ProxyRequest:
    """Reads the head of a request, which ends with :data:`END`.

    Raises:
        ProxyRefusal: It is not a request to a proxy.
    """
    first, *headers = head[: -len(END)].split(b"\r\n")
    if (line := _REQUEST_LINE.fullmatch(first)) is None:
        raise ProxyRefusal(HTTPStatus.BAD_REQUEST, "this proxy understands HTTP/1.1")
    method, target, version = line.groups()
    is_tunnel = method == b"CONNECT"
    try:
        url = urlsplit((b"//" + target if is_tunnel else target).decode())
        host, port = url.hostname or "", url.port or (0 if is_tunnel else _HTTP_PORT)
    except ValueError:
        url, host, port = urlsplit(""), "", 0
    if _HOST.fullmatch(host) is None or not port or (not is_tunnel and url.scheme != "http"):
        words = "this is a proxy: send CONNECT host:port, or the URL of http://host/"
        raise ProxyRefusal(HTTPStatus.BAD_REQUEST, words)
    place = (f"[{host}]" if ":" in host else host) + ("" if url.port is None else f":{port}")
    if is_tunnel:
        return ProxyRequest(host, port, place.encode(), b"")
    path = url._replace(scheme="", netloc="", fragment="").geturl() or "/"
    head = _joined(
        b" ".join((method, path.encode(), version)), [b"Host: " + place.encode(), *_passed(headers, b"host")]
    )
    return ProxyRequest(host, port, place.encode(), head)


def last_of_connection(head: bytes) -> bytes:
    """Returns the head of a response, changed to announce the end of its connection."""
    first, *headers = head[: -len(END)].split(b"\r\n")
    return _joined(first, _passed(headers))


def is_interim(head: bytes) -> bool:
    """Returns whether another response to the same request follows."""
    return head[8:10] == b" 1"


def _joined(first: bytes, headers: list[bytes]) -> bytes:
    return b"\r\n".join((first, *headers, b"Connection: close")) + END


def _passed(headers: list[bytes], *more: bytes) -> list[bytes]:
    return [line for line in headers if line.partition(b":")[0].strip().lower() not in (*_OF_ONE_CONNECTION, *more)]
