"""A result in pieces is the document that a whole one would be, without secrets, and without assembling it."""

from __future__ import annotations

from typing import Any

import pytest
from operations_stage import BY, OperationsStage
from shown_stage import SECRET, Showing

from noetl_stream.errors import Conflict, NotFound, PayloadRefused
from noetl_stream.model.json import codec
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.model.outcome import Payload, Reference
from noetl_stream.operations.access import DirectCredentials
from noetl_stream.operations.executions.reading import documents
from noetl_stream.operations.executions.reading.documents import result_pieces
from noetl_stream.ports.operations.executions import Start
from noetl_stream.ports.streams.blobs import checksum_of
from noetl_stream.storage.loop_results import PIECE_BYTES
from noetl_testkit.conformance.store_rows import execution_row
from noetl_testkit.keys import OBJECT_KEYS
from noetl_testkit.simulation.work import playbook, work

ITEM = 20_000
LOOP = {"in": "{{ range(60) | list }}", "iterator": "n", "spec": {"mode": "parallel"}}


def looping(text: str = "x") -> str:
    return playbook("loops", [{"step": "all", "loop": LOOP, "tool": work(f"{{{{ '{text}' * {ITEM} ~ iter.n }}}}")}])


BOOKS = {
    "inline": playbook("inline", [{"step": "one", "tool": work({"n": [1, "é"]})}]),
    "an object": playbook("object", [{"step": "one", "tool": work("x" * (DEFAULT_LIMITS.max_inline_bytes + 1))}]),
    "a loop": looping(),
    "an error": playbook("fails", [{"step": "one", "tool": work(1, failures=9)}]),
}


async def pieces_of(executions: Any, execution_id: str) -> list[bytes]:
    return [piece async for piece in await executions.result_pieces(execution_id)]


@pytest.mark.parametrize("book", BOOKS.values(), ids=BOOKS)
async def test_pieces_are_the_whole_document(stage: OperationsStage, book: str) -> None:
    ended = await stage.run(book)
    found = b"".join(await pieces_of(stage.executions, ended.execution_id))
    assert found == codec.encode(await stage.executions.result(ended.execution_id))


async def test_a_result_over_the_bound_stays_a_reference(
    stage: OperationsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noetl_stream.operations.executions.reading.documents.MAX_LOADED_BYTES", ITEM)
    monkeypatch.setattr(documents, "MAX_LOADED_BYTES", ITEM)
    for name in ("an object", "a loop"):
        ended = await stage.run(BOOKS[name])
        found = b"".join(await pieces_of(stage.executions, ended.execution_id))
        assert b'"$reference"' in found
        assert found == codec.encode(await stage.executions.result(ended.execution_id))


async def test_a_long_loop_comes_in_several_pieces_and_its_secrets_in_none(stage: OperationsStage) -> None:
    showing = Showing(stage)
    await DirectCredentials(showing.credentials, showing.keys).put("pg", SECRET, "ann")
    ended = await stage.run(looping(f"it is {SECRET}, "[:20]).replace(f"* {ITEM}", f"* {ITEM // 20}"))
    shown = await pieces_of(showing.executions, ended.execution_id)
    assert len(shown) > 1 and max(map(len, shown)) < 2 * PIECE_BYTES
    assert SECRET.encode() in b"".join(shown)
    await showing.give(ended.execution_id)
    given = b"".join(await pieces_of(showing.executions, ended.execution_id))
    assert SECRET.encode() not in given and b"it is ***" in given
    assert codec.decode_json(given) == codec.decode_json(
        codec.encode(await showing.executions.result(ended.execution_id))
    )


async def test_a_number_that_is_a_secret_is_hidden_as_the_result_of_an_iteration(stage: OperationsStage) -> None:
    showing = Showing(stage)
    await DirectCredentials(showing.credentials, showing.keys).put("pg", "12345678", "ann")
    tool = work(f"{{{{ 12345678 if iter.n == 1 else 'x' * {ITEM} }}}}")
    ended = await stage.run(playbook("loops", [{"step": "all", "loop": LOOP, "tool": tool}]))
    await showing.give(ended.execution_id)
    given = codec.decode_json(b"".join(await pieces_of(showing.executions, ended.execution_id)))
    assert given["result"][:2] == ["x" * ITEM, "***"]


async def test_a_lost_or_unfinished_result_is_reported_before_the_first_piece(
    stage: OperationsStage,
) -> None:
    ended = await stage.run(BOOKS["an object"])
    stage.broker.blobs.lose(ended.result["$reference"]["key"])
    with pytest.raises(NotFound, match=r"the result of execution .* is lost"):
        await pieces_of(stage.executions, ended.execution_id)
    waits = playbook("waits", [{"step": "ear", "tool": {"kind": "wait", "signal": "go", "timeout_s": 60}}])
    started = await stage.executions.start(Start(playbook=waits), BY)
    with pytest.raises(Conflict, match="has not ended"):
        await stage.executions.result_pieces(started.execution_id)


async def test_bytes_that_are_no_json_value_are_no_part_of_the_document(stage: OperationsStage) -> None:
    planted = b'1,"status":"completed","result":2'
    payload = Payload(reference=Reference("nats", "planted", len(planted), checksum_of(planted)))
    row = execution_row("a", status="failed", finished_ms=1, result=codec.encode(payload))
    await stage.broker.blobs.put("planted", planted)
    with pytest.raises(PayloadRefused):
        [piece async for piece in result_pieces(row, stage.store, stage.broker.blobs, OBJECT_KEYS, None)]
