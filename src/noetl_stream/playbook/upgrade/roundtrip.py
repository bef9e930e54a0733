"""Reads a playbook for rewriting and writes it again, by ruamel's round trip (LANGUAGE §16).

Order, quoting and anchors stay as ruamel keeps them. It attaches a comment to the value before it, so that moving or
removing that value would take along what is said about the next one: here a comment on its own line belongs to the
entry that follows, and one at the end of a line to the entry that it ends, wherever a rule moves that. Of the result
only the lines that differ from an unchanged round trip are used; all others are those of the file, so that none changes
for its layout alone.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from difflib import SequenceMatcher
from typing import Any, Final

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.emitter import Emitter
from ruamel.yaml.error import CommentMark
from ruamel.yaml.events import MappingEndEvent
from ruamel.yaml.tokens import CommentToken

from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.yaml.nodes import Mapping, Node, Scalar
from noetl_stream.playbook.yaml.source import read_source

_COMMENT: Final = re.compile(r"(?:^|(?<=[ \t]))#.*$", re.MULTILINE)

MARK: Final = "# upgrade: "
"""The start of a comment about a point that a person must decide."""

Key = str | int
"""The key of an entry: a key of a mapping, or an index of a sequence."""


class FileLayout(msgspec.Struct, frozen=True):
    """The layout of a file.

    ``mapping`` and ``dash`` are the columns that a nested mapping, and the dashes of a nested sequence, stand to the
    right of their key. ``spaced``: `{ a: 1 }` rather than `{a: 1}`.
    """

    mapping: int = 2
    dash: int = 2
    spaced: bool = True


class Remark(msgspec.Struct):
    """The comments on an entry: the lines ``before`` it, blank ones empty, and the end of its line."""

    before: list[str] = msgspec.field(default_factory=list)
    end: str = ""


class _Entry(msgspec.Struct, frozen=True):
    line: int
    column: int
    container: Any
    key: Key


def keys_in(node: Any) -> Sequence[Key]:
    """The keys of a mapping or the indices of a sequence, as they are now; none of any other value."""
    if isinstance(node, CommentedMap):
        return list(node)
    return range(len(node)) if isinstance(node, CommentedSeq) else ()


def entries_in(node: Any) -> Iterator[tuple[Any, Key]]:
    """Every entry of a value, at any depth, as container and key."""
    for key in keys_in(node):
        yield node, key
        yield from entries_in(node[key])


class Comments:
    """The remarks of a document by entry: a key of a mapping, or an item of a sequence, wherever that is."""

    def __init__(self) -> None:
        self._remarks: dict[tuple[int, Key | None], Remark] = {}
        self._kept: dict[int, Any] = {}
        self.head: list[str] = []
        self.tail: list[str] = []

    def remark_at(self, container: Any, key: Key) -> Remark:
        """The remark on an entry; a new one is empty."""
        value = container[key]
        # The objects are kept: an id is of one object only as long as that lives.
        self._kept[id(container)] = container
        place: tuple[int, Key | None] = (id(container), key)
        if isinstance(container, CommentedSeq) and isinstance(value, CommentedMap | CommentedSeq):
            self._kept[id(value)] = value
            place = (id(value), None)
        return self._remarks.setdefault(place, Remark())

    def take(self, container: Any, key: Key) -> Remark:
        """Takes the remark off an entry that is about to be removed."""
        taken = self.remark_at(container, key)
        found = Remark(taken.before, taken.end)
        taken.before, taken.end = [], ""
        return found

    def all_comments(self, root: CommentedMap) -> list[str]:
        """All comments of a document, in no order."""
        said = [*self.head, *self.tail]
        for container, key in entries_in(root):
            remark = self.remark_at(container, key)
            said += [*remark.before, remark.end]
        return said

    def attach(self, root: CommentedMap, layout: FileLayout) -> None:
        """Attaches the remarks to ruamel's ``root``, which writes them."""
        _strip(root)
        root.ca.comment = [None, _lines(self.head, 0)] if self.head else None
        _attach(self, root, 0, layout)


def read_comments(text: str, tree: Node, root: CommentedMap) -> Comments:
    """Reads the comments of ``text``, and removes them from ruamel's ``root``.

    Args:
        tree: The same document with the places of its scalars: what looks like a comment inside one is text.
    """
    comments = Comments()
    entries = sorted(_entries(root), key=lambda entry: (entry.line, entry.column))
    _strip(root)
    scalars = list(_scalars(tree))
    spoken = _find_comments(text, scalars)
    folded = {line for scalar in scalars if scalar.style in ("|", ">") for line in _lines_of(text, scalar)}
    lines = text.split("\n")
    begun = 0
    for number, line in enumerate(lines):
        while begun < len(entries) and entries[begun].line <= number:
            begun += 1
        column, said = spoken.get(number, (-1, ""))
        is_blank = column < 0 and not line.strip() and number not in folded and number < len(lines) - 1
        if column < 0 and not is_blank:
            continue
        if column >= 0 and line[:column].strip():
            remark = _remark_on(comments, entries[begun - 1])
            remark.end = f"{remark.end} {said}".strip()
        elif begun == 0:
            comments.head.append(said)
        else:
            (_remark_on(comments, entries[begun]).before if begun < len(entries) else comments.tail).append(said)
    return comments


