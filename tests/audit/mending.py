"""The hint of a diagnostic, applied to the text that it is about, as an author would who takes it by the letter."""

from __future__ import annotations

import json
import re
from typing import Any

from noetl_stream.playbook.diagnostics import Diagnostic, Problems
from noetl_stream.playbook.yaml.nodes import Mapping, Scalar, walk
from noetl_stream.playbook.yaml.source import read_source

_CUT = re.compile(
    r"(?:, and (?:on|in|store|read|the)\b|, (?:declare|which|since|for|or|beside) |, of \d|, in seconds|; ).*",
    re.DOTALL,
)
_TEMPLATE = re.compile(r"write (\{\{.*\}\})(?:$|[;,])")


def shown_in(hint: str | None) -> str | None:
    """What a hint says to write, where that is the whole of it; ``None`` if it has gaps to fill, or says a choice."""
    if hint is None or not (found := re.match(r"write (.*)", hint)):
        return None
    text = re.sub(r"\A(?:an arc for it|an admission policy|a list): ", "", found[1])
    if text.startswith("one of "):
        return None
    if (template := _TEMPLATE.search(hint)) is not None:
        text = template[1]
    elif text[0] == "`" and "`" in text[1:]:
        text = text[: text.index("`", 1) + 1]
    elif (quoted := re.match(r"""(\S+: )?(["'])(?:\\.|(?!\2).)*\2(?=$|[;,. ])""", text)) is not None:
        text = quoted[0]
    else:
        text = _outside_brackets(text)
    has_gap = "…" in text or re.search(r"<[a-z ]+>", text)
    return None if has_gap or " or " in hint.partition("write ")[2].split("`", 2)[-1][:4] else text


def _outside_brackets(text: str) -> str:
    depth = 0
    for index, character in enumerate(text):
        depth += (character in "[{") - (character in "]}")
        if depth == 0 and _CUT.match(text[index:]):
            return text[:index]
    return text


def mended(text: str, one: Diagnostic) -> str | None:
    """The text with the hint applied; ``None`` if the hint has no whole replacement."""
    done = _applied(text, one)
    declared = re.search(r"declare it as keychain: (\[.*?\])", one.hint or "")
    if done is None or declared is None:
        return done
    if done[0] == "{":
        return done.replace("{", f'{{ "keychain": {declared[1]},', 1)
    return done.replace("workflow:", f"keychain: {declared[1]}\nworkflow:", 1)


def _applied(text: str, one: Diagnostic) -> str | None:
    shown = shown_in(one.hint)
    if shown is None:
        return None
    if one.code.startswith("yaml_") or " begins a comment" in one.message:
        also = re.findall(r"\d+", (one.hint or "").partition("the same on line")[2])
        return _in_line(text, one.line, shown, also)
    read = read_source(text, Problems("<mended>"))
    assert read is not None
    place = (one.line, one.column)
    for part in walk(read.root):
        for key in part.keys.values() if isinstance(part, Mapping) else ():
            if (key.mark.line, key.mark.column) == place:
                return _with(read.root.plain(), key.pointer, shown, is_key=True)
    scalars = [part for part in walk(read.root) if isinstance(part, Scalar)]
    exact = next((part for part in scalars if (part.mark.line, part.mark.column) == place), None)
    offset = sum(len(line) + 1 for line in text.split("\n")[: one.line - 1]) + one.column - 1
    around = next((part for part in scalars if part.start <= offset < part.end), None)
    if exact is not None and shown.startswith("{{"):
        return _with(read.root.plain(), exact.pointer, json.dumps(shown), is_key=False)
    if around is not None and shown.startswith("{{") and str(around.value).startswith("{%"):
        return _with(read.root.plain(), around.pointer, json.dumps(shown), is_key=False)
    in_template = (shown[0] == "`" or shown.startswith("{{")) and around is not None and "{" in str(around.value)
    found = around if in_template or exact is None else exact
    if found is None:
        at = next((part for part in walk(read.root) if (part.mark.line, part.mark.column) == place), None)
        return None if at is None else _with(read.root.plain(), at.pointer, shown, is_key=False)
    if in_template and (never := re.search(r"is never `([^`]*)`", one.message)):
        return text[:offset] + text[offset:].replace(never[1], shown.strip("`"), 1)
    if in_template:
        return _in_template(text, offset, shown)
    return _with(read.root.plain(), found.pointer, shown, is_key=False)


def _in_line(text: str, number: int, shown: str, also: list[str]) -> str:
    """Puts what is shown in place of the same without quotes and brackets, on a line; the same on the other lines."""
    lines = text.split("\n")
    line = lines[number - 1]
    bare = re.sub(r"[\"'\[\]| \\]", "", shown)
    places = [index for index, character in enumerate(line) if character not in "\"'[]| \\"]
    joined = "".join(line[index] for index in places)
    at = joined.find(bare)
    assert at >= 0, (shown, line)
    start, end = places[at], places[at + len(bare) - 1] + 1
    while start and line[start - 1] in "\"'":
        start -= 1
    while end < len(line) and line[end] in "\"'":
        end += 1
    lines[number - 1] = line[:start] + shown + line[end:]
    for other in map(int, also):
        lines[other - 1] = re.sub('"(.*)"', lambda found: '"' + found[1].replace('"', "'") + '"', lines[other - 1])
    return "\n".join(lines)


def _in_template(text: str, offset: int, shown: str) -> str:
    if shown.startswith("{{"):
        start, end = text.rfind("{{", 0, offset + 1), text.find("}}", offset) + 2
        return text[:start] + shown + text[end:]
    path = re.compile(r"[A-Za-z_][\w.]*(?:\([^()]*\))?(?:\.\w+)*").match(text, offset)
    end = path.end() if path else offset
    return text[:offset] + shown.strip("`") + text[end:]


def _with(root: Any, pointer: str, shown: str, *, is_key: bool) -> str:
    """The document with what is shown: in place of a pair, or of a value."""
    *steps, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    holder = root
    for step in steps:
        holder = holder[int(step)] if isinstance(holder, list) else holder[step]
    problems = Problems("<shown>")
    read = read_source(shown.strip("`"), problems)
    assert read is not None and not problems.has_errors, shown
    value = read.root.plain()
    name: Any = int(last) if isinstance(holder, list) else last
    is_pair = isinstance(value, dict) and not shown.startswith("{")
    if is_key:
        assert is_pair, shown
        holder.pop(name)
        _lay(holder, value)
    elif is_pair and set(value) == {name}:
        holder[name] = value[name]
    elif is_pair and isinstance(holder[name], dict):
        _lay(holder[name], value)
    elif is_pair and isinstance(holder, dict) and not isinstance(holder[name], list):
        _lay(holder, value)
    else:
        holder[name] = value
    return json.dumps(root, ensure_ascii=False, indent=1)


def _lay(over: dict[str, Any], value: dict[str, Any]) -> None:
    for key, part in value.items():
        if isinstance(part, dict) and isinstance(over.get(key), dict):
            _lay(over[key], part)
        else:
            over[key] = part
