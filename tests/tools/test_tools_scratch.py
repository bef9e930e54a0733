"""The scratch folders of tasks on the disk of a worker."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noetl_stream.sealing.data_references import DataReference
from noetl_stream.testing.calls import FilesInMemory
from noetl_stream.tools.contract import ToolFailure, WorkerUnfit
from noetl_stream.tools.scratch.scratch import MAX_FILES, ScratchFolders, file_name


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
    async with ScratchFolders().folder() as scratch:
        first = await scratch.fetch(files, await saved(files, b"one"), "orders.csv")
        second = await scratch.fetch(files, await saved(files, b"two"), "orders.csv")
        assert [first.name, second.name] == ["orders.csv", "orders.csv"]
        assert [first.read_bytes(), second.read_bytes()] == [b"one", b"two"]
        assert first.stat().st_mode & 0o777 == 0o444
        assert names_in(temporary) == [scratch.folder.parent.name]
    assert names_in(temporary) == []


async def test_the_folder_of_a_killed_worker_goes_with_the_next_start(temporary: Path) -> None:
    (temporary / "noetl-scratch-left" / "files").mkdir(parents=True)
    async with ScratchFolders().folder() as scratch:
        ScratchFolders()
        assert names_in(temporary) == [scratch.folder.parent.name]


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


async def test_all_files_of_a_task_have_one_bound() -> None:
    files = FilesInMemory()
    reference = await saved(files, b"12345")
    async with ScratchFolders(9).folder() as scratch:
        await scratch.fetch(files, reference, "a")
        with pytest.raises(ToolFailure) as failed:
            await scratch.fetch(files, reference, "a")
    assert (failed.value.error.kind, failed.value.error.message) == (
        "limit_exceeded",
        "the file a.csv: a task may have 9 bytes on its worker's disk (NOETL_MAX_SCRATCH_BYTES)",
    )


async def test_ten_thousand_files_are_too_many() -> None:
    files = FilesInMemory()
    reference = await saved(files, b"")
    async with ScratchFolders().folder() as scratch:
        for _ in range(MAX_FILES):
            await scratch.fetch(files, reference, "a")
        with pytest.raises(ToolFailure) as failed:
            await scratch.fetch(files, reference, "a")
    assert failed.value.error.message == "the file a.csv: a task may have 1,000 files on its worker's disk"


async def test_a_full_disk_is_the_trouble_of_the_worker() -> None:
    class Full(FilesInMemory):
        async def read(self, reference: DataReference) -> AsyncIterator[bytes]:
            yield b"1"
            raise OSError(errno.ENOSPC, "No space left on device")

    files = Full()
    reference = await saved(files, b"12345")
    with pytest.raises(WorkerUnfit, match=r"cannot write the file a.csv to .*: No space left on device"):
        async with ScratchFolders().folder() as scratch:
            await scratch.fetch(files, reference, "a.csv")


async def test_a_file_that_is_lost_while_it_is_read_is_a_lost_result(temporary: Path) -> None:
    class Lossy(FilesInMemory):
        async def read(self, reference: DataReference) -> AsyncIterator[bytes]:
            yield b"1"
            raise ToolFailure.of("result_lost", f"{reference.what} is lost")

    files = Lossy()
    reference = await saved(files, b"12345")
    with pytest.raises(ToolFailure, match=r"the file a.csv is lost"):
        async with ScratchFolders().folder() as scratch:
            await scratch.fetch(files, reference, "a.csv")
    assert names_in(temporary) == []
