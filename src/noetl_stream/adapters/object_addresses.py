"""Reads and writes objects by signed address: over HTTP, or in a folder shared with the servers.

An address grants access to its object, so errors do not show it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit
from urllib.request import getproxies, proxy_bypass, url2pathname

from noetl_stream.errors import Forbidden, Unreachable
from noetl_stream.ports.streams.blobs import MISSING_CODES

if TYPE_CHECKING:  # imported late: only workers with objects in a bucket need an HTTP client
    from aiohttp import ClientResponse, ClientSession

CONNECT_S: Final = 5.0
SILENCE_S: Final = 30.0
TOTAL_S: Final = 300.0
READ_TEXT_BYTES: Final = 4096

_CODE: Final = re.compile(rb"<Code>(\w{1,60})</Code>")
_TAKEN: Final = ("412", "409 BlobAlreadyExists")
"""The answers where the object is there already: of S3, and of Azure."""
_MISSING: Final = {f"404 {code}" for code in MISSING_CODES}


class AddressedObjects:
    """:class:`~noetl_stream.ports.streams.blobs.ObjectsByAddress`; the port documents the methods."""

    def __init__(self) -> None:
        self._session: ClientSession | None = None

    async def put(self, address: str, data: bytes | memoryview) -> None:
        if address.startswith("file:"):
            await asyncio.to_thread(_write, address, data)
            return
        headers = {"x-ms-blob-type": "BlockBlob"}  # required by Azure, ignored by other services
        if "X-Goog-" not in address:  # Google rejects unsigned conditions
            headers["If-None-Match"] = "*"
        async with self._answer("PUT", address, headers, data) as answer:
            said = await _refusal(answer)
            if said and not said.startswith(_TAKEN):
                raise _error_of(address, said)

    async def get(self, address: str) -> bytes | None:
        if address.startswith("file:"):
            return await asyncio.to_thread(_read, address)
        async with self._answer("GET", address, {"Accept-Encoding": "identity"}) as answer:
            said = await _refusal(answer)
            if said and said not in _MISSING:
                raise _error_of(address, said)
            return None if said else await answer.read()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def _answer(
        self, method: str, address: str, headers: dict[str, str], data: bytes | memoryview | None = None
    ) -> AsyncIterator[ClientResponse]:
        from aiohttp import ClientError, ClientSession, ClientTimeout
        from yarl import URL

        if self._session is None:
            times = ClientTimeout(total=TOTAL_S, sock_connect=CONNECT_S, sock_read=SILENCE_S)
            self._session = ClientSession(timeout=times, auto_decompress=False)
        url = URL(address, encoded=True)
        # Use the proxy of the environment, as servers do. aiohttp's trust_env would also send credentials from .netrc.
        proxy = None if proxy_bypass(url.host or "") else getproxies().get(url.scheme)
        try:
            async with self._session.request(
                method, url, headers=headers, data=data, allow_redirects=False, proxy=proxy
            ) as answer:
                yield answer
        except (ClientError, TimeoutError, OSError):
            hint = "look at the network to it"
            raise Unreachable(f"{_host(address)}: object storage does not answer", hint=hint) from None


async def _refusal(answer: ClientResponse) -> str:
    """The status and error code of a failed request; empty if it succeeded."""
    if answer.status in (200, 201):
        return ""
    code = _CODE.search(await answer.content.read(READ_TEXT_BYTES))
    return f"{answer.status} {code[1].decode()}" if code else str(answer.status)


def _error_of(address: str, said: str) -> Forbidden | Unreachable:
    if said.startswith(("400", "401", "403")):
        return Forbidden(f"{_host(address)} refuses an address that a server signed ({said})")
    return Unreachable(f"{_host(address)}: object storage answers {said}")


def _host(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def _path_of(address: str) -> Path:
    """The path of an object in a shared folder.

    Raises:
        Unreachable: the folder does not exist.
    """
    parts = urlsplit(address)
    folder = Path(url2pathname(parts.path))
    if not folder.is_dir():
        hint = "NOETL_OBJECTS names a folder: share it with the machines of all roles"
        raise Unreachable(f"the folder {folder} of objects is not there", hint=hint)
    return folder / parse_qs(parts.query)["object"][0]


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unreachable(f"the object {path}: {error.strerror or error}") from None


def _read(address: str) -> bytes | None:
    path = _path_of(address)
    with _disk_errors(path):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None


def _write(address: str, data: bytes | memoryview) -> None:
    path = _path_of(address)
    new = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    with _disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            new.write_bytes(data)
            with suppress(FileExistsError):
                os.link(new, path)
        finally:
            new.unlink(missing_ok=True)
