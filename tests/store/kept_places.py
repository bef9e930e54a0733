"""A folder and a bucket, for what operators keep."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from noetl_stream.adapters.files.folder import FolderFiles
from noetl_stream.adapters.files.objects import ObjectFiles
from noetl_stream.settings.places import Place, read_place
from noetl_stream.wiring.stores import open_files


class KeptPlace(NamedTuple):
    """A place as commands take it, and where its files are on the disk."""

    text: str
    folder: Path

    @property
    def place(self) -> Place:
        return read_place("place", self.text)

    @property
    def files(self) -> FolderFiles | ObjectFiles:
        return open_files(self.place)

    def read(self, name: str) -> bytes:
        with self.files.open(name) as file:
            return file.read()

    def write(self, name: str, data: bytes) -> None:
        file = self.files.create(name)
        file.write(data)
        file.close()

    def below(self, name: str) -> KeptPlace:
        return KeptPlace(f"{self.text}/{name}", self.folder / name)
