"""Reads a playbook for rewriting and writes it again, by ruamel's round trip (LANGUAGE §16).

Order, quoting and anchors stay as ruamel keeps them, comments as :mod:`comments` does. Of the result only the lines
that differ from an unchanged round trip are used; all others are those of the file, so that none changes for its layout
alone.
"""

from __future__ import annotations

import io
import re
from difflib import SequenceMatcher
from typing import Any, Final

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.emitter import Emitter
from ruamel.yaml.events import MappingEndEvent

from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.upgrade.comments import Comments, FileLayout, read_comments
from noetl_stream.playbook.yaml.nodes import Node
from noetl_stream.playbook.yaml.source import read_source

_WIDTH: Final = 1_000_000
"""The line width of the output, so large that lines are never folded."""
_SPACED: Final = re.compile(r"(?<![{$])\{ ")
_TIGHT: Final = re.compile(r"(?<![{$])\{\w")


class RoundTrip(msgspec.Struct, frozen=True):
    """A playbook that can be rewritten: ``root`` is changed in place.

    ``unchanged`` is what ruamel writes before any change, with line ends as in ``text``.
    """

    text: str
    root: CommentedMap
    comments: Comments
    layout: FileLayout
    unchanged: str

    def to_text(self) -> str:
        """Writes the text of ``root`` as it is now."""
        new = _dump(self.root, self.comments, self.layout)
        if new == self.unchanged:
            return self.text
        merged = _merge(self.text, self.unchanged, new)
        return merged if _plain(merged) == _plain(new) is not None else new


def open_playbook(text: str, tree: Node) -> RoundTrip:
    """Opens the playbook of ``text``, which has been read as ``tree`` without problems."""
    root = _yaml(FileLayout()).load(text)
    layout = _layout_of(text, root)
    comments = read_comments(text, tree, root)
    return RoundTrip(text, root, comments, layout, _dump(root, comments, layout))


class _SpacedEmitter(Emitter):
    """An emitter that writes `{ a: 1 }`, as playbooks do, for `{a: 1}`."""

    def expect_first_flow_mapping_key(self) -> None:
        if not isinstance(self.event, MappingEndEvent):
            self.write_indicator(" ", need_whitespace=False, whitespace=True)
        super().expect_first_flow_mapping_key()

    def expect_flow_mapping_key(self) -> None:
        if isinstance(self.event, MappingEndEvent):
            self.write_indicator(" ", need_whitespace=False)
        super().expect_flow_mapping_key()


def _yaml(layout: FileLayout) -> YAML:
    yaml = YAML()
    if layout.spaced:
        yaml.Emitter = _SpacedEmitter
    yaml.brace_single_entry_mapping_in_flow_sequence = True
    yaml.preserve_quotes = True
    yaml.width = _WIDTH
    yaml.allow_unicode = True
    yaml.indent(mapping=layout.mapping, sequence=layout.dash + 2, offset=layout.dash)
    return yaml


def _dump(root: CommentedMap, comments: Comments, layout: FileLayout) -> str:
    comments.attach(root, layout)
    text = io.StringIO()
    _yaml(layout).dump(root, text)
    tail = "".join(f"{line}\n" for line in comments.tail)
    return text.getvalue() + tail


def _plain(text: str) -> Any:
    source = read_source(text, Problems(""))
    return None if source is None else source.root.plain()


def _layout_of(text: str, root: CommentedMap) -> FileLayout:
    """The layout of a file: the indentation of the first mapping and the first sequence inside another one, and how
    most braces look.
    """
    lines = text.split("\n")
    mapping = dash = None
    pending: list[tuple[Any, int]] = [(root, 0)]
    while pending and (mapping is None or dash is None):
        node, column = pending.pop(0)
        for value in node.values() if isinstance(node, CommentedMap) else node:
            if not isinstance(value, CommentedMap | CommentedSeq) or not value or value.fa.flow_style():
                continue
            if isinstance(value, CommentedMap):
                inner = value.lc.key(next(iter(value)))[1]
                if isinstance(node, CommentedMap) and mapping is None:
                    mapping = inner - column
            else:
                line = lines[value.lc.item(0)[0]]
                inner = len(line) - len(line.lstrip(" "))
                if isinstance(node, CommentedMap) and dash is None:
                    dash = inner - column
            pending.append((value, inner))
    spaced, tight = len(_SPACED.findall(text)), len(_TIGHT.findall(text))
    return FileLayout(mapping or 2, 2 if dash is None else dash, spaced >= tight)


def _merge(text: str, unchanged: str, new: str) -> str:
    """Merges ``new`` with ``text``: lines that ``new`` shares with ``unchanged`` stay as they are in ``text``."""
    theirs, base, ours = (part.split("\n") for part in (text, unchanged, new))
    source: dict[int, tuple[int, int]] = {}
    for _, start, end, first, last in SequenceMatcher(None, base, theirs).get_opcodes():
        if end - start == last - first:
            source.update({start + n: (first + n, first + n + 1) for n in range(end - start)})
        elif end > start:
            # A part that ruamel lays out otherwise is taken as a whole.
            source.update(dict.fromkeys(range(start, end), (first, last)))
    merged: list[str] = []
    taken = 0
    for word, start, end, first, last in SequenceMatcher(None, base, ours).get_opcodes():
        if word != "equal":
            merged += ours[first:last]
            continue
        for line in range(start, end):
            begin, stop = source.get(line, (taken, taken))
            merged += theirs[max(begin, taken) : stop]
            taken = max(taken, stop)
    return "\n".join(merged)
