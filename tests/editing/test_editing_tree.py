"""The reader of half-written texts reads what is valid as the language does, and anything else without a fault."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from effort import times
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.editing.names import TextNames
from noetl_stream.playbook.editing.tree import (
    TextList,
    TextMapping,
    TextPart,
    TextScalar,
    find,
    names_in,
    path_to,
    read_tree,
    text_of,
)
from noetl_stream.playbook.yaml.nodes import Node, Scalar, Sequence
from noetl_stream.playbook.yaml.source import MAX_PLAYBOOK_BYTES, read_source

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ["playbooks", "tests/playbook/accepted", "tests/playbook/broken", "deploy", "benchmarks"]
FILES = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.yaml"))

SPELLINGS = [
    "{a: 1, b: [2, {c: 3}], 'd': \"e\"}",
    "a: &x {b: 1}\nc: *x\nd: !!str 1\n",
    "- - 1\n  - 2\n-\n  - 3\n- a: 1\n  b:\n  - 2\n  - 3\n",
    "a: plain\n  goes on\n  # said\nb: |\n  text: here\n\n   more\nc: >-\n  folded\n",
    "a: 'it''s'\nb: \"x \\\" y\n  z\"\nc: x#y # z\n",
    "# before\n---\na:\n# within\n  b: 1\n...\n",
    "%YAML 1.2\n---\na: http://x:1/y\n",
    'a: "{{ b }}"\n"c d": 1\n',
    "a: [\n  1,\n  2\n]\nb: {x: 1,\n  y: 2}\n",
    "a:\r\n  b: 1\r\n  c: |\r\n    x\r\nd: 2\r\n",
    "a: -1\nb: :x\nc: ?y\n-d: 3\n",
    'a: {"b":1,"c":[d]}\n',
    "a: [b: 1, c]\n",
]


def compare(node: Node, part: TextPart | None, text: str) -> None:
    """Both have the same shape and keys, and scalars are spelled where both say."""
    if isinstance(part, TextScalar) and part.style == "*":
        return
    if isinstance(node, Scalar):
        assert part is not None or node.value is None
        if isinstance(part, TextScalar) and part.style not in ("|", ">"):
            assert text[node.start : node.end].strip().endswith(text[part.start : part.end])
        else:
            assert part is None or (isinstance(part, TextScalar) and part.style == node.style)
    elif isinstance(node, Sequence):
        assert isinstance(part, TextList) and len(part.items) == len(node.items)
        for inner, item in zip(node.items, part.items, strict=True):
            compare(inner, item, text)
    else:
        assert isinstance(part, TextMapping) and list(dict.fromkeys(part.names)) == list(node.keys)
        for name, value in node.values.items():
            compare(value, part.get(name), text)


@pytest.mark.parametrize("text", [*SPELLINGS, *(pytest.param(file.read_text(), id=file.stem) for file in FILES)])
def test_valid_playbooks_are_read_as_the_language_reads_them(text: str) -> None:
    problems = Problems("")
    source = read_source(text, problems)
    if source is None or problems.has_errors:
        assert problems.sorted()
        return
    compare(source.root, read_tree(text), text)


def test_the_rest_of_a_text_with_a_mistake_is_read() -> None:
    text = """
kind: Playbook
workflow:
  - step: first
    tool: { kind: http, url: "{{ ctx.
    next: { arcs: [{ step: second
  - step: second
    too
    tool:
      kind: noop
        args: lost
      name: done
  nonsense
  - step: [
  - step: last
"""
    root = read_tree(text)
    assert [text_of(find(root, ("workflow", index, "step"))) for index in (0, 1, 3)] == ["first", "second", "last"]
    assert names_in(find(root, ("workflow", 1, "tool"))) == ["kind", "name"]
    assert text_of(find(root, ("workflow", 0, "next", "arcs", 0, "step"))) == "second"


def test_an_offset_leads_to_the_key_or_value_there() -> None:
    text = "a:\n  - b: {c: d}\n"
    root = read_tree(text)
    assert path_to(root, text.index("b")) == (("a", 0, "b"), True)
    assert path_to(root, text.index("d")) == (("a", 0, "b", "c"), False)
    assert path_to(root, len(text)) == ((), False)


def broken(text: str, seed: int) -> str:
    """The text with pieces taken out, doubled or replaced by what YAML gives a meaning."""
    draw = random.Random(seed)
    for _ in range(draw.randint(1, 6)):
        at, length = draw.randrange(len(text)), draw.choice([0, 1, 1, 5, 60])
        piece = draw.choice(
            ["", "\n", "  ", "- ", ": ", "{", "}", "[", "'", '"', "|\n", "{{", "}}", "#", "&a ", "\t", "😀"]
        )
        text = text[:at] + piece + text[at + length :]
    return text


@pytest.mark.parametrize("file", FILES[:: max(1, len(FILES) // 12)], ids=lambda file: file.stem)
def test_no_text_is_a_fault_and_every_part_lies_in_it(file: Path) -> None:
    whole = file.read_text()
    for seed in range(times(40)):
        text = broken(whole, seed)
        names = TextNames(text, read_tree(text))
        pending = [names.root]
        while pending:
            part = pending.pop()
            assert part is None or 0 <= part.start <= part.end <= len(text)
            pending += part.items if isinstance(part, TextList) else []
            pending += [pair.value for pair in part.pairs] if isinstance(part, TextMapping) else []
        for one in names.occurrences:
            assert text[one.start : one.end] == one.symbol.name


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "- " * 100_000, "a: {" * 50_000, "x" * (MAX_PLAYBOOK_BYTES + 1), "\0: \ud800"]
)
def test_a_hostile_text_is_read_as_far_as_it_may_be(text: str) -> None:
    TextNames(text, read_tree(text))
    assert read_tree("a: 1") is not None


def test_a_mark_of_the_byte_order_is_no_part_of_the_first_key() -> None:
    assert names_in(read_tree("\ufeffa: 1\nb: 2\n")) == ["a", "b"]


def test_a_document_behind_the_first_is_not_read() -> None:
    assert names_in(read_tree("a: 1\n---\nb: 2\n")) == ["a"]
