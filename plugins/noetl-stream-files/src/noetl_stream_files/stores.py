"""The storage of each place: its credentials, and a connection that follows the worker's rules for addresses.

``obstore`` resolves names and connects by itself. So it is given a proxy, that of the children of other kinds: it
resolves a name once, asks the guard, and connects to the address that was checked.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import obstore
from obstore.store import AzureStore, GCSStore, LocalStore, ObjectStore, S3Store

from noetl_stream.settings.tools import HTTP_PROXY_VARIABLE, ToolSettings
from noetl_stream.tools.contract import ToolCall, ToolFailure
from noetl_stream.tools.egress import Egress, ForbiddenAddress
from noetl_stream.tools.inputs import Auth, bad_credential, credential_of, text_entry
from noetl_stream.tools.proxy.egress_proxy import EgressProxy
from noetl_stream_files.errors import failures_of
from noetl_stream_files.places import Place

DEFAULT_CONNECT_TIMEOUT_S: Final = 10.0
DEFAULT_READ_TIMEOUT_S: Final = 60.0
MAX_RETRIES: Final = 2
"""The immediate retries of one request; longer outages are left to the task's retry policy."""
RETRY_S: Final = 10.0
SFTP_PORT: Final = 22
REQUEST_S: Final = 3600.0
"""How long one request may take with its body."""
PARTS_AT_ONCE: Final = 2
_DEFAULT_REGION: Final = "us-east-1"

_WORDS: Final = {
    "s3": {"access_key_id", "secret_access_key", "session_token", "region", "endpoint"},
    "gs": {"service_account_key", "token", "endpoint"},
    "az": {"account_name", "account_key", "sas_token", "endpoint"},
    "sftp": {"username", "password", "private_key", "passphrase", "host_key"},
}

Credential = Mapping[str, Any]


class Storage:
    """The storage of the places of one bucket or folder, open while the task runs.

    Args:
        origin: The address of the bucket.
        root: The folder, for one of the worker.

    Attributes:
        is_local: Whether it is a folder of the worker.
        is_folder: Whether it keeps files as folders do: in no order, without attributes, and comparing no etags.
    """

    def __init__(self, store: ObjectStore | None, origin: str = "", root: Path | None = None) -> None:
        self._store: Any = store
        self.is_local = self.is_folder = root is not None
        self._origin = origin
        self._root = root
        self._real_root = None if root is None else os.path.realpath(root)

    def path_of(self, place: Place) -> str:
        """The path of a place in the store.

        Raises:
            ToolFailure: ``not_allowed``: a symbolic link leads out of the folder.
        """
        if not self.holds(place.path):
            raise _not_allowed(place)
        if self._root is None:
            return place.path
        path = Path("/", place.path).relative_to(self._root)
        return "" if path == Path() else path.as_posix()

    def place_path(self, path: str) -> str:
        """The path in a place of the store's path ``path``."""
        return path if self._root is None else f"{self._root}/{path}".strip("/")

    def identity(self, place: Place) -> str:
        """The identity of a file under all its names: a bucket may have several names, and links lead to one file."""
        return os.path.realpath(f"/{place.path}") if self.is_local else f"{self._origin}/{place.bucket}/{place.path}"

    def holds(self, path: str) -> bool:
        """Whether the path of a place does not lead out of the folder by a symbolic link."""
        if self._real_root is None:
            return True
        return Path(os.path.realpath(f"/{path}")).is_relative_to(self._real_root)

    def batches(self, prefix: str, after: str | None, size: int) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
        """Yields what ``obstore`` says of the files below a path, in batches."""
        found: Any = obstore.list(self._store, prefix or None, offset=after, chunk_size=size)
        return found  # type: ignore[no-any-return]

    async def get(self, path: str, *, head: bool = False) -> Any:
        """Returns the answer of ``obstore`` about a file: ``meta``, ``attributes``, and its bytes by ``stream``."""
        return await obstore.get_async(self._store, path, options={"head": head})

    async def put(self, path: str, data: bytes, attributes: Any, mode: Any) -> None:
        """Writes a file by one request."""
        await obstore.put_async(self._store, path, data, attributes=attributes, mode=mode, use_multipart=False)

    def writer(self, path: str, attributes: Any, mode: Any, part: int) -> AbstractAsyncContextManager[Any]:
        """Opens a file to write it in parts; it is there once the context ends without an error."""
        return obstore.open_writer_async(
            self._store, path, attributes=attributes, buffer_size=part, max_concurrency=PARTS_AT_ONCE
        )

    async def copy(self, path: str, to: str) -> bool:
        """Copies a file within the storage; returns whether it can."""
        await obstore.copy_async(self._store, path, to)
        return True

    async def delete(self, path: str) -> None:
        """Deletes a file."""
        await obstore.delete_async(self._store, path)


