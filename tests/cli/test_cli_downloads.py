"""``execution result --to``: what becomes of the names of files."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from noetl_stream.cli.execution.downloads import download
from noetl_stream.errors import NotFound, UsageError
from noetl_stream.sealing.data_references import Column, DataReference

CONTENT = b"n\n1\n"


def reference(number: int, name: str = "", **more: Any) -> Any:
    checksum = f"sha256:{sha256(CONTENT).hexdigest()}"
    made = DataReference(f"e/c/r/{number}/parts-1", len(CONTENT), checksum, "seal", name, **more)
    return msgspec.json.decode(msgspec.json.encode(made))


def session(result: Any, content: bytes = CONTENT) -> Any:
    async def result_of(execution_id: str) -> Any:
        return SimpleNamespace(result=result)

    async def file(execution_id: str, found: DataReference) -> AsyncIterator[bytes]:
        async def pieces() -> AsyncIterator[bytes]:
            yield content

        return pieces()

    return SimpleNamespace(operations=SimpleNamespace(executions=SimpleNamespace(result=result_of, file=file)))


def inside(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def test_no_name_leads_out_of_the_folder_or_hides_another(tmp_path: Path) -> None:
    names = ["../../etc/passwd", "a.csv", "A.CSV", "..", "result.json", "x" * 300 + ".csv", "nul\0\n", "a.csv"]
    result = [reference(number, name) for number, name in enumerate(names)]
    result += [reference(20, columns=(Column("n", "BIGINT"),), rows=1), result[1]]
    await download(session(result), "e", tmp_path / "to", force=False)
    expected = {"result.json", "_.._etc_passwd", "a.csv", "A-2.CSV", "file", "result-2.json", "nul__", "a-3.csv"}
    assert inside(tmp_path / "to") == expected | {"x" * 200 + ".csv", "table.parquet"}
    assert json.loads((tmp_path / "to" / "result.json").read_bytes()) == result
    assert inside(tmp_path) == {"to"}


async def test_an_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    folder = tmp_path / "to"
    folder.mkdir()
    (folder / "a.csv").symlink_to(elsewhere)
    with pytest.raises(UsageError, match=r"these files exist: .*a\.csv"):
        await download(session(reference(0, "a.csv")), "e", folder, force=False)
    assert inside(folder) == {"a.csv"}
    await download(session(reference(0, "a.csv")), "e", folder, force=True)
    assert ((folder / "a.csv").read_bytes(), elsewhere.read_text()) == (CONTENT, "mine")


async def test_a_damaged_file_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"the file a\.csv is damaged"):
        await download(session(reference(0, "a.csv"), b"other"), "e", tmp_path, force=False)
    assert inside(tmp_path) == {"result.json"}
