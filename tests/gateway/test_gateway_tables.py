"""A stored table over HTTP: its columns, which values are in them, its first rows, in a bounded read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
from gateway_playbooks import LOOP
from gateway_stage import TOKEN, GatewayStage

from noetl_stream.adapters.gateway_client.connection import GatewayConnection
from noetl_stream.adapters.gateway_client.verbs import gateway_operations
from noetl_stream.errors import NotFound
from noetl_stream.model.secrets.credential import Redactor
from noetl_stream.operations.executions.reading import table_views
from noetl_stream.ports.operations.executions import Start
from noetl_stream.ports.operations.reading.table_views import (
    StoredTableDocument,
    TableColumnDocument,
    ValueCountDocument,
)
from noetl_stream.sealing import data_references
from noetl_stream.sealing.data_references import PARQUET, Column, DataReference, sealed_for
from noetl_stream.sealing.keys import KEY_BYTES
from noetl_stream.storage import data_parts
from noetl_stream.storage.data_parts import write_parts
from noetl_stream.storage.used_secrets import hidden
from noetl_testkit.keys import OBJECT_KEYS

ROWS = """
    select i::integer as "the id", (i % 3 = 0)::boolean as third, ('city ' || i % 4) as city, i / 8 as price,
           date '2026-01-01' + i::integer as day, case when i % 5 = 0 then null else i end as gap, [i, i] as pair,
           'infinity'::double as most, ('row ' || i)::varchar as unique_text
    from range({rows}) t(i)
