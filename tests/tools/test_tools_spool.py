"""Files by reference on the disk of a worker."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noetl_stream.sealing.data_references import DataReference
from noetl_stream.testing.calls import FilesInMemory, tool_call
from noetl_stream.tools.contract import ToolFailure, WorkerUnfit
from noetl_stream.tools.files.spool import MAX_FILES, file_name, spool, spool_folder


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def names_in(folder: Path) -> list[str]:
    return [found.name for found in folder.iterdir()]


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def saved(files: FilesInMemory, data: bytes, name: str = "a.csv") -> DataReference:
    found = files.reference(await files.save(pieces(data), name=name))
    assert found is not None
    return found


async def test_a_file_has_its_name_and_content_and_goes_with_its_task(temporary: Path) -> None:
    files = FilesInMemory()
    call = tool_call({}, data=files)
    async with spool_folder() as folder:
        first = await spool(call, await saved(files, b"one"), folder, "orders.csv")
        second = await spool(call, await saved(files, b"two"), folder, "orders.csv")
        assert [first.name, second.name] == ["orders.csv", "orders.csv"]
        assert [first.read_bytes(), second.read_bytes()] == [b"one", b"two"]
        assert first.stat().st_mode & 0o777 == 0o444
        assert names_in(temporary) == [folder.parent.name]
    assert names_in(temporary) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("../../etc/passwd", "passwd"),
        ("..", "file"),
        (".bashrc", "bashrc"),
        ("a\0b\n.csv", "ab.csv"),
        ("C:\\data\\x.csv", "x.csv"),
        ("", "file"),
        ("ä" * 300 + ".csv", "ä" * 98 + ".csv"),
    ],
)
def test_no_name_leads_out_of_the_folder(name: str, expected: str) -> None:
    assert file_name(name) == expected


async def refused(call: Any, reference: DataReference, **bounds: Any) -> str:
    with pytest.raises(ToolFailure) as failed:
        async with spool_folder() as folder:
            await spool(call, reference, folder, "a", **bounds)
            await spool(call, reference, folder, "a", **bounds)
    assert failed.value.error.kind == "limit_exceeded"
    return failed.value.error.message


async def test_all_files_of_a_task_have_one_bound() -> None:
    files = FilesInMemory()
    message = await refused(tool_call({}, data=files), await saved(files, b"12345"), most_bytes=9)
    assert message == (
        "with the file a.csv, the files of this task have 10 bytes on the disk of its worker; "
        "at most 9 (NOETL_MAX_SCRATCH_BYTES)"
    )


async def test_ten_thousand_files_are_too_many() -> None:
    files = FilesInMemory()
    call, reference = tool_call({}, data=files), await saved(files, b"")
    with pytest.raises(ToolFailure) as failed:
        async with spool_folder() as folder:
            for number in range(MAX_FILES):
                (folder / str(number)).mkdir()
                (folder / str(number) / "a").touch()
            await spool(call, reference, folder, "a")
    assert failed.value.error.message == "a task opens at most 1,000 files"


async def test_a_full_disk_is_the_trouble_of_the_worker() -> None:
    class Full(FilesInMemory):
        async def read(self, reference: DataReference) -> AsyncIterator[bytes]:
            yield b"1"
            raise OSError(errno.ENOSPC, "No space left on device")

    files = Full()
    reference = await saved(files, b"12345")
    with pytest.raises(WorkerUnfit, match=r"cannot write the file a.csv to its disk: No space left on device"):
        async with spool_folder() as folder:
            await spool(tool_call({}, data=files), reference, folder, "a.csv")


async def test_a_file_that_is_lost_while_it_is_read_is_a_lost_result(temporary: Path) -> None:
    class Lossy(FilesInMemory):
        async def read(self, reference: DataReference) -> AsyncIterator[bytes]:
            yield b"1"
            raise ToolFailure.of("result_lost", f"{reference.what} is lost")

    files = Lossy()
    reference = await saved(files, b"12345")
    with pytest.raises(ToolFailure, match=r"the file a.csv is lost"):
        async with spool_folder() as folder:
            await spool(tool_call({}, data=files), reference, folder, "a.csv")
    assert names_in(temporary) == []
