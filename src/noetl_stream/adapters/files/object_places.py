"""Objects in a bucket or a shared folder: one file for each object, written once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import LocalStore

from noetl_stream.adapters.files.objects import open_bucket, reworded
from noetl_stream.errors import BlobMissing, NotFound, OutcomeUnknown, Unreachable, UsageError
from noetl_stream.ports.streams.blobs import ADDRESS_LASTS_S, Method
from noetl_stream.settings.places import CUSTOMER_KEYS, ObjectAddress, Place, shown_place
from noetl_stream.settings.sources.process_environment import object_encryption

RETRY_S: Final = 5.0
"""The time during which a failed request is retried, in seconds. After that, the caller retries."""


class ObjectPlace:
    """:class:`~noetl_stream.ports.streams.blobs.SignedBlobs` over ``obstore``; the port documents the methods.

    The addresses in a folder are unsigned ``file:`` URLs, for processes that mount the same folder.

    Raises:
        UsageError: the folder cannot be created, or an environment variable of the service is invalid, or is for
            encryption by a key of the customer.
    """

    def __init__(self, place: Place) -> None:
        self.place = shown_place(place)
        self._encryption = object_encryption(place.scheme) if isinstance(place, ObjectAddress) else []
        self._refuse_encryption([name for name in self._encryption if name in CUSTOMER_KEYS.values()])
        self._folder = place if isinstance(place, Path) else None
        self._prefix = place.prefix if isinstance(place, ObjectAddress) and place.prefix else ""
        with reworded(self.place):
            self._store: Any = (
                LocalStore(place, mkdir=True, automatic_cleanup=True)
                if isinstance(place, Path)
                else open_bucket(ObjectAddress(place.scheme, place.bucket), RETRY_S)
            )

    async def put(self, key: str, data: bytes | memoryview) -> None:
        with self._answers(key):
            try:
                await obstore.put_async(self._store, self._name(key), data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                if not await self._has(key):  # another put of the key is still running
                    raise OutcomeUnknown(f"{self.place}: another put of {key} is not decided yet") from None

    async def get(self, key: str) -> bytes:
        with self._answers(key):
            found = await obstore.get_async(self._store, self._name(key))
            return bytes(await found.bytes_async())

    async def delete(self, key: str) -> bool:
        with self._answers(key):
            is_there = await self._has(key)
            if is_there:
                with suppress(FileNotFoundError):  # deleted meanwhile by somebody else
                    await obstore.delete_async(self._store, self._name(key))
            return is_there

    async def addresses(self, method: Method, keys: Sequence[str]) -> Sequence[str]:
        names = [self._name(key) for key in keys]
        if self._folder is not None:
            return [f"{self._folder.as_uri()}?object={quote(name, safe='')}" for name in names]
        with self._answers(f"{len(keys)} objects"):
            expires = timedelta(seconds=ADDRESS_LASTS_S)
            signed: Sequence[str] = await obstore.sign_async(self._store, method, names, expires)
            return signed

    async def verify(self) -> None:
        self._refuse_encryption(self._encryption)
        key = f"check/{os.urandom(8).hex()}"
        name = self._name(key)
        with reworded(self.place):
            await obstore.put_async(self._store, name, b"", mode="create", use_multipart=False)
            await obstore.get_async(self._store, name)
            await obstore.delete_async(self._store, name)
            if self._folder is None:
                await obstore.sign_async(self._store, "GET", [name], timedelta(seconds=ADDRESS_LASTS_S))

    def _refuse_encryption(self, names: Sequence[str]) -> None:
        """Refuses these variables. Signed addresses bind no headers, so that what workers write would lack them."""
        if names:
            hint = "let the bucket encrypt by default, and unset it here; commands that make backups may have it"
            raise UsageError(f"{self.place}: {names[0]} does not hold for what workers write there", hint=hint)

    async def _has(self, key: str) -> bool:
        try:
            await obstore.head_async(self._store, self._name(key))
        except FileNotFoundError:
            return False
        return True

    @contextmanager
    def _answers(self, key: str) -> Iterator[None]:
        """Raises the errors of the port. A refused request raises a retryable one: access may be granted later."""
        try:
            with reworded(self.place):
                yield
        except NotFound:
            raise BlobMissing(f"the object store has nothing under {key}") from None
        except UsageError as error:
            raise Unreachable(error.message, hint=error.hint) from None

    def _name(self, key: str) -> str:
        return f"{self._prefix}/{name_of(key)}".lstrip("/")


def name_of(key: str) -> str:
    """The name of the object with this key. The key may be any text; the name stays within the place."""
    return "/".join(_part(part) for part in key.split("/"))


def _part(text: str) -> str:
    part = quote(text, safe="").replace("%", "=")
    return part if part.strip(".") else part.replace(".", "=2E") or "="
