"""The example playbooks that come with the program.

They stand in ``playbooks/`` of the source tree, and in the wheel in ``noetl_stream/examples/``.
"""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, NamedTuple

import noetl_stream
from noetl_stream.errors import NotFound

PROJECT_FOLDER: Final = "playbooks"
"""Where examples say they stand: their first lines name files there."""

_METADATA: Final = re.compile(r"^metadata:\n(?:  .*\n)+", re.MULTILINE)
_FILE: Final = re.compile(rf"\b{PROJECT_FOLDER}/(\w+\.(?:yaml|py))\b")
_SECTION: Final = re.compile(r"^(Needs|Run|Expect):\s+(.*(?:\n {8}.*)*)", re.MULTILINE)
_INDENT: Final = re.compile(r"^ {8}", re.MULTILINE)


class Example(NamedTuple):
    """An example playbook.

    Attributes:
        description: ``metadata.description``, one line.
        text: The whole file.
        summary: Its first comment: what it does, some sentences.
        needs: What must be there before it runs, as text; empty if nothing.
        run: The commands to run it, one a line.
        expect: What comes of it.
        files: Names of the files it needs beside it, without its own.
    """

    name: str
    description: str
    text: str
    summary: str
    needs: str
    run: str
    expect: str
    files: tuple[str, ...]


def example_names() -> list[str]:
    """The names of all examples, sorted."""
    return sorted(file.name.removesuffix(".yaml") for file in _folder().iterdir() if file.name.endswith(".yaml"))


def read_example(name: str) -> Example:
    """
    Raises:
        NotFound: there is no example of that name.
    """
    if name not in example_names():
        raise NotFound(f"there is no example {name!r}", hint="`noetl-stream example list` lists them")
    return _parse(name, read_example_file(f"{name}.yaml"))


def read_example_file(file_name: str) -> str:
    """The text of an example, or of what it needs beside it."""
    return _folder().joinpath(file_name).read_text(encoding="utf-8")


def _folder() -> Traversable:
    packaged = files(noetl_stream) / "examples"
    return packaged if packaged.is_dir() else Path(noetl_stream.__path__[0]).parents[1] / PROJECT_FOLDER


def _parse(name: str, text: str) -> Example:
    from ruamel.yaml import YAML

    found = _METADATA.search(text)
    metadata = YAML(typ="safe", pure=True).load(found[0])["metadata"] if found else {}
    head = re.sub(r"^# ?", "", text.partition("\napiVersion:")[0], flags=re.MULTILINE)
    sections = {title: _INDENT.sub("", said) for title, said in _SECTION.findall(head)}
    needed = [file for file in _FILE.findall(head) if file != f"{name}.yaml"]
    return Example(
        name,
        metadata.get("description", ""),
        text,
        summary=head.partition("\n\n")[0],
        needs=sections.get("Needs", ""),
        run=sections.get("Run", ""),
        expect=sections.get("Expect", ""),
        files=tuple(dict.fromkeys(needed)),
    )
