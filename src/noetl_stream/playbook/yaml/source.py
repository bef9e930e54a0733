"""Parses YAML text into a tree with positions, or diagnostics.

Reads ruamel's event stream, so that no object is constructed, no tag is executed, and depth, size and aliases are
bounded while reading (LANGUAGE §1, §14).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from ruamel.yaml import YAML, events
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scanner import Scanner, ScannerError
from ruamel.yaml.tokens import DirectiveToken, TagToken

from noetl_stream.playbook.codes import Code
from noetl_stream.playbook.diagnostics import BareLocation, Position, Problems, TooManyProblems
from noetl_stream.playbook.yaml import mistakes
from noetl_stream.playbook.yaml.nodes import (
    Mapping,
    MappingKey,
    Node,
    Plain,
    Scalar,
    Sequence,
    extend_pointer,
    kind_of,
    mark_of,
)

MAX_PLAYBOOK_BYTES: Final = 512 * 1024
MAX_YAML_DEPTH: Final = 64
MAX_YAML_NODES: Final = 20_000
MAX_YAML_ALIASES: Final = 500
_MAX_TAG_CHARS: Final = 100

_TOP: Final = BareLocation(Position(1, 1))
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_UNSAFE: Final = re.compile("[\x00\ud800-\udfff]")
_STANDARD_TAGS: Final = {f"tag:yaml.org,2002:{name}": name for name in ("str", "int", "float", "bool", "null")}
_COLLECTION_TAGS: Final = frozenset(["tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"])
_TAG_OF: Final = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str"}

_NULL: Final = frozenset(["", "~", "null", "Null", "NULL"])
_BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_DECIMAL: Final = re.compile(r"[-+]?[0-9]+\Z")
_OCTAL: Final = re.compile(r"0o[0-7]+\Z")
_HEX: Final = re.compile(r"0x[0-9a-fA-F]+\Z")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_NOT_FINITE: Final = re.compile(r"([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))\Z")
_SYNTAX_HINTS: Final = {
    "mapping values": "quote text that contains `: `",
    "expected <block end>": "indent the keys of a mapping alike: those of a list's item as its first, behind `- `",
    "expected ',' or '}', but got ':'": 'quote text that contains `: `, as in command: "echo a: b"',
    "that cannot start any token": "quote the text: it begins with a character that means something in YAML",
    "could not find expected ':'": "write `key: value`; indent the text of a block (`|`, `>`) below its key",
}
_LEADING_ZERO: Final = re.compile(r"[-+]?0[0-9]+\Z")
"""Numbers that look like codes, such as ``007``."""

MAX_NUMBER_CHARS: Final = 40
"""The most characters of a number's spelling. Longer numbers would be out of range anyway."""
_LARGEST: Final = 2**63


class _NumberOutOfRange(ValueError):
    """A number that JSON or a 64-bit integer cannot hold."""


class PlaybookSource(msgspec.Struct, frozen=True):
    """A playbook as text and as a tree."""

    text: str
    root: Node


class _Stop(Exception):
    """Parsing cannot continue; the reason has been reported."""


def read_source(text: str | bytes, problems: Problems) -> PlaybookSource | None:
    """Reads the tree of a YAML text; ``None`` if it is not YAML or exceeds a limit."""
    decoded = _decode(text, problems)
    if decoded is None:
        return None
    try:
        root = _Reader(decoded, problems).document()
    except (_Stop, TooManyProblems):
        return None
    return PlaybookSource(decoded, root)


def _decode(text: str | bytes, problems: Problems) -> str | None:
    if isinstance(text, bytes):
        try:
            decoded = text.decode("utf-8")
        except UnicodeDecodeError as error:
            before = text[: error.start].decode("utf-8", "replace")
            spot = BareLocation(mark_of(before, len(before)))
            hint = "save the file as UTF-8"
            problems.error("yaml_encoding", f"byte 0x{text[error.start]:02x} is not UTF-8", spot, hint)
            return None
    else:
        decoded = text
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_PLAYBOOK_BYTES:
        message = f"the playbook has {size:,} bytes; the limit is {MAX_PLAYBOOK_BYTES:,} (max_playbook_bytes)"
        problems.error("yaml_limit", message, _TOP, "keep the data in a store and refer to it from the playbook")
        return None
    return decoded.removeprefix("\ufeff")


