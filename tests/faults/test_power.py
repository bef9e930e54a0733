"""A file system loses with its power what was not synced, and one power cut of a whole machine under load."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fault_power import PLACES, cuts_at

from power_disk import PowerDisk, no_power_disks


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if reason := no_power_disks(tmp_path):
        pytest.skip(reason)
    return tmp_path


def test_a_cut_loses_what_was_not_synced_and_keeps_what_was(folder: Path) -> None:
    disk = PowerDisk(folder / "disk", folder / "disk.image")
    disk.mount()
    try:
        _write(disk.folder / "kept", "synced")
        descriptor = os.open(disk.folder / "kept", os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        _write(disk.folder / "kept", " and not")
        _write(disk.folder / "lost", "not synced")
        disk.cut()
        with pytest.raises(OSError, match="Input/output error"):
            _write(disk.folder / "late", "after the cut")
        disk.restart()
        assert {path.name for path in disk.folder.iterdir()} == {"kept", "lost+found"}
        assert (disk.folder / "kept").read_text() == "synced"
    finally:
        disk.end()


def _write(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


@pytest.mark.verify
@pytest.mark.xdist_group("own_stacks")
@pytest.mark.usefixtures("folder")
async def test_after_a_power_cut_all_that_was_accepted_ends_once_in_the_books() -> None:
    (done,) = await cuts_at(PLACES[0], seed=1, count=1)
    assert done.problems == []
    assert done.jobs
