"""Files of SFTP servers, in the form in which ``obstore`` has those of others.

A server is known by the key that the credential holds, and reached at addresses that the worker's rules allow.
"""

from __future__ import annotations

import asyncio
import posixpath
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.egress import Egress, ForbiddenAddress
from noetl_stream.tools.inputs import Auth, bad_credential
from noetl_stream_files.errors import failures_of
from noetl_stream_files.places import Place
from noetl_stream_files.stores import Storage

try:
    import asyncssh
except ImportError:
    asyncssh = None  # type: ignore[assignment]

KEEPALIVE_S: Final = 15
_PIECE_BYTES: Final = 1 << 20
_UNFINISHED: Final = ".noetl-part"
_KEY_TYPES: Final = ("ssh-", "ecdsa-", "sk-")


class SftpLogin(NamedTuple):
    """The address of a server, and what its credential says."""

    host: str
    port: int
    credential: Mapping[str, Any]
    auth: Auth
    timeout_s: float

    def options(self) -> dict[str, Any]:
        """The options of the library, which reads nothing of the worker's own user.

        Raises:
            ToolFailure: ``credential``.
        """
        given = self.credential
        if "username" not in given or "host_key" not in given:
            hint = "sftp:// needs username and host_key, a line as ssh-keyscan prints it"
            raise bad_credential(self.auth, hint)
        if "private_key" not in given and "password" not in given:
            raise bad_credential(self.auth, "sftp:// needs private_key or password")
        try:
            trusted = [asyncssh.import_public_key(line) for line in _key_lines(given["host_key"])]
            keys = (
                [asyncssh.import_private_key(given["private_key"], given.get("passphrase"))]
                if "private_key" in given
                else None
            )
        except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, ValueError):
            raise bad_credential(self.auth, "its private_key or host_key cannot be read") from None
        if not trusted:
            raise bad_credential(self.auth, "host_key is empty")
        return {
            "username": given["username"],
            "password": given.get("password"),
            "client_keys": keys,
            "known_hosts": (trusted, [], []),
            "config": None,
            "agent_path": None,
            "gss_host": None,
            "disable_trivial_auth": True,
            "login_timeout": self.timeout_s,
            "keepalive_interval": KEEPALIVE_S,
        }


class SftpStorage(Storage):
    """The files of one server.

    Args:
        client: The session of the library.
    """

    def __init__(self, client: Any, origin: str) -> None:
        super().__init__(None, origin)
        self.is_folder = True
        self._client = client

    async def batches(self, prefix: str, after: str | None, size: int) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
        """Yields the files below a path, without links and what is not finished."""
        folders, batch = [prefix], []
        while folders:
            folder = folders.pop()
            async for name, attributes in self._entries(folder):
                path = f"{folder}/{name}" if folder else name
                if attributes.type == asyncssh.FILEXFER_TYPE_DIRECTORY:
                    folders.append(path)
                elif attributes.type == asyncssh.FILEXFER_TYPE_REGULAR and not name.endswith(_UNFINISHED):
                    batch.append(_meta(path, attributes))
                if len(batch) == size:
                    yield [one for one in batch if after is None or one["path"] > after]
                    batch = []
        yield [one for one in batch if after is None or one["path"] > after]

    async def get(self, path: str, *, head: bool = False) -> Any:
        """Returns what is known of a file, and its bytes."""
        with _as_of_files():
            attributes = await self._client.stat(_absolute(path))
        if attributes.type != asyncssh.FILEXFER_TYPE_REGULAR:
            raise FileNotFoundError
        return _Answer(self._client, path, _meta(path, attributes))

    async def put(self, path: str, data: bytes, attributes: Any, mode: Any) -> None:
        """Writes a file."""
        async with self.writer(path, attributes, mode, len(data)) as writer:
            await writer.write(data)

    @asynccontextmanager
    async def writer(self, path: str, attributes: Any, mode: Any, part: int) -> AsyncIterator[Any]:
        """Writes a file beside the one that it becomes at the end: where there is none yet, by a rename that fails if
        there is one.
        """
        goal = _absolute(path)
        beside = f"{posixpath.dirname(goal)}/.{posixpath.basename(goal)[:100]}{_UNFINISHED}"
        with _as_of_files():
            await self._client.makedirs(posixpath.dirname(goal), exist_ok=True)
            try:
                async with self._client.open(beside, "wb") as file:
                    yield file
                await self._rename(beside, goal, mode)
            except BaseException:
                with suppress(asyncssh.Error, OSError):
                    await self._client.remove(beside)
                raise

    async def copy(self, path: str, to: str) -> bool:
        """Returns ``False``: few servers can."""
        return False

    async def delete(self, path: str) -> None:
        """Deletes a file."""
        with _as_of_files():
            await self._client.remove(_absolute(path))

    async def _entries(self, folder: str) -> AsyncIterator[tuple[str, Any]]:
        with _as_of_files(), suppress(asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath):
            async for entry in self._client.scandir(_absolute(folder)):
                if entry.filename not in (".", ".."):
                    yield entry.filename, entry.attrs

    async def _rename(self, beside: str, goal: str, mode: Any) -> None:
        if mode != "create":
            try:
                await self._client.posix_rename(beside, goal)
                return
            except asyncssh.SFTPOpUnsupported:
                if await self._client.exists(goal):
                    raise NotImplementedError from None  # else there is a moment without a file
        try:
            await self._client.rename(beside, goal)
        except asyncssh.SFTPError:
            if await self._client.exists(goal):
                raise FileExistsError from None
            raise