def comments_in(text: str, tree: Node) -> list[tuple[int, str]]:
    """The comments of a text, in order, each with its line from 1."""
    return [(line + 1, said) for line, (_, said) in _find_comments(text, list(_scalars(tree))).items()]


def _remark_on(comments: Comments, entry: _Entry) -> Remark:
    return comments.remark_at(entry.container, entry.key)


def _find_comments(text: str, scalars: list[Scalar]) -> dict[int, tuple[int, str]]:
    """The column and text of each comment, by line from 0, in order."""
    spans = sorted((scalar.start, scalar.end) for scalar in scalars)
    found: dict[int, tuple[int, str]] = {}
    index = line = counted = 0
    for match in _COMMENT.finditer(text):
        line, counted = line + text.count("\n", counted, match.start()), match.start()
        while index < len(spans) and spans[index][1] <= match.start():
            index += 1
        if index == len(spans) or spans[index][0] >= match.start():
            found[line] = (match.start() - text.rfind("\n", 0, match.start()) - 1, match.group().rstrip())
    return found


def _lines_of(text: str, scalar: Scalar) -> range:
    """The lines that a block scalar spans."""
    return range(scalar.mark.line, scalar.mark.line + text.count("\n", scalar.start, scalar.end))


def _scalars(node: Node) -> Iterator[Scalar]:
    """The scalars of a tree without keys, which are of one line and have no comment inside."""
    if isinstance(node, Scalar):
        yield node
    else:
        for inner in node.values.values() if isinstance(node, Mapping) else node.items:
            yield from _scalars(inner)


def _entries(node: Any) -> Iterator[_Entry]:
    """The entries of block collections. An entry in a flow collection has no line of its own."""
    if not isinstance(node, CommentedMap | CommentedSeq) or node.fa.flow_style():
        return
    for key in keys_in(node):
        place = node.lc.key(key) if isinstance(node, CommentedMap) else node.lc.item(key)
        # The item of a sequence begins at its dash, before the first key of a mapping in it.
        column = place[1] - (0 if isinstance(node, CommentedMap) else 2)
        yield _Entry(place[0], column, node, key)
        yield from _entries(node[key])


def _strip(node: Any) -> None:
    if isinstance(node, CommentedMap | CommentedSeq):
        node.ca.comment = None
        node.ca.end = []
        node.ca.items.clear()
        for key in keys_in(node):
            _strip(node[key])


def _attach(comments: Comments, node: Any, column: int, layout: FileLayout) -> None:
    """Attaches the remarks in a collection, whose keys or dashes begin at ``column``."""
    if not isinstance(node, CommentedMap | CommentedSeq) or node.fa.flow_style():
        return
    is_list = isinstance(node, CommentedSeq)
    for key in keys_in(node):
        value, remark = node[key], comments.remark_at(node, key)
        if is_list and isinstance(value, CommentedMap) and value:
            # Before the dash, not between it and the first key.
            first = next(iter(value))
            inner = comments.remark_at(value, first)
            _add(inner, _take_inside(comments, value[first]))
            _add(remark, inner.before)
            inner.before = []
        _add(remark, _take_inside(comments, value))
        before = _lines(remark.before, column) if remark.before else None
        end = _token(f"{remark.end}\n", 0) if remark.end else None
        if before or end:
            node.ca.items[key] = [end, before, None, None] if is_list else [None, before, end, None]
        inside = layout.mapping if isinstance(value, CommentedMap) or is_list else layout.dash
        _attach(comments, value, column + (2 if is_list else inside), layout)


def _add(remark: Remark, said: list[str]) -> None:
    """Adds comments to a remark; the converter's own are there once, however often it runs."""
    remark.before += [line for line in said if not (line.startswith(MARK) and line in remark.before)]


def _take_inside(comments: Comments, node: Any, *, in_flow: bool = False) -> list[str]:
    """Takes the remarks off entries that share a line, which has no place for them."""
    taken: list[str] = []
    if isinstance(node, CommentedMap | CommentedSeq) and (in_flow or node.fa.flow_style()):
        for key in keys_in(node):
            remark = comments.take(node, key)
            taken += [*filter(None, remark.before), *([remark.end] if remark.end else [])]
            taken += _take_inside(comments, node[key], in_flow=True)
    return taken


def _lines(texts: list[str], column: int) -> list[CommentToken]:
    return [_token(f"{text}\n", column if text else 0) for text in texts]


def _token(text: str, column: int) -> CommentToken:
    return CommentToken(text, CommentMark(column), None)


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
    _spell_out(root, set())
    layout = _layout_of(text, root)
    comments = read_comments(text, tree, root)
    return RoundTrip(text, root, comments, layout, _dump(root, comments, layout))


def _spell_out(node: Any, seen: set[int]) -> None:
    """Gives each alias a copy of its own: a rule changes one place at a time."""
    seen.add(id(node))
    for key in keys_in(node):
        if isinstance(node[key], CommentedMap | CommentedSeq):
            if id(node[key]) in seen:
                node[key] = deepcopy(node[key])
            _spell_out(node[key], seen)


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
