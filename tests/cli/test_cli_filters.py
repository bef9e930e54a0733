"""Executions are found in the same words on the command line, over HTTP, in the page and in its page of the docs."""

from __future__ import annotations

import re
from pathlib import Path

from noetl_stream.cli.execution.group import list_executions
from noetl_stream.ports.operations.executions import Executions
from noetl_stream.ports.operations.verbs import parameters_of

ROOT = Path(__file__).resolve().parents[2]
TIMES = {"since": "started_from", "until": "started_before", "older_than": "started_before"}
"""Words of people for the parameters of HTTP."""


def parameters() -> set[str]:
    return {one.name for one in parameters_of(Executions.page) if one.argument == "chosen"}


def as_parameters(words: set[str]) -> set[str]:
    return {TIMES.get(name, name) for name in (word.replace("-", "_") for word in words)}


def test_the_command_line_has_every_filter() -> None:
    options = {option.removeprefix("--") for parameter in list_executions.params for option in parameter.opts}
    assert parameters() <= as_parameters(options)


def test_the_page_has_every_filter() -> None:
    source = (ROOT / "web" / "src" / "query.ts").read_text(encoding="utf-8")
    table = re.search(r"export const NAMES: .*? = \{\n(.*?)\n\}", source, re.DOTALL)
    assert table is not None
    assert as_parameters(set(re.findall(r"^ {2}'?([a-z-]+)'?:", table[1], re.MULTILINE))) == parameters()


def test_the_language_lists_every_filter() -> None:
    page = (ROOT / "docs" / "reference" / "language.md").read_text(encoding="utf-8")
    rows = page.partition("### Finding")[2].partition("\n- ")[0]
    words = {
        word for row in re.findall(r"^\| (`.*?) \|", rows, re.MULTILINE) for word in re.findall(r"`([\w-]+)`", row)
    }
    assert as_parameters(words) == parameters()
