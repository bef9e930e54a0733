"""Files that tasks write and read by reference, through a worker's object store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import pytest
from data_tasks import LONG, WRITE_THEN_READ, outcomes, pieces, ran, value, writing
from msgspec.structs import replace
from worker_stage import EXECUTION, Stage

from noetl_stream.errors import BlobMissing
from noetl_stream.model.events import Fact, TaskHeartbeat, TaskProcessed
from noetl_stream.model.json import codec
from noetl_stream.model.limits import Limits
from noetl_stream.model.outcome import Outcome, Payload, Reference, StepValue
from noetl_stream.ports.stores.store import StoredEvent
from noetl_stream.sealing.data_references import PART_BYTES, DataReference, head_key, read_reference
from noetl_stream.storage.data_parts import delete_object
from noetl_stream.storage.deletion import keys_of
from noetl_stream.tools.contract import ToolCall, ToolFailure
from noetl_stream.worker.command.data import MAX_WRITTEN


@pytest.fixture
async def following(stage: Stage) -> AsyncIterator[Stage]:
    """A stage over the objects of the other one."""
    made = Stage()
    made.broker.blobs = stage.broker.blobs
    yield made
    await made.close()


def answering(file: dict[str, Any]) -> Any:
    async def answer(call: ToolCall) -> dict[str, Any]:
        return {"file": file}

    return answer


async def test_a_file_is_written_in_parts_and_read_back(stage: Stage) -> None:
    found = await ran(stage, writing(LONG))
    file = value(found["write"])["file"]
    checksum = f"sha256:{sha256(LONG).hexdigest()}"
    about = {"name": "all.bin", "media_type": "application/octet-stream", "size": len(LONG), "checksum": checksum}
    assert {name: file[name] for name in about} == about
    assert value(found["read"]) == {"opened": "all.bin", "checksum": checksum, "longest": PART_BYTES}
    assert stage.puppet.calls[-1].inputs["size"] == len(LONG)
    assert found["write"].stored_bytes > len(LONG)
    described = replace(call_reference(file), seal="")
    assert (found["write"].written, found["read"].read) == ((described,), (described,))


async def test_a_task_that_finds_a_table_on_the_disk_is_its_reader_too(stage: Stage) -> None:
    async def begin(call: ToolCall) -> dict[str, Any]:
        reference = call.data.reference(call.inputs["file"])
        assert reference is not None
        call.data.read(reference)
        return {}

    stage.puppet.acts = {"write": writing(LONG), "read": begin}
    found = await outcomes(stage)
    assert found["read"].read == found["write"].written


async def test_an_empty_file_has_no_parts(stage: Stage) -> None:
    found = await ran(stage, writing(b""))
    assert value(found["read"])["checksum"] == f"sha256:{sha256(b'').hexdigest()}"


@pytest.mark.parametrize("changed", ["key", "size", "checksum", "seal"])
async def test_a_value_that_looks_like_a_reference_stays_data(stage: Stage, following: Stage, changed: str) -> None:
    real = value((await ran(stage, writing(b"secret")))["write"])["file"]
    other = {"key": real["key"].replace("/0/", "/7/"), "size": 5, "checksum": "sha256:0", "seal": "AAAA"}
    made_up = {**real, changed: other[changed]}
    assert read_reference(made_up) is not None
    assert value((await ran(following, answering(made_up)))["read"]) == {"opened": None}


@pytest.mark.parametrize("known", [False, True])
async def test_a_reference_of_another_execution_stays_data_even_if_its_key_is_given(
    stage: Stage, following: Stage, known: bool
) -> None:
    real = value((await ran(stage, writing(b"secret")))["write"])["file"]
    result = Payload(reference=Reference("nats", f"{EXECUTION}/c/1.1.n/9", 2))
    steps = {"called": StepValue(Outcome("ok", result))} if known else {}
    found = await ran(following, answering(real), execution_id="execution-2", steps=steps)
    assert value(found["read"]) == {"opened": None}


@pytest.mark.parametrize("number", [0, 2])
async def test_a_lost_part_is_a_lost_result(stage: Stage, following: Stage, number: int) -> None:
    file = value((await ran(stage, writing(LONG)))["write"])["file"]
    await stage.broker.blobs.delete(f"{file['key'].rpartition('/')[0]}/{number}")
    error = (await ran(following, answering(file)))["read"].error
    assert error is not None
    assert error.kind == "result_lost"
    assert error.message.startswith("the file all.bin is lost: the object store has nothing under ")


async def test_a_damaged_part_is_a_lost_result(stage: Stage, following: Stage) -> None:
    file = value((await ran(stage, writing(b"whole")))["write"])["file"]
    key = f"{file['key'].rpartition('/')[0]}/0"
    stored = await stage.broker.blobs.get(key)
    await stage.broker.blobs.delete(key)
    await stage.broker.blobs.put(key, stored[:-1] + bytes([stored[-1] ^ 1]))
    error = (await ran(following, answering(file)))["read"].error
    assert error is not None
    assert error.message.endswith("was modified in the store")


async def test_a_file_beyond_the_bound_fails_its_task_and_is_counted(stage: Stage) -> None:
    found = await ran(stage, writing(LONG), limits=Limits(max_stored_bytes=2 * PART_BYTES + 1_000))
    error = found["write"].error
    assert error is not None
    assert error.kind == "limit_exceeded"
    assert 2 * PART_BYTES < found["write"].stored_bytes < len(LONG)


async def test_objects_of_an_interrupted_task_are_deleted_with_its_execution(stage: Stage) -> None:
    async def write(call: ToolCall) -> dict[str, Any]:
        return {"file": await call.data.save(pieces(2 * LONG, then=ToolFailure.of("connection", "broke off")))}

    await ran(stage, write)
    heartbeat = next(fact for fact in stage.facts if isinstance(fact, TaskHeartbeat))
    assert (await parts_left(stage, heartbeat))[:2] == [True, True]
    for key in keys_of(EXECUTION, [journal_entry(heartbeat)]):
        await delete_object(stage.broker.blobs, key)
    assert await parts_left(stage, heartbeat) == [False, False, False]


async def test_a_whole_file_is_deleted_with_its_execution(stage: Stage) -> None:
    await ran(stage, writing(LONG))
    processed = next(fact for fact in stage.facts if isinstance(fact, TaskProcessed))
    heartbeat = next(fact for fact in stage.facts if isinstance(fact, TaskHeartbeat))
    assert await parts_left(stage, heartbeat) == [True, True, True]
    for key in keys_of(EXECUTION, [journal_entry(processed)]):
        await delete_object(stage.broker.blobs, key)
    assert await parts_left(stage, heartbeat) == [False, False, False]


async def test_the_first_rows_of_a_table_are_read_by_templates_without_secrets_and_deleted_with_it(
    stage: Stage,
) -> None:
    rows = [{"id": number, "text": "x" * 100} for number in range(50)]

    async def write(call: ToolCall) -> dict[str, Any]:
        return {"file": await call.data.save(pieces(b"parquet"), columns=[], rows=50, head=rows)}

    stage.puppet.acts = {"write": write}
    await stage.start()
    plan = stage.plan(WRITE_THEN_READ.replace('"{{ write.file }}"', '"{{ write.file | head(20) }}"'))
    await stage.issue(stage.command(plan))
    await stage.soon(lambda: "step.done" in stage.names)
    assert stage.puppet.calls[-1].inputs["file"] == rows[:20]
    processed = next(fact for fact in stage.facts if isinstance(fact, TaskProcessed))
    [written] = processed.outcome.written
    assert await stage.broker.blobs.get(head_key(written.key))
    for key in keys_of(EXECUTION, [journal_entry(processed)]):
        await delete_object(stage.broker.blobs, key)
    with pytest.raises(BlobMissing):
        await stage.broker.blobs.get(head_key(written.key))


@pytest.mark.parametrize("forged", [True, False])
async def test_the_first_rows_of_an_invalid_or_deleted_table_are_lost(
    stage: Stage, following: Stage, forged: bool
) -> None:
    async def write(call: ToolCall) -> dict[str, Any]:
        return {"file": await call.data.save(pieces(b"parquet"), columns=[], rows=1, head=[{"id": 1}])}

    real = value((await ran(stage, write))["write"])["file"]
    if forged:
        real |= {"seal": "AAAA"}
    else:
        await stage.broker.blobs.delete(head_key(real["key"]))
    following.puppet.acts = {"write": answering(real)}
    await following.start()
    plan = following.plan(WRITE_THEN_READ.replace('"{{ write.file }}"', '"{{ write.file | head(1) }}"'))
    await following.issue(following.command(plan))
    await following.soon(lambda: "step.failed" in following.names)
    error = [fact.outcome.error for fact in following.facts if isinstance(fact, TaskProcessed)][-1]
    assert error is not None and error.kind == "result_lost"
    said = "it is not a table of this execution" if forged else "the object store has nothing under"
    assert f"the first rows of the table are lost: {said}" in error.message


def call_reference(file: dict[str, Any]) -> DataReference:
    reference = read_reference(file)
    assert reference is not None
    return reference


async def test_a_task_writes_so_many_files_at_most(stage: Stage) -> None:
    async def write(call: ToolCall) -> list[Any]:
        return [await call.data.save(pieces(b""), name=f"{number}") for number in range(MAX_WRITTEN + 1)]

    error = (await ran(stage, write))["write"].error
    assert error is not None
    assert (error.kind, error.message[:34]) == ("limit_exceeded", "a task writes at most 1,000 files ")


def journal_entry(fact: Fact) -> StoredEvent:
    return StoredEvent(1, fact.event_name(), "worker", 0, None, None, None, codec.encode(fact))


async def parts_left(stage: Stage, heartbeat: TaskHeartbeat) -> list[bool]:
    async def is_there(key: str) -> bool:
        try:
            await stage.broker.blobs.get(key)
        except BlobMissing:
            return False
        return True

    return [await is_there(f"{heartbeat.key.removesuffix('parts')}{number}") for number in range(3)]
