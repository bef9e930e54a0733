"""Results too large for an event: kept in the object store, read back when a template needs them (LANGUAGE §10)."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from noetl_stream.errors import BlobMissing, NoetlError, PayloadRefused
from noetl_stream.model import codec
from noetl_stream.model.ids import RunId
from noetl_stream.model.messages import StepCommand
from noetl_stream.model.outcome import Payload, Reference
from noetl_stream.ports import subjects
from noetl_stream.ports.blobs import Blobs
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.clock import Clock
from noetl_stream.worker.command.item_pages import Pages
from noetl_stream.worker.limits import MAX_LOADED_BYTES, PREVIEW_CHARACTERS, REFERENCE_FIRST_BYTES
from noetl_stream.worker.waiting import ask, persist

_SHOWN_KEYS = 10


class ReferenceUnavailable(NoetlError):
    """A result kept by reference cannot be read back. ``kind`` is the error's kind as playbooks see it."""

    kind = "result_lost"


class TooMuchToRead(ReferenceUnavailable):
    """The results that a step reads are together more than a worker loads."""

    kind = "limit_exceeded"


class RunResults:
    """The object store as one run sees it.

    Attributes:
        loaded: Values read back so far, by the key of their reference. Templates read them from here.
        keeping: How many results are on their way into the store; such a run is not given up.
    """

    def __init__(
        self, blobs: Blobs, bus: Bus, clock: Clock, command: StepCommand, run: RunId, pages: Pages | None = None
    ) -> None:
        self.loaded: dict[str, Any] = {}
        self.keeping = 0
        self._blobs = blobs
        self._bus = bus
        self._clock = clock
        self._pages = pages or Pages()
        self._limit_bytes = command.limits.max_inline_bytes
        self._execution_id = command.execution_id
        self._run = run
        self._objects = 0
        self._loaded_bytes = 0

    def keep_references_first(self) -> None:
        """The playbook wants its results in the object store: only small ones stay inline (LANGUAGE §10)."""
        self._limit_bytes = min(self._limit_bytes, REFERENCE_FIRST_BYTES)

    async def keep(self, value: Any) -> Payload:
        """``value`` inline, or by a reference to an object that is stored when this returns.

        Raises:
            PayloadRefused: it is not JSON.
        """
        encoded = codec.encode(value)
        if len(encoded) <= self._limit_bytes:
            return Payload(msgspec.Raw(encoded))
        reference = await self.store(encoded)
        preview = encoded[: 4 * PREVIEW_CHARACTERS].decode(errors="ignore")[:PREVIEW_CHARACTERS]
        reference = msgspec.structs.replace(reference, schema_hint=_hint_of(value), preview=preview)
        return Payload(reference=reference)

    async def store(self, encoded: bytes) -> Reference:
        """What this JSON can be read by; it is stored when this returns."""
        run = self._run
        prefix = f"{self._execution_id}/{run.command_id}/{run.issue}.{run.num_delivered}.{run.nonce}"
        key, self._objects = f"{prefix}/{self._objects}", self._objects + 1
        self.keeping += 1
        try:
            await persist(self._clock, f"store result {key}", lambda: self._blobs.put(key, encoded))
        finally:
            self.keeping -= 1
        return Reference("nats", key, len(encoded), f"sha256:{sha256(encoded).hexdigest()}")

    async def page(self, reference: Reference) -> list[Any]:
        """The page of a loop's items that ``reference`` leads to.

        Raises:
            ReferenceUnavailable: it is not there, or damaged.
        """
        page: list[Any] = await self._pages.page(reference, self._read)
        return page

    async def load(self, reference: Reference) -> None:
        """Reads the value of ``reference`` into :attr:`loaded`.

        Raises:
            ReferenceUnavailable: it is not there, damaged, or more than a run may read.
        """
        self._loaded_bytes += reference.size
        if self._loaded_bytes > MAX_LOADED_BYTES:
            raise TooMuchToRead(
                f"the results this step reads are larger than {MAX_LOADED_BYTES} bytes, with {reference.key}",
                hint="return the part that is needed from a task",
            )
        self.loaded[reference.key] = await self._read(reference)

    async def _read(self, reference: Reference) -> Any:
        place = reference if reference.store == "nats" else await self._gathered(reference)
        try:
            data = await persist(self._clock, f"read result {place.key}", lambda: self._blobs.get(place.key))
        except BlobMissing as error:
            raise ReferenceUnavailable(f"the result kept as {place.key} is lost: {error.message}") from error
        if place.checksum and place.checksum != f"sha256:{sha256(data).hexdigest()}":
            raise ReferenceUnavailable(f"the result kept as {place.key} is damaged: its checksum differs")
        return codec.decode_json(data)

    async def _gathered(self, reference: Reference) -> Reference:
        """A server gathers a loop's results into an object and says where it is."""
        answer = await ask(self._bus, self._clock, f"{subjects.ASK_RESULT}.{reference.key}")
        try:
            named = codec.decode_json(answer)
        except PayloadRefused:
            named = None
        if not isinstance(named, Mapping) or not isinstance(named.get("key"), str):
            why = named.get("lost") if isinstance(named, Mapping) else "the answer cannot be read"
            raise ReferenceUnavailable(f"the loop result {reference.key} is lost: {why}")
        return Reference("nats", named["key"], reference.size, str(named.get("checksum", "")))


def _hint_of(value: Any) -> str:
    if isinstance(value, Mapping):
        keys = list(value)
        more = ", …" if len(keys) > _SHOWN_KEYS else ""
        return f"object of {', '.join(map(str, keys[:_SHOWN_KEYS]))}{more}"
    if isinstance(value, list | tuple):
        return f"array of {len(value)}"
    return "string" if isinstance(value, str) else type(value).__name__
