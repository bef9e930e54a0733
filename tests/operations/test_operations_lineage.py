"""Which task has read and written which files: shown page by page, and deleted with the execution."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from operations_stage import BY, OperationsStage

from noetl_stream.errors import BlobMissing
from noetl_stream.sealing.data_references import DataReference
from noetl_stream.tools.contract import ToolCall, ToolResult
from noetl_testkit.simulation.work import WorkTool, playbook, then, work

COPY = playbook(
    "copies",
    [
        {"step": "fetch", "tool": {"name": "get", **work({"name": "a.csv"})}, "next": then("copy")},
        {
            "step": "copy",
            "loop": {"in": ["b.csv", "c.csv"], "iterator": "name"},
            "tool": {"name": "put", **work({"name": "{{ iter.name }}", "from": "{{ fetch.file }}"})},
        },
    ],
)


class Copies:
    """A tool of kind ``work`` that writes a file, of one that it is given or of some text. ``more`` makes its result
    larger than an event.
    """

    spec = WorkTool.spec

    def __init__(self, more: str = "") -> None:
        self.more = more

    async def run(self, call: ToolCall) -> ToolResult:
        given = call.inputs["value"]
        source = call.data.reference(given.get("from"))

        async def text() -> AsyncIterator[bytes]:
            yield b"1,Ada\n"

        if source is None:
            call.data.note("https://example.com:443", "/a.csv", written=False)
        pieces = text() if source is None else call.data.read(source)
        return ToolResult({"file": await call.data.save(pieces, name=given["name"]), "more": self.more})

    async def close(self) -> None:
        """Holds nothing."""


async def copied(stage: OperationsStage, more: str = "") -> str:
    stage.begin_worker("worker", Copies(more))
    found = await stage.run(COPY)
    assert found.status == "completed", found.error
    return found.execution_id


def names(references: list[DataReference]) -> list[str]:
    return [one.name for one in references]


async def test_each_attempt_says_what_it_has_read_and_written(without_worker: OperationsStage) -> None:
    execution_id = await copied(without_worker)
    uses = (await without_worker.views.lineage(execution_id, 10, None)).items
    assert [(one.step, one.task, one.iteration, names(one.read), names(one.written)) for one in uses] == [
        ("fetch", "get", [], [], ["a.csv"]),
        ("copy", "put", [0], ["a.csv"], ["b.csv"]),
        ("copy", "put", [1], ["a.csv"], ["c.csv"]),
    ]
    assert [[one.shown for one in use.datasets] for use in uses] == [["https://example.com:443/a.csv"], [], []]
    assert {one.seal for use in uses for one in (*use.read, *use.written)} == {""}


async def test_pages_of_lineage_follow_one_another(without_worker: OperationsStage) -> None:
    execution_id = await copied(without_worker)
    first = await without_worker.views.lineage(execution_id, 2, None)
    rest = await without_worker.views.lineage(execution_id, 2, first.next)
    assert [len(first.items), len(rest.items), rest.next] == [2, 1, None]


@pytest.mark.parametrize("more", ["", "x" * 100_000])
async def test_a_deleted_execution_leaves_no_file_whatever_the_size_of_its_results(
    without_worker: OperationsStage, more: str
) -> None:
    stage = without_worker
    execution_id = await copied(stage, more)
    uses = (await stage.views.lineage(execution_id, 10, None)).items
    parts = [one.key.replace("parts-1", "0") for use in uses for one in use.written]
    assert all([await is_there(stage, key) for key in parts]) and len(parts) == 3
    await stage.executions.delete(execution_id, BY)
    assert not any([await is_there(stage, key) for key in parts])


async def is_there(stage: OperationsStage, key: str) -> Any:
    try:
        return await stage.broker.blobs.get(key)
    except BlobMissing:
        return None