class Storages:
    """The storages that one task opens, by :func:`storages_of`."""

    def __init__(self, call: ToolCall, folders: list[str], egress: Egress, proxy_url: str, certificates: bytes) -> None:
        self._call = call
        self._folders = folders
        self._egress = egress
        self._proxy_url = proxy_url
        self._certificates = certificates
        self._opened: dict[tuple[str, str, str], Storage] = {}
        self._closing = AsyncExitStack()

    async def close(self) -> None:
        """Closes the connections."""
        await self._closing.aclose()

    async def open(self, place: Place, auth: Auth | None) -> Storage:
        """Opens the storage of a place.

        Raises:
            ToolFailure: ``not_allowed``, ``credential``, ``forbidden_address``.
        """
        if place.scheme == "file":
            return self._folder_of(place)
        key = (place.scheme, place.bucket, repr(auth))
        if key not in self._opened:
            credential = {} if auth is None else await _credential(self._call, place, auth)
            if place.scheme == "sftp":
                self._opened[key] = await self._sftp(place, credential, {} if auth is None else auth)
                return self._opened[key]
            if place.scheme == "az" and "account_name" not in credential:
                raise bad_credential({} if auth is None else auth, "az:// needs account_name")
            store = self._store(place, credential, auth)
            await self._check(place, credential)
            self._opened[key] = Storage(store, _endpoint(place, credential))
        return self._opened[key]

    async def _sftp(self, place: Place, credential: Credential, auth: Auth) -> Storage:
        from noetl_stream_files.sftp import SftpLogin, sftp_storage

        host, _, port = place.bucket.partition(":")
        timeout_s = self._call.timeouts.connect or DEFAULT_CONNECT_TIMEOUT_S
        login = SftpLogin(host, int(port or SFTP_PORT), credential, auth, timeout_s)
        self._call.attributes.update({"server.address": login.host, "server.port": login.port})
        return await self._closing.enter_async_context(sftp_storage(place, login, self._egress))

    def _folder_of(self, place: Place) -> Storage:
        path = Path("/", place.path)
        for folder in sorted(self._folders, key=len, reverse=True):
            if path.is_relative_to(folder):
                root = Path(folder)
                with failures_of(place):
                    return Storage(LocalStore(root), root=root)
        raise _not_allowed(place)

    async def _check(self, place: Place, credential: Credential) -> None:
        parts = urlsplit(_endpoint(place, credential))
        host, port = parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)
        self._call.attributes.update({"server.address": host, "server.port": port})
        try:
            await self._egress.check_host(host, port)
        except ForbiddenAddress as forbidden:
            raise ToolFailure.of("forbidden_address", f"{place.scheme}://{place.bucket}: {forbidden}") from None

    def _store(self, place: Place, credential: Credential, auth: Auth | None) -> ObjectStore:
        """Makes the store. Every option is given here, so that the worker's own environment variables for clouds have
        no effect.
        """
        given: dict[str, Any] = {"client_options": self._client(place, credential), "retry_config": _RETRIES}
        endpoint, is_signed = _endpoint(place, credential), bool(credential.keys() - {"region", "endpoint"})
        try:
            if place.scheme == "s3":
                config: dict[str, Any] = {
                    "endpoint": endpoint,
                    "region": _region(credential),
                    "virtual_hosted_style_request": False,
                }
                keys = _s3_keys(credential) if is_signed else None
                return S3Store(
                    place.bucket, **{**config, "skip_signature": not is_signed}, credential_provider=keys, **given
                )
            if place.scheme == "gs":
                config = {"base_url": endpoint, "skip_signature": not is_signed}
                if "service_account_key" in credential:
                    config["service_account_key"] = credential["service_account_key"]
                elif is_signed:
                    given["credential_provider"] = _token(credential)
                return GCSStore(place.bucket, **config, **given)
            is_signed = bool(credential.keys() & {"account_key", "sas_token"})
            config = {"account_name": credential["account_name"], "endpoint": endpoint, "skip_signature": not is_signed}
            keys = _azure_keys(credential) if is_signed else None
            return AzureStore(place.bucket, **config, credential_provider=keys, **given)
        except Exception:  # its text may show the value
            raise bad_credential(
                {} if auth is None else auth, f"cannot be used for {place.scheme}://{place.bucket}"
            ) from None

    def _client(self, place: Place, credential: Credential) -> dict[str, Any]:
        timeouts = self._call.timeouts
        connect = DEFAULT_CONNECT_TIMEOUT_S if timeouts.connect is None else timeouts.connect
        read = DEFAULT_READ_TIMEOUT_S if timeouts.read is None else timeouts.read
        return {
            "proxy_url": self._proxy_url,
            "proxy_excludes": "",
            "allow_http": _endpoint(place, credential).startswith("http://"),
            "allow_invalid_certificates": False,
            "connect_timeout": timedelta(seconds=connect),
            "read_timeout": timedelta(seconds=read),
            "timeout": timedelta(seconds=REQUEST_S),
            **({"root_certificate": self._certificates} if self._certificates else {}),
        }