class _Answer:
    """A file as an answer of ``obstore``."""

    attributes: Final[Mapping[str, str]] = {}

    def __init__(self, client: Any, path: str, meta: Mapping[str, Any]) -> None:
        self.meta = meta
        self._client = client
        self._path = path

    async def stream(self, min_chunk_size: int = _PIECE_BYTES) -> AsyncIterator[bytes]:
        """Yields the bytes."""
        with _as_of_files():
            async with self._client.open(_absolute(self._path), "rb") as file:
                while piece := await file.read(min_chunk_size):
                    yield piece


@asynccontextmanager
async def sftp_storage(place: Place, login: SftpLogin, egress: Egress) -> AsyncIterator[Storage]:
    """Connects to a server.

    Raises:
        ToolFailure: ``not_installed``, ``credential``, ``forbidden_address``, ``connection``.
    """
    if asyncssh is None:
        message = f"{place}: this worker has no SFTP; install noetl-stream-files[sftp] there"
        raise ToolFailure.of("not_installed", message)
    options = login.options()
    with failures_of(f"sftp://{place.bucket}"):
        try:
            connected = await _socket(login, egress)
        except ForbiddenAddress as forbidden:
            raise ToolFailure.of("forbidden_address", f"sftp://{place.bucket}: {forbidden}") from None
        try:
            connection = await asyncssh.connect(login.host, login.port, sock=connected, **options)
        except asyncssh.HostKeyNotVerifiable:
            raise bad_credential(login.auth, f"host_key is not that of sftp://{place.bucket}") from None
        except asyncssh.PermissionDenied:
            raise ToolFailure.of("refused", f"sftp://{place.bucket}: the login is refused") from None
        except asyncssh.Error as error:
            raise ConnectionError(f"the connection cannot be made: {error.reason}") from None
        except BaseException:
            connected.close()
            raise
    async with connection, connection.start_sftp_client() as client:
        yield SftpStorage(client, f"sftp://{login.host}:{login.port}")


async def _socket(login: SftpLogin, egress: Egress) -> socket.socket:
    """Connects to the first address of a host that answers."""
    loop, refused = asyncio.get_running_loop(), ConnectionError("the name has no address")
    for address in await egress.addresses(login.host, login.port):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setblocking(False)
        try:
            async with asyncio.timeout(login.timeout_s):
                await loop.sock_connect(made, (address, login.port))
            return made
        except OSError as error:  # TimeoutError is one
            made.close()
            refused = ConnectionError(error.strerror or "no connection in time (timeout.connect)")
        except BaseException:
            made.close()
            raise
    raise refused


def _key_lines(text: str) -> Iterator[str]:
    """Yields the keys of a text: a line each, also behind the names of a host."""
    for line in text.splitlines():
        words = line.split()
        if words and not words[0].startswith("#"):
            yield " ".join(words if words[0].startswith(_KEY_TYPES) else words[1:])


def _absolute(path: str) -> str:
    return f"/{path}"


def _meta(path: str, attributes: Any) -> dict[str, Any]:
    size, modified = attributes.size or 0, attributes.mtime or 0
    return {
        "path": path,
        "size": size,
        "last_modified": datetime.fromtimestamp(modified, UTC),
        "e_tag": f"{modified:x}-{size:x}",
        "version": None,
    }


@contextmanager
def _as_of_files() -> Iterator[None]:
    """Turns the errors of the library into those of files."""
    try:
        yield
    except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath):
        raise FileNotFoundError from None
    except asyncssh.SFTPPermissionDenied:
        raise PermissionError from None
    except (asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection, asyncssh.DisconnectError):
        raise ConnectionError("the connection broke off") from None
    except asyncssh.SFTPError as error:
        raise OSError(f"the server refused the request: {error.reason}") from None