def _mark_of(mark: Any) -> Position:
    return Position(mark.line + 1, mark.column + 1)


def _place_of(event: Any, pointer: str = "") -> BareLocation:
    return BareLocation(_mark_of(event.start_mark), pointer)


class _Scanner(Scanner):
    """ruamel's scanner without long tags and custom directives, which playbooks do not need and which cost time."""

    def scan_tag(self) -> TagToken:
        token: TagToken = super().scan_tag()
        if len(token.value[1]) > _MAX_TAG_CHARS:
            raise ScannerError(problem=f"tag longer than {_MAX_TAG_CHARS} characters", problem_mark=token.start_mark)
        return token

    def scan_directive(self) -> DirectiveToken:
        token: DirectiveToken = super().scan_directive()
        if token.name != "YAML":
            raise ScannerError(problem="the only directive allowed is `%YAML 1.2`", problem_mark=token.start_mark)
        return token


class _Reader:
    """A recursive descent over ruamel's events; the depth limit keeps the recursion shallow."""

    def __init__(self, text: str, problems: Problems) -> None:
        self._text = text
        self._problems = problems
        self._events = self._stream()
        self._last = _TOP.mark
        self._anchors: dict[str, Node] = {}
        self._open: set[str] = set()
        self._undashed: list[Node] = []
        self._nodes = 0
        self._aliases = 0
        self._chars = len(text)

    def document(self) -> Node:
        """Reads the text's only document."""
        next(self._events)
        start = next(self._events)
        if isinstance(start, events.StreamEndEvent):
            self._stop("yaml_empty", "the playbook is empty", _TOP, "start with `apiVersion: noetl.io/v2`")
        version = getattr(start, "version", None)
        if version not in (None, (1, 2)):
            number = ".".join(map(str, version or ()))
            spot = _place_of(start)
            self._problems.error("yaml_version", f"playbooks must be YAML 1.2, not {number}", spot)
        root = self._node(next(self._events), "", 0)
        next(self._events)
        after = next(self._events)
        if not isinstance(after, events.StreamEndEvent):
            spot = _place_of(after)
            hint = "write one playbook per file"
            self._problems.error("yaml_documents", "a second YAML document starts here", spot, hint)
        if isinstance(root, Scalar) and root.value is None:
            self._stop("yaml_empty", "the playbook is empty", _TOP, "start with `apiVersion: noetl.io/v2`")
        return root

    def _stream(self) -> Iterator[Any]:
        last: Any = None
        try:
            yaml = YAML(typ="safe", pure=True)
            yaml.Scanner = _Scanner
            for event in yaml.parse(self._text):
                self._last, last = _mark_of(event.start_mark), event
                yield event
        except ReaderError as error:
            spot = BareLocation(mark_of(self._text, error.position))
            character = self._text[error.position]
            message = f"character U+{ord(character):04X} is not allowed in YAML"
            hint = "save the file as UTF-8" if character == "\0" else "write it as an escape in double quotes"
            self._stop("yaml_encoding", message, spot, f"remove it, or {hint}")
        except MarkedYAMLError as error:
            self._quote_in_template(last)
            self._syntax(error)
        except (YAMLError, ValueError, OverflowError, LookupError, AttributeError, AssertionError) as error:
            # On malformed text ruamel also raises other errors; report them as syntax errors.
            self._stop("yaml_syntax", f"invalid YAML: {error}", BareLocation(self._last))

    def _quote_in_template(self, last: Any) -> None:
        """Stops if the last text was ended by a quote in a template: the rest is not YAML."""
        if not isinstance(last, events.ScalarEvent) or last.style not in ("'", '"'):
            return
        if last.value.rfind("{{") > last.value.rfind("}}"):
            other = "'" if last.style == '"' else '"'
            spot = BareLocation(_mark_of(last.end_mark))
            hint = f"write {other}…{other} within the template, or begin and end the text with {other}"
            if last.style == '"' and last.start_mark.line == last.end_mark.line:
                hint = mistakes.quotes_in_template(self._text, spot.mark.line) or hint
            self._stop("yaml_syntax", f"the {last.style} within a template ends the text here", spot, hint)

    def _syntax(self, error: MarkedYAMLError) -> None:
        mark = error.problem_mark or error.context_mark
        spot = BareLocation(_mark_of(mark) if mark else self._last)
        if self._problems.has_error_on(spot.mark.line):
            raise _Stop  # it follows from an earlier report there
        problem = str(error.problem or error.context or "invalid YAML")
        if "'\\t'" in problem:
            self._stop("yaml_tab", "YAML cannot be indented with tabs", spot, "indent with spaces")
        mended, found = self._mended(error, problem, spot.mark), mistakes.first_mistake(self._text)
        is_sure = mended is not None and not mended.startswith("indent ")
        if found is not None and (not is_sure or found.line < spot.mark.line):
            self._stop("yaml_syntax", found.message, BareLocation(Position(found.line, found.column)), found.hint)
        context = ""
        if error.context and error.problem:
            opened = f" that starts on line {error.context_mark.line + 1}" if error.context_mark else ""
            context = f" ({error.context}{opened})"
        hint = next((hint for words, hint in _SYNTAX_HINTS.items() if words in problem), None)
        self._stop("yaml_syntax", f"{problem}{context}", spot, mended or hint)

    def _mended(self, error: MarkedYAMLError, problem: str, at: Position) -> str | None:
        """The replacement of a line that is not YAML, if it is known."""
        if "mapping values" in problem:
            return mistakes.quoted_text(self._text, at.line)
        if "unknown escape" in problem and error.context_mark:
            return mistakes.single_quoted(self._text, error.context_mark.line + 1, error.context_mark.column + 1)
        return mistakes.quoted_star(self._text, at.line, at.column)

    def _stop(self, code: Code, message: str, at: BareLocation, hint: str | None = None) -> None:
        self._problems.error(code, message, at, hint)
        raise _Stop

    def _node(self, event: Any, pointer: str, depth: int) -> Node:
        if isinstance(event, events.AliasEvent):
            return self._alias(event, pointer, depth)
        self._count(event, pointer, depth)
        anchor = event.anchor
        if anchor:
            self._open.add(anchor)
        node: Node
        if isinstance(event, events.ScalarEvent):
            node = self._scalar(event, pointer)
        else:
            if event.tag is not None and event.tag not in _COLLECTION_TAGS:
                self._refuse_tag(event.tag, _place_of(event, pointer))
            is_list = isinstance(event, events.SequenceStartEvent)
            node = self._sequence(event, pointer, depth) if is_list else self._mapping(event, pointer, depth)
        if anchor:
            self._open.discard(anchor)
            self._anchors[anchor] = node
        return node

    def _count(self, event: Any, pointer: str, depth: int) -> None:
        """Counts a value of the tree, and checks how deep it is nested."""
        self._nodes += 1
        if self._nodes > MAX_YAML_NODES:
            message = f"more than {MAX_YAML_NODES:,} values, with aliases expanded (max_yaml_nodes)"
            self._stop("yaml_limit", message, _place_of(event))
        if depth > MAX_YAML_DEPTH:
            expanded = ", with aliases expanded" if isinstance(event, events.AliasEvent) else ""
            message = f"nested more than {MAX_YAML_DEPTH} levels deep{expanded} (max_yaml_depth)"
            self._stop("yaml_limit", message, _place_of(event, pointer))

    def _alias(self, event: Any, pointer: str, depth: int) -> Node:
        spot = _place_of(event, pointer)
        self._aliases += 1
        if self._aliases > MAX_YAML_ALIASES:
            self._stop("yaml_limit", f"more than {MAX_YAML_ALIASES} aliases (max_yaml_aliases)", spot)
        if event.anchor in self._open:
            self._stop("yaml_alias", f"`*{event.anchor}` refers to the value it is part of", spot)
        if event.anchor not in self._anchors:
            hint = mistakes.quoted_star(self._text, spot.mark.line, spot.mark.column)
            message = "`*` begins an alias" if hint else f"no anchor `&{event.anchor}` before this alias"
            self._problems.error("yaml_alias", message, spot, hint)
            return Scalar(None, spot.mark, pointer)
        return self._copy(self._anchors[event.anchor], event, pointer, depth)

    def _copy(self, node: Node, event: Any, pointer: str, depth: int) -> Node:
        self._count(event, pointer, depth)
        if isinstance(node, Scalar):
            self._chars += node.end - node.start
            if self._chars > MAX_PLAYBOOK_BYTES:
                message = f"more than {MAX_PLAYBOOK_BYTES:,} bytes, with aliases expanded (max_playbook_bytes)"
                self._stop("yaml_limit", message, _place_of(event, pointer))
            return Scalar(node.value, node.mark, pointer, node.start, node.end, node.style)
        if isinstance(node, Sequence):
            inner = enumerate(node.items)
            items = [self._copy(item, event, extend_pointer(pointer, index), depth + 1) for index, item in inner]
            return Sequence(items, node.mark, pointer)
        copied = Mapping(node.mark, pointer)
        for name, value in node.values.items():
            place = extend_pointer(pointer, name)
            copied.keys[name] = MappingKey(name, node.keys[name].mark, place)
            copied.values[name] = self._copy(value, event, place, depth + 1)
        return copied

    def _sequence(self, event: Any, pointer: str, depth: int) -> Sequence:
        items: list[Node] = []
        while not isinstance(inner := next(self._events), events.SequenceEndEvent):
            items.append(self._node(inner, extend_pointer(pointer, len(items)), depth + 1))
            items += self._undashed
            self._undashed = []
        return Sequence(items, _mark_of(event.start_mark), pointer)

    def _mapping(self, event: Any, pointer: str, depth: int) -> Mapping:
        mapping = Mapping(_mark_of(event.start_mark), pointer)
        read = [mapping]
        is_item = not event.flow_style and pointer.rpartition("/")[2].isdecimal()
        while not isinstance(inner := next(self._events), events.MappingEndEvent):
            key = self._key(inner, pointer, depth + 1)
            value = self._node(next(self._events), key.pointer if key else pointer, depth + 1)
            if key is None:
                self._problems.mark_unreadable(pointer)
                continue
            if is_item and len(mapping.keys) > 1 and key.name == next(iter(mapping.keys)):
                message = f"`{key.name}` comes again, as at the beginning of the next item, but without a dash"
                self._problems.error("yaml_duplicate_key", message, key, f"put `- ` before `{key.name}`")
                read.append(mapping := Mapping(key.mark, pointer))
            elif key.name in mapping.keys:
                first = mapping.keys[key.name].mark.line
                message = f"duplicate key `{key.name}`, first on line {first}"
                hint = mistakes.merged(key.name, mapping.values[key.name], first, value)
                self._problems.error("yaml_duplicate_key", message, key, hint)
                continue
            mapping.keys[key.name] = key
            mapping.values[key.name] = value
        self._undashed += read[1:]
        return read[0]

    def _key(self, event: Any, pointer: str, depth: int) -> MappingKey | None:
        node = self._node(event, pointer, depth)
        mark = _mark_of(event.start_mark)
        if isinstance(node, Scalar) and isinstance(node.value, str) and (node.value != "<<" or node.style):
            return MappingKey(node.value, mark, extend_pointer(pointer, node.value))
        code: Code = "yaml_key"
        message, hint = f"a key must be text, not {kind_of(node)}", None
        if not isinstance(node, Scalar):
            if self._text[event.start_mark.index - 1 : event.start_mark.index + 1] == "{{":
                # Unquoted {{ x }} is a mapping whose key is a mapping, and the usual cause.
                mark = Position(mark.line, mark.column - 1)
                message = "a template needs quotes: without them, `{{` opens a mapping"
                hint = mistakes.quoted_template(self._text, mark.line, mark.column)
        elif node.value == "<<":
            code, message = "yaml_merge_key", "YAML 1.2 has no merge keys"
            hint = "write the keys out; an alias can stand for a whole value"
        else:
            hint = f'quote it: "{self._text[node.start : node.end].strip() or "null"}"'
        self._problems.error(code, message, BareLocation(mark, pointer), hint)
        return None

    def _scalar(self, event: Any, pointer: str) -> Scalar:
        spot = _place_of(event, pointer)
        value = self._value(event, spot)
        if not event.style and (
            cut := mistakes.cut_by_comment(self._text, event.start_mark.index, event.end_mark.index)
        ):
            message = f"` #` begins a comment: `{cut[0]}` is not read"
            self._problems.warn("template_not_rendered", message, spot, f"write {cut[1]}")
        if isinstance(value, str) and _UNSAFE.search(value):
            value = _PAIR.sub(_join_pair, value)
        if isinstance(value, str) and (bad := _UNSAFE.search(value)):
            message = f"text with U+{ord(bad.group()):04X} cannot be stored"
            self._problems.error("yaml_encoding", message, spot, "remove it")
            value = _UNSAFE.sub("", value)
        return Scalar(value, spot.mark, pointer, event.start_mark.index, event.end_mark.index, event.style or "")

    def _value(self, event: Any, spot: BareLocation) -> Plain:
        word: str = event.value
        is_plain = not event.style
        tag = event.tag
        name = _STANDARD_TAGS.get(str(tag)) if tag is not None else None
        if tag == "!" or name == "str" or (tag is None and not is_plain):
            return word
        if tag is not None and name is None:
            self._refuse_tag(tag, spot)
            return word
        try:
            value = _resolve_scalar(word)
        except _NumberOutOfRange as error:
            self._problems.error("yaml_number", str(error), spot, "quote it if it is text")
            return 0
        if name is not None and _TAG_OF[type(value)] != name and not (name == "float" and isinstance(value, int)):
            self._problems.error("yaml_tag", f"`{word}` is not a valid `!!{name}`", spot)
        if is_plain and _LEADING_ZERO.match(word):
            message = f"`{word}` is read as the number {value}"
            self._problems.warn("yaml_leading_zero", message, spot, f'quote it to keep the zeros: "{word}"')
        return value

    def _refuse_tag(self, tag: str, spot: BareLocation) -> None:
        shown = "!!" + tag.removeprefix("tag:yaml.org,2002:") if tag.startswith("tag:yaml.org,2002:") else tag
        self._problems.error("yaml_tag", f"tag `{shown}` is not allowed", spot, "use plain JSON values")


