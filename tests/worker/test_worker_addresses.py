"""A worker whose objects are in a place that it has no key of: it asks a server for addresses, and has nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest
from data_tasks import LONG, WRITE_THEN_READ, outcomes, read, value, writing
from worker_stage import EXECUTION, POOL, Stage

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.files.object_places import ObjectPlace
from noetl_stream.adapters.memory.broker import MemoryBlobs
from noetl_stream.adapters.memory.bus import Line
from noetl_stream.adapters.object_addresses import AddressedObjects
from noetl_stream.errors import Forbidden, Unreachable
from noetl_stream.model.events import TaskProcessed
from noetl_stream.model.json import codec
from noetl_stream.model.messages import ShownCommand
from noetl_stream.model.outcome import Outcome
from noetl_stream.ports.streams.blobs import ADDRESS_LASTS_S
from noetl_stream.protocol import subjects
from noetl_stream.protocol.object_addresses import AddressAnswer, AddressQuestion, sealed_answer
from noetl_stream.server.answers.capabilities import Capabilities
from noetl_stream.storage.data_parts import delete_object
from noetl_stream.storage.object_places import PlacedBlobs
from noetl_stream.worker.command.addressed_blobs import UNUSED_S, AddressedBlobs
from noetl_stream.worker.waiting import Asker
from noetl_testkit.keys import ACCESS_KEYS, OBJECT_KEYS, SERVER_KEYS
from noetl_testkit.waiting import TIMEOUT_S


class Addressed(Stage):
    """A stage with a server that signs addresses in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.capabilities = Capabilities(SERVER_KEYS, ACCESS_KEYS, by_address=True)
        self.folder = folder
        self.places = PlacedBlobs(self.broker.blobs, [ObjectPlace(folder), None])
        self.asked: list[AddressQuestion] = []
        self.refusal = ""
        self.objects = AddressedObjects()

    async def start(self, **changes: Any) -> Any:
        async def sign(_subject: str, body: bytes, reply: str) -> None:
            question = codec.decode_as(AddressQuestion, body)
            self.asked.append(question)
            ring = OBJECT_KEYS.ring(EXECUTION)
            assert not list(question.refused({EXECUTION}, ring))
            found = {
                **await self.places.addresses_to_read(question.reads),
                **await self.places.addresses_to_write(question.writes),
            }
            answer = AddressAnswer(refused=self.refusal) if self.refusal else sealed_answer(question, found, ring)
            self.broker.bus.send(reply, codec.encode(answer))

        await self.broker.bus.listen(f"{subjects.ASK_ADDRESSES}.{POOL}", sign)
        return await super().start(objects=self.objects, **changes)

    async def ran(self, write: Any, reader: Any = read) -> dict[str, Outcome]:
        self.puppet.acts = {"write": write, "read": reader}
        return await outcomes(self)


@pytest.fixture
async def addressed(tmp_path: Path) -> AsyncIterator[Addressed]:
    stage = Addressed(tmp_path / "objects")
    yield stage
    await stage.close()
    await stage.objects.close()


def stored(stage: Addressed) -> list[str]:
    return sorted(str(path.relative_to(stage.folder)) for path in stage.folder.rglob("*") if path.is_file())


async def test_files_are_written_and_read_by_addresses_that_are_asked_for_many_at_once(addressed: Addressed) -> None:
    found = await addressed.ran(writing(LONG))
    assert value(found["read"])["checksum"] == f"sha256:{sha256(LONG).hexdigest()}"
    assert [path.rpartition("/")[2] for path in stored(addressed)] == ["0", "1", "2"]
    numbers = [[key.rpartition("/")[2] for key in [*one.writes, *one.reads]] for one in addressed.asked]
    assert numbers == [["0"], ["1", "2"], ["0", "1", "2"]]
    assert [len(one.files) for one in addressed.asked] == [0, 0, 1]
    key = value(found["write"])["file"]["key"]
    await delete_object(addressed.places, key)
    assert stored(addressed) == []


async def test_large_results_are_in_the_first_place_too(addressed: Addressed) -> None:
    async def large(_call: Any) -> dict[str, Any]:
        return {"file": {"text": "x" * 200_000, "size": 200_000}}

    async def length(call: Any) -> int:
        return len(call.inputs["file"]["text"])

    assert value((await addressed.ran(large, length))["read"]) == 200_000
    assert len(stored(addressed)) == 1


async def test_an_object_in_nats_is_read_from_there(addressed: Addressed) -> None:
    former = addressed.places
    addressed.places = PlacedBlobs(addressed.broker.blobs, [None, ObjectPlace(addressed.folder)])

    async def moved_on(call: Any) -> Any:
        addressed.places = former
        return await read(call)

    found = await addressed.ran(writing(LONG), moved_on)
    assert value(found["read"])["opened"] == "all.bin"
    assert stored(addressed) == []