_RETRIES: Final = {"max_retries": MAX_RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)}


@asynccontextmanager
async def storages_of(call: ToolCall, settings: ToolSettings, folders: list[str]) -> AsyncIterator[Storages]:
    """The storages of a task, behind one proxy.

    Raises:
        ToolFailure: ``not_allowed``: the operator's own proxy cannot be used.
    """
    if settings.http_proxy is not None and urlsplit(settings.http_proxy).scheme != "http":
        raise ToolFailure.of("not_allowed", f"files cannot use an https:// {HTTP_PROXY_VARIABLE}")
    egress = Egress(settings.egress)
    certificates = b"" if settings.http_ca is None else await asyncio.to_thread(settings.http_ca.read_bytes)
    proxy = EgressProxy(egress, settings.http_proxy).open()
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            socket.send_fds(proxy.child_end, [b"\0"], [listener.fileno()])
        storages = Storages(call, folders, egress, url, certificates)
        try:
            yield storages
        finally:
            await storages.close()
    finally:
        proxy.close()


async def _credential(call: ToolCall, place: Place, auth: Auth) -> Credential:
    found = await credential_of(call, auth)
    words = _WORDS[place.scheme]
    shape = f"must be a mapping of {', '.join(sorted(words))} for {place.scheme}://"
    if isinstance(found, str) or not found.keys() <= words:
        raise bad_credential(auth, shape)
    for key in found:
        text_entry(auth, found, key)
    pairs = [("access_key_id", "secret_access_key")] if place.scheme == "s3" else []
    if any((one in found) != (other in found) for one, other in pairs):
        raise bad_credential(auth, "access_key_id and secret_access_key belong together")
    if place.scheme == "sftp":
        return found
    parts = urlsplit(_endpoint(place, found))
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise bad_credential(auth, "endpoint must be http:// or https:// and a host")
    return found


def _endpoint(place: Place, credential: Credential) -> str:
    default = {
        "s3": f"https://s3.{_region(credential)}.amazonaws.com",
        "gs": "https://storage.googleapis.com",
        "az": f"https://{credential.get('account_name')}.blob.core.windows.net",
    }
    return str(credential.get("endpoint") or default[place.scheme]).rstrip("/")


def _region(credential: Credential) -> str:
    return str(credential.get("region") or _DEFAULT_REGION)


def _s3_keys(credential: Credential) -> Callable[[], Any]:
    return lambda: {
        "access_key_id": credential["access_key_id"],
        "secret_access_key": credential["secret_access_key"],
        "token": credential.get("session_token"),
        "expires_at": None,
    }


def _token(credential: Credential) -> Callable[[], Any]:
    return lambda: {"token": credential["token"], "expires_at": None}


def _azure_keys(credential: Credential) -> Callable[[], Any]:
    if "account_key" in credential:
        return lambda: {"access_key": credential["account_key"], "expires_at": None}
    return lambda: {"sas_token": credential["sas_token"].lstrip("?"), "expires_at": None}


def _not_allowed(place: Place) -> ToolFailure:
    message = f"{place} is below no folder that the worker's operator allows (NOETL_TOOL_FILES, folders)"
    return ToolFailure.of("not_allowed", message)
