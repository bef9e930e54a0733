"""Functions that tests run as tasks with files."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from noetl_stream_client import Context


@dataclass
class Report:
    title: str
    file: Path
    parts: list[Path]


def count(orders: Path) -> list[Any]:
    return [orders.name, len(orders.read_text().splitlines()), orders.parent.stat().st_mode & 0o222]


def first(orders: TextIO) -> str:
    return orders.readline()


def length(orders: BinaryIO, other: Path | None = None) -> list[Any]:
    return [len(orders.read()), other]


def several(files: list[Path]) -> list[str]:
    return [one.read_text() for one in files]


def size(orders: dict[str, Any]) -> int:
    return int(orders["size"])


def spoil(orders: Path) -> str:
    for change in (lambda: orders.write_text("x"), orders.unlink, lambda: (orders.parent / "new").touch()):
        try:
            change()
        except OSError:
            continue
        return "spoilt"
    return orders.read_text()


def report(title: str, context: Context) -> Report:
    file = context.folder / "report.txt"
    file.write_text(title)
    with tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False) as part:
        part.write("a\n1\n")
    return Report(title, file, [Path(part.name), file])


def hand_on(orders: Path) -> dict[str, Path]:
    return {"same": orders}


def outside() -> Path:
    return Path("/etc/hosts")


def climbing(context: Context) -> Path:
    return context.folder / ".." / "secret.txt"


def link(context: Context) -> list[Path]:
    found = context.folder / "link.txt"
    found.symlink_to("/etc/hosts")
    return [found]


def folder(context: Context) -> dict[str, Path]:
    return {"all": context.folder}


def missing(context: Context) -> Path:
    return context.folder / "none.txt"


def pipe(context: Context) -> Path:
    os.mkfifo(context.folder / "pipe")
    return context.folder / "pipe"


def many(n: int, context: Context) -> list[Path]:
    found = [context.folder / f"{number}.txt" for number in range(n)]
    for one in found:
        one.write_text("x")
    return found