async def test_a_part_that_is_deleted_underneath_is_a_lost_file_by_name(addressed: Addressed) -> None:
    async def after_a_deletion(call: Any) -> Any:
        (addressed.folder / stored(addressed)[1]).unlink()
        return await read(call)

    error = (await addressed.ran(writing(LONG), after_a_deletion))["read"].error
    assert error is not None
    assert (error.kind, error.message.partition(" under ")[0]) == (
        "result_lost",
        "the file all.bin is lost: the object store has nothing",
    )


class Away(AddressedObjects):
    """Objects that are away until the test says that they are back."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.refused = 0

    async def put(self, address: str, data: bytes) -> None:
        self._check()
        await super().put(address, data)

    async def get(self, address: str) -> bytes | None:
        self._check()
        return await super().get(address)

    def _check(self) -> None:
        if self.is_away:
            self.refused += 1
            raise Unreachable("http://bucket: object storage does not answer")


@pytest.mark.parametrize("method", ["put", "get"])
async def test_a_bucket_that_is_away_is_a_wait_that_is_named(addressed: Addressed, method: str) -> None:
    addressed.objects = away = Away()
    away.is_away = method == "put"

    async def write(call: Any) -> Any:
        written = await writing(LONG)(call)
        away.is_away = method == "get"
        return written

    addressed.puppet.acts = {"write": write, "read": read}
    await addressed.start()
    await addressed.issue(addressed.command(addressed.plan(WRITE_THEN_READ)))
    await addressed.soon(lambda: away.refused)
    (presence,) = await addressed.presences()
    (running,) = presence.running
    said = running.waits_for if method == "put" else running.task_waits_for
    assert said.endswith(": http://bucket: object storage does not answer")
    away.is_away = False
    async with asyncio.timeout(TIMEOUT_S):
        while "step.done" not in addressed.names:
            await addressed.advance(1)
    assert {fact.outcome.status for fact in addressed.facts if isinstance(fact, TaskProcessed)} == {"ok"}


async def test_an_object_that_a_server_refuses_to_sign_is_lost_with_the_reason(addressed: Addressed) -> None:
    async def refused(call: Any) -> Any:
        addressed.refusal = "command c may not ask for the object o"
        return await read(call)

    error = (await addressed.ran(writing(LONG), refused))["read"].error
    assert error is not None and error.message.endswith(": command c may not ask for the object o")


class Signing:
    """A server that signs what it is asked for, and storage that refuses the first address of an object."""

    command = ShownCommand(EXECUTION, "steprun-1", "command-1", 1, "")

    def __init__(self, clock: ManualClock) -> None:
        self.asked: list[list[str]] = []
        self.used: list[str] = []
        self.refuses = False
        self.away = ""
        nats = MemoryBlobs(Line(clock))
        self.blobs = AddressedBlobs(cast(Asker, self), OBJECT_KEYS.ring(EXECUTION), nats, self, clock)

    async def ask(self, _subject: str, question: Any) -> bytes:
        if self.away:
            return codec.encode(AddressAnswer(away=self.away))
        self.asked.append([*question.reads, *question.writes])
        signed = {key: [f"{len(self.asked)}:{key}"] for key in self.asked[-1]}
        return codec.encode(sealed_answer(question, signed, OBJECT_KEYS.ring(EXECUTION)))

    async def put(self, address: str, _data: bytes) -> None:
        self.used.append(address)
        if self.refuses:
            raise Forbidden("http://bucket refuses an address that a server signed (403)")

    async def get(self, address: str) -> bytes | None:
        return b""


async def test_an_address_is_asked_for_again_before_it_ends_and_when_it_is_refused() -> None:
    clock = ManualClock()
    signing, prefix = Signing(clock), f"{EXECUTION}/command-1/1.1.n/0"
    for number in range(3):
        await signing.blobs.put(f"{prefix}/{number}", b"data")
    assert [len(keys) for keys in signing.asked] == [1, 2]
    clock.advance(ADDRESS_LASTS_S - UNUSED_S)
    await signing.blobs.put(f"{prefix}/2", b"data")
    signing.refuses = True
    with pytest.raises(Unreachable):
        await signing.blobs.put(f"{prefix}/2", b"data")
    signing.refuses = False
    await signing.blobs.put(f"{prefix}/2", b"data")
    assert signing.used[2:] == [f"2:{prefix}/2", f"3:{prefix}/2", f"3:{prefix}/2", f"4:{prefix}/2"]


async def test_a_server_that_cannot_sign_now_loses_nothing() -> None:
    signing = Signing(ManualClock())
    signing.away = "there are no credentials for s3://bucket"
    for use in (signing.blobs.put("execution-1/command-1/1.1.n/0", b"data"), signing.blobs.get("execution-1/run/loop")):
        with pytest.raises(Unreachable, match="no credentials"):
            await use
