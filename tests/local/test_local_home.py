"""The folders of a home."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl_stream.local.home import make_folder


def test_a_folder_that_another_process_has_just_created_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "nats"
    mkdir = Path.mkdir

    def created_meanwhile(path: Path, **options: bool) -> None:
        mkdir(path, mode=0o750)
        mkdir(path, **options)

    monkeypatch.setattr(Path, "mkdir", created_meanwhile)
    make_folder(folder, 0o700)
    assert folder.stat().st_mode & 0o777 == 0o750, "an existing folder keeps its mode"


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "nats").touch()
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "nats", 0o700)
