"""The objects of one run, by addresses that servers sign for the command (PROTOCOL §3 *Object keys*)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from noetl_stream.errors import BlobMissing, Forbidden, PayloadRefused, Unreachable
from noetl_stream.lru import LruCache
from noetl_stream.model.json import codec
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.blobs import ADDRESS_LASTS_S, BlobAccess, Method, ObjectsByAddress
from noetl_stream.protocol import subjects
from noetl_stream.protocol.object_addresses import AddressAnswer, AddressQuestion, addresses_in
from noetl_stream.sealing.data_references import DataReference, is_head, parts_of
from noetl_stream.sealing.keys import KeyRing
from noetl_stream.settings.places import IN_NATS
from noetl_stream.worker.waiting import Asker

AHEAD: Final = 32
"""The maximum number of parts in one question. To write, a question asks for as many as exist, plus one."""

UNUSED_S: Final = 120.0
"""The time before its expiry from which an address is no longer used, in seconds."""

_SLASHES_OF_A_PART: Final = 4


class AddressedBlobs:
    """:class:`~noetl_stream.ports.streams.blobs.BlobAccess` of one run, where the worker has no credentials.

    Args:
        ring: The keys of the command's execution.
        nats: The objects in NATS, one of the possible places.
    """

    def __init__(self, asker: Asker, ring: KeyRing, nats: BlobAccess, objects: ObjectsByAddress, clock: Clock) -> None:
        self._asker = asker
        self._ring = ring
        self._nats = nats
        self._objects = objects
        self._clock = clock
        self._files: dict[str, DataReference] = {}
        self._signed: LruCache[tuple[Method, str], tuple[float, list[str]]] = LruCache(8 * AHEAD)

    def will_read(self, file: DataReference) -> None:
        """Records the reference to a file or table whose parts are read next."""
        if (parts := parts_of(file.key)) is not None:
            self._files[parts.prefix] = DataReference(file.key, file.size, file.checksum, file.seal)

    async def put(self, key: str, data: bytes | memoryview) -> None:
        (address,) = await self._addresses("PUT", key)
        with self._dropped_if_refused("PUT", key):
            await (self._nats.put(key, data) if address == IN_NATS else self._objects.put(address, data))

    async def get(self, key: str) -> bytes:
        for address in await self._addresses("GET", key):
            with self._dropped_if_refused("GET", key), suppress(BlobMissing):
                found = await (self._nats.get(key) if address == IN_NATS else self._objects.get(address))
                if found is not None:
                    return found
        raise BlobMissing(f"the object store has nothing under {key}")

    @contextmanager
    def _dropped_if_refused(self, method: Method, key: str) -> Iterator[None]:
        """Drops a refused address, so that a retry asks for another. It or its signing key may have expired."""
        try:
            yield
        except Forbidden as refused:
            self._signed.drop((method, key))
            raise Unreachable(refused.message, hint=refused.hint) from None

    async def _addresses(self, method: Method, key: str) -> list[str]:
        """Returns the addresses of an object: cached ones, or new ones from a server.

        Raises:
            BlobMissing, Unreachable: a server refuses to sign an address to read or to write, respectively.
        """
        kept = self._signed.get((method, key))
        if kept is None or self._clock.monotonic_s() >= kept[0]:
            kept = await self._ask(method, key)
        return kept[1]

    async def _ask(self, method: Method, key: str) -> tuple[float, list[str]]:
        until_s = self._clock.monotonic_s() + ADDRESS_LASTS_S - UNUSED_S
        command = self._asker.command
        question = self._question_to_write(key) if method == "PUT" else self._question_to_read(key)
        body = await self._asker.ask(subjects.ASK_ADDRESSES, question)
        try:
            answer = codec.decode_as(AddressAnswer, body)
        except PayloadRefused:
            answer = AddressAnswer(refused="the answer cannot be read")
        signed = addresses_in(answer, command, self._ring) or {}
        for one, found in signed.items():
            self._signed.put((method, one), (until_s, list(found)))
        if key in signed:
            return until_s, list(signed[key])
        if answer.away:
            raise Unreachable(answer.away)
        error = Unreachable if method == "PUT" else BlobMissing
        raise error(f"a server signs no address of {key}: {answer.refused or 'the answer cannot be opened'}")

    def _question_to_write(self, key: str) -> AddressQuestion:
        prefix, _, number = key.rpartition("/")
        if key.count("/") < _SLASHES_OF_A_PART or is_head(key):
            return AddressQuestion(self._asker.command, writes=[key])
        first = int(number)
        following = range(first, first + min(first + 1, AHEAD))
        return AddressQuestion(self._asker.command, writes=[f"{prefix}/{one}" for one in following])

    def _question_to_read(self, key: str) -> AddressQuestion:
        prefix, _, number = key.rpartition("/")
        file = self._files.get(f"{prefix}/")
        parts = None if file is None else parts_of(file.key)
        if file is None or parts is None or parts.total is None:
            return AddressQuestion(self._asker.command, reads=[key])
        if is_head(key):
            return AddressQuestion(self._asker.command, reads=[key], files=[file])
        following = range(int(number), min(int(number) + AHEAD, parts.total))
        return AddressQuestion(self._asker.command, reads=[f"{prefix}/{one}" for one in following], files=[file])
