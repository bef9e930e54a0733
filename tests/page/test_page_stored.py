"""Files and tables on the page: what is in them, without running any of it, and which task has made which of which."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import duckdb
import msgspec
from page_browser import expect, needs_browser, visiting
from page_stage import EVIL, Shown

from noetl_stream.ports.operations.executions import RequestIds, Start
from noetl_stream.sealing.data_references import PARQUET, Column, DataReference, sealed_for
from noetl_stream.sealing.keys import KEY_BYTES
from noetl_stream.storage.data_parts import write_parts
from noetl_testkit.keys import OBJECT_KEYS

pytestmark = needs_browser

EXECUTION = "0192f0c1-2345-7abc-8def-0000000000aa"
KEPT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: kept, path: team/kept}
executor: {spec: {result: "{{ workload }}"}}
workflow: [{step: only, tool: {kind: noop}}]
"""
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SVG = f"<svg xmlns='http://www.w3.org/2000/svg' onload='window.evil=1'><script>window.evil=1</script></svg> {EVIL}"
LINEAGE = [
    {
        "position": 5,
        "at": "2026-11-30T10:00:00.000+00:00",
        "step_run_id": "r",
        "iteration": [],
        "attempt": 1,
        "step": step,
        "task": task,
        "read": read,
        "written": written,
    }
    for step, task, read, written in (
        ("fetch", "fetch", [], [{"key": "1", "size": 9, "checksum": "", "name": "orders.csv"}]),
        (
            "load",
            "csv",
            [{"key": "1", "size": 9, "checksum": "", "name": "orders.csv"}],
            [{"key": "2", "size": 9, "checksum": "", "columns": [{"name": "id", "type": "BIGINT"}], "rows": 5}],
        ),
    )
]


async def keep(shown: Shown, folder: Path) -> None:
    """An execution that has returned a table, a picture, a text, JSON, and a text that would like to run."""
    with duckdb.connect() as connection:
        rows = "select i as id, 'city ' || i % 4 as city, i / 8 as price from range(1000) t(i)"
        connection.execute(f"copy ({rows}) to '{folder}/table.parquet' (format parquet)")
    columns = (Column("id", "BIGINT"), Column("city", "VARCHAR"), Column("price", "DOUBLE"))
    table = (folder / "table.parquet").read_bytes()
    made = {
        "table": await kept(shown, 0, table, media_type=PARQUET, columns=columns, rows=1000),
        "picture": await kept(shown, 1, PIXEL, name="pixel.bin"),
        "evil": await kept(shown, 2, SVG.encode(), name="evil.svg"),
        "json": await kept(shown, 3, b'{"answer": 42}', name="answer.json"),
        "long": await kept(shown, 4, b"a line\n" * 20_000, name="long.txt"),
        "binary": await kept(shown, 5, bytes(range(256)), name="blob.bin"),
    }
    wanted = Start(playbook=KEPT, workload=made)
    await shown.stage.operations.executions.start(wanted, "test", RequestIds(EXECUTION, "kept-request"))
    await shown.stage.operations.executions.wait(EXECUTION, 60)


async def kept(shown: Shown, number: int, content: bytes, **about: Any) -> Any:
    async def pieces() -> AsyncIterator[bytes]:
        yield content

    key = b"k" * KEY_BYTES
    written = await write_parts(pieces(), f"{EXECUTION}/c/1.1.n/{number}/", key, shown.stage.broker.blobs.put)
    reference = DataReference(written.parts.key, written.size, written.checksum, **about)
    return msgspec.to_builtins(sealed_for(reference, key, OBJECT_KEYS.ring(EXECUTION)))


async def test_files_and_tables_are_looked_into_and_nothing_in_them_runs(shown: Shown, tmp_path: Path) -> None:
    await keep(shown, tmp_path)
    async with visiting(width=390, height=844) as visit:
        page = visit.page
        await page.route("**/lineage?*", lambda route: route.fulfill(json={"items": LINEAGE, "next": None}))
        await shown.sign_in(visit, f"/executions/{EXECUTION}/result")
        result = page.get_by_role("region", name="Result", exact=True)
        looks = result.get_by_role("button", name="Look")
        await looks.first.wait_for()
        while await looks.count():
            await looks.first.click()
        columns = result.get_by_role("table", name="Columns")
        city = columns.get_by_role("row").filter(has_text="city 0")
        await expect(city.get_by_role("cell").nth(1)).to_have_text("VARCHAR")
        await expect(city.get_by_role("img")).to_have_attribute(
            "aria-label", "city: city 0: 250, city 1: 250, city 2: 250, city 3: 250"
        )
        await expect(columns.get_by_role("img", name="id: 0 – 50: 50")).to_be_visible()
        await expect(result.get_by_role("table", name="First rows").get_by_role("row")).to_have_count(21)
        await expect(result.get_by_text("The first 20 of 1,000 rows.")).to_be_visible()
        picture = result.get_by_role("img", name="pixel.bin")
        assert await picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1
        await expect(result.get_by_role("region", name="evil.svg")).to_have_text(SVG)
        await expect(result.get_by_text("The first 64 KiB.")).to_be_visible()
        await expect(result.get_by_text("It is neither a text nor a picture that can be shown here.")).to_be_visible()
        await expect(result.get_by_text("42")).to_be_visible()
        assert await page.evaluate("window.evil") is None
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390
        await result.get_by_role("link", name="Lineage").first.click()
        tasks = page.get_by_role("table", name="Tasks")
        await expect(tasks.get_by_role("row").nth(2)).to_have_text(cells_of("load.csv", "1", "orders.csv", "table"))
        graph = page.get_by_role("region", name="Graph")
        await expect(graph.get_by_role("img", name="table: table. 5 rows. id BIGINT")).to_be_visible()
        assert visit.complaints == []


def cells_of(*cells: str) -> Any:
    """Cells of a row, whatever stands between them."""
    return re.compile(r"\s*".join(map(re.escape, cells)))