def _join_pair(pair: re.Match[str]) -> str:
    """Joins two escapes to the character they encode, as in JSON: YAML 1.2 is a superset of JSON."""
    return pair.group().encode("utf-16", "surrogatepass").decode("utf-16")


def _resolve_scalar(word: str) -> Plain:
    """Resolves a plain (unquoted) scalar in YAML 1.2's core schema: null, a boolean, a number or text.

    Raises:
        _NumberOutOfRange: for NaN, infinity and numbers beyond 64 bits.
    """
    if word in _NULL:
        return None
    if word in _BOOLEANS:
        return _BOOLEANS[word]
    if _NOT_FINITE.match(word):
        raise _NumberOutOfRange("JSON has no NaN or infinity")
    whole = _DECIMAL.match(word) or _OCTAL.match(word) or _HEX.match(word)
    if not whole and not _FLOAT.match(word):
        return word
    if len(word) > MAX_NUMBER_CHARS:
        raise _NumberOutOfRange(f"number longer than {MAX_NUMBER_CHARS} characters")
    if whole:
        integer = int(word, {"0o": 8, "0x": 16}.get(word[:2], 10))
        if not -_LARGEST <= integer < _LARGEST:
            raise _NumberOutOfRange("number too large for a 64-bit integer")
        return integer
    number = float(word)
    if not math.isfinite(number):
        raise _NumberOutOfRange("number too large for a 64-bit float")
    return number