"""


async def stored(
    stage: GatewayStage, folder: Path, query: str, more: str = "", **about: Any
) -> tuple[str, DataReference]:
    """An execution, and the reference of a table of these rows in it."""
    execution_id = (await stage.operations.executions.start(Start(playbook=LOOP), "test")).execution_id
    with duckdb.connect() as connection:
        connection.execute(f"copy ({query}) to '{folder}/table.parquet' (format parquet{more})")
        found = connection.execute(f"describe from '{folder}/table.parquet'").fetchall()
    content = (folder / "table.parquet").read_bytes()

    async def pieces() -> AsyncIterator[bytes]:
        yield content

    key = b"k" * KEY_BYTES
    written = await write_parts(pieces(), f"{execution_id}/c/1.1.n/0/", key, stage.broker.blobs.put)
    columns = tuple(Column(row[0], row[1]) for row in found)
    reference = DataReference(written.parts.key, written.size, written.checksum, media_type=PARQUET, columns=columns)
    return execution_id, sealed_for(msgspec.structs.replace(reference, **about), key, OBJECT_KEYS.ring(execution_id))


async def seen(
    stage: GatewayStage, execution_id: str, reference: DataReference, limit: int = 20
) -> StoredTableDocument:
    connection = GatewayConnection(stage.url, TOKEN, stage.clock)
    try:
        return await gateway_operations(connection).executions.table(execution_id, reference, limit)
    finally:
        await connection.close()


async def test_a_table_shows_its_columns_and_which_values_are_in_them(stage: GatewayStage, tmp_path: Path) -> None:
    execution_id, reference = await stored(stage, tmp_path, ROWS.format(rows=100), rows=100)
    found = await seen(stage, execution_id, reference, limit=2)
    assert (found.rows, found.rows_read, found.note, found.columns_left_out) == (100, 100, "", 0)
    columns = {one.column: one for one in found.columns}
    assert {name: (one.type, one.nulls, one.low, one.high) for name, one in columns.items() if name != "most"} == {
        "the id": ("INTEGER", 0, "0", "99"),
        "third": ("BOOLEAN", 0, "false", "true"),
        "city": ("VARCHAR", 0, "city 0", "city 3"),
        "price": ("DOUBLE", 0, "0.0", "12.375"),
        "day": ("DATE", 0, "2026-01-01", "2026-04-10"),
        "gap": ("BIGINT", 20, "1", "99"),
        "pair": ("BIGINT[]", 0, None, None),
        "unique_text": ("VARCHAR", 0, "row 0", "row 99"),
    }
    counts = {name: [(one.low, one.high, one.rows) for one in column.counts] for name, column in columns.items()}
    assert counts["the id"] == [(str(low), str(low + 5), 5) for low in range(0, 100, 5)]
    assert counts["third"] == [("false", "false", 66), ("true", "true", 34)]
    assert counts["city"] == [(f"city {number}", f"city {number}", 25) for number in range(4)]
    assert counts["day"][0] == ("2026-01-01", "2026-01-06", 5) and sum(rows for *_, rows in counts["day"]) == 100
    assert len(counts["price"]) == 20 and sum(rows for *_, rows in counts["price"]) == 100
    assert counts["pair"] == counts["most"] == counts["unique_text"] == []
    cells = ["1", "false", "city 1", "0.125", "2026-01-02", "1", "[1, 1]", "inf", "row 1"]
    assert (len(found.first_rows), found.first_rows[1]) == (2, cells)


async def test_of_a_large_table_the_footer_and_the_first_groups_of_rows_are_read(
    stage: GatewayStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (data_references, data_parts, table_views):
        monkeypatch.setattr(module, "PART_BYTES", 4096)
    monkeypatch.setattr(table_views, "SAMPLE_BYTES", 100_000)
    query = "select i as n, hash(i)::varchar as noise from range(40960) t(i)"
    execution_id, reference = await stored(stage, tmp_path, query, ", row_group_size 2048", rows=40_960)
    got = list[str]()
    get = stage.broker.blobs.get

    async def counted(key: str) -> bytes:
        got.append(key)
        return await get(key)

    monkeypatch.setattr(stage.broker.blobs, "get", counted)
    found = await seen(stage, execution_id, reference)
    assert len(got) == len(set(got)) < 40 < reference.size // 4096
    assert 0 < found.rows_read < found.rows == 40_960
    assert found.note == f"values are counted in the first {found.rows_read:,} of 40,960 rows"
    number, noise = found.columns
    assert (number.low, number.high, number.nulls, number.whole) == ("0", "40959", 0, True)
    assert sum(one.rows for one in number.counts) == found.rows_read
    assert found.first_rows[3][0] == "3" and len(found.first_rows) == 20 and noise.high is not None

    part = msgspec.structs.replace(reference, first=30_000, rows=10)
    found = await seen(stage, execution_id, part)
    assert (found.rows, found.rows_read, found.note) == (10, 10, "")
    assert [row[0] for row in found.first_rows] == [str(number) for number in range(30_000, 30_010)]
    assert (found.columns[0].low, found.columns[0].high, found.columns[0].whole) == ("30000", "30009", False)


@pytest.mark.parametrize(
    "text",
    [
        b"PAR1",
        b"no table at all, but a text",
        b"\xff\xff\xff\x00PAR1",
        b"PAR1" + b"no footer!" + (10).to_bytes(4, "little") + b"PAR1",
    ],
)
async def test_a_result_that_is_no_table_is_reported_as_such(stage: GatewayStage, text: bytes) -> None:
    execution_id = (await stage.operations.executions.start(Start(playbook=LOOP), "test")).execution_id

    async def pieces() -> AsyncIterator[bytes]:
        yield text

    key = b"k" * KEY_BYTES
    written = await write_parts(pieces(), f"{execution_id}/c/1.1.n/0/", key, stage.broker.blobs.put)
    reference = DataReference(written.parts.key, written.size, written.checksum)
    with pytest.raises(NotFound, match=r"is not a (readable )?table"):
        await seen(stage, execution_id, sealed_for(reference, key, OBJECT_KEYS.ring(execution_id)))
    with pytest.raises(NotFound, match="opens nothing"):
        await seen(stage, execution_id, reference)


def test_secrets_given_to_an_execution_are_hidden_in_names_and_values() -> None:
    redactor = Redactor()
    redactor.learn_texts(["s3cret-value"])
    column = TableColumnDocument(
        "of s3cret-value", "VARCHAR", 0, "s3cret-value", None, False, [ValueCountDocument("s3cret-value", "b", 1)]
    )
    shown = hidden(redactor, StoredTableDocument("e", 1, 1, [column], 0, [["x s3cret-value", None]], ""))
    assert "s3cret" not in str(shown) and str(shown).count("***") == 4
