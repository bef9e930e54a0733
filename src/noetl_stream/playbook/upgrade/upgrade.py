"""The upgrade: rewrites one playbook and lists its changes (LANGUAGE §16)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from noetl_stream.model.limits import Limits
from noetl_stream.playbook.compile.compiler import check
from noetl_stream.playbook.diagnostics import OLDER_FORMS, Diagnostic, InvalidPlaybook, Problems
from noetl_stream.playbook.kinds.spec import LANGUAGE_KINDS, Kinds
from noetl_stream.playbook.upgrade.draft import Draft, Note, line_of, mappings
from noetl_stream.playbook.upgrade.roundtrip import MARK, comments_in, entries_in, open_playbook
from noetl_stream.playbook.upgrade.rules import RULES
from noetl_stream.playbook.yaml.mistakes import SAME_VALUE
from noetl_stream.playbook.yaml.nodes import Mapping
from noetl_stream.playbook.yaml.source import PlaybookSource, read_source

_OPEN: Final = "open"
_LEFT: Final = "check"
_REPEATED: Final = "repeated_key"


class Upgraded(msgspec.Struct, frozen=True):
    """A playbook in the present language, with notes on its upgrade.

    Attributes:
        text: The playbook; the given text itself if nothing had to change.
        notes: The changes, assumptions and decisions left for a person, in the order of the given file.
        diagnostics: The diagnostics of `check` for ``text``.
    """

    before: str
    text: str
    notes: tuple[Note, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def is_changed(self) -> bool:
        return self.text != self.before

    @property
    def passes(self) -> bool:
        """Whether ``text`` passes `check` without errors."""
        return not any(one.severity == "error" for one in self.diagnostics)

    @property
    def is_done(self) -> bool:
        """Whether the playbook can run, and no person must decide anything."""
        return self.passes and not any(note.kind == "decide" for note in self.notes)

    def to_json(self) -> dict[str, Any]:
        return {
            "changed": self.is_changed,
            "ok": self.is_done,
            "notes": [note.to_json() for note in self.notes],
            "diagnostics": [one.to_json() for one in self.diagnostics],
            "text": self.text,
        }


def upgrade(source: str | bytes, kinds: Kinds, *, file: str, limits: Limits) -> Upgraded:
    """Rewrites a playbook to the present language.

    Raises:
        InvalidPlaybook: The source is not YAML, or not a mapping with a workflow.
    """
    problems = Problems(file)
    read = read_source(source, problems)
    if read is not None and (cut := _without_repeats(read, problems)) is not None:
        text, repeats = cut
        found = upgrade(text, kinds, file=file, limits=limits)
        moved = [replace(note, line=_line_before(note.line, repeats)) for note in found.notes]
        return replace(found, before=read.text, notes=tuple(sorted([*moved, *repeats])))
    if read is None or problems.has_errors:
        raise InvalidPlaybook(problems.sorted())
    if not isinstance(read.root, Mapping) or not {"workflow", "steps"} & read.root.keys.keys():
        hint = "a playbook is a mapping with `apiVersion`, `metadata` and `workflow`"
        problems.error("missing_key", "this is not a playbook: it has no `workflow`", read.root, hint)
        raise InvalidPlaybook(problems.sorted())
    before = read.text
    if "\r\n" in before:
        return _with_line_ends(before, upgrade(before.replace("\r\n", "\n"), kinds, file=file, limits=limits))
    opened = open_playbook(before, read.root)
    draft = Draft(opened.root, opened.comments, {**LANGUAGE_KINDS, **kinds})
    for rule in RULES:
        draft.rule = rule.__name__
        rule(draft)
    _keep_comments(draft, comments_in(before, read.root))
    text = opened.to_text()
    checked = check(text, kinds, file=file, limits=limits)
    if _leave_to_a_person(draft, checked.diagnostics):
        text = opened.to_text()
        checked = check(text, kinds, file=file, limits=limits)
    notes = [*draft.notes, *_still_open(before, draft.notes)]
    return Upgraded(before, text, tuple(sorted(notes)), checked.diagnostics)


def _without_repeats(read: PlaybookSource, problems: Problems) -> tuple[str, list[Note]] | None:
    """Returns the text without repeated keys of equal value, and notes on them; ``None`` if there are other
    problems.
    """
    found = problems.sorted() if problems.has_errors else ()
    lines, repeats = read.text.split("\n"), list[Note]()
    for one in found:
        line = lines[one.line - 1]
        if one.hint != SAME_VALUE or "#" in line:
            return None
        repeats.append(Note(one.line, "changed", _REPEATED, f"`{line.strip()}` is there twice"))
    gone = {note.line for note in repeats}
    text = "\n".join(line for number, line in enumerate(lines, start=1) if number not in gone)
    again = read_source(text, rest := Problems(""))
    is_same = again is not None and not rest.has_errors and again.root.plain() == read.root.plain()
    return (text, repeats) if repeats and is_same else None


def _line_before(line: int, repeats: Sequence[Note]) -> int:
    """Maps a line of the text without repeated keys to its line in the given file."""
    for repeat in repeats:
        line += repeat.line <= line
    return line


def with_converter(
    source: str | bytes, found: Sequence[Diagnostic], kinds: Kinds, *, file: str, limits: Limits
) -> Sequence[Diagnostic]:
    """Adds the command that rewrites older forms to the hint of the first diagnostic of ``source`` that it mends."""
    older = [one for one in found if one.code in OLDER_FORMS]
    if not older:
        return found
    try:
        left = {(one.code, one.message) for one in upgrade(source, kinds, file=file, limits=limits).diagnostics}
    except InvalidPlaybook:
        return found
    first = next((one for one in older if (one.code, one.message) not in left), None)
    if first is None:
        return found
    hint = f"{first.hint or 'rewrite it'}; `noetl-stream playbook upgrade` rewrites older forms"
    return [replace(one, hint=hint) if one is first else one for one in found]


def _with_line_ends(before: str, upgraded: Upgraded) -> Upgraded:
    text = upgraded.text.replace("\n", "\r\n") if upgraded.is_changed else before
    return replace(upgraded, before=before, text=text)


def _keep_comments(draft: Draft, comments: list[tuple[int, str]]) -> None:
    """Moves comments whose entry is gone before the step in which they stood."""
    kept = draft.comments.all_comments(draft.root)
    for line, comment in comments:
        # Several comments on one entry are one line.
        if comment in kept:
            kept.remove(comment)
        elif not any(f" {comment} #" in f" {said} #" for said in kept):
            _remark_at(draft, line).append(comment)


def _remark_at(draft: Draft, line: int) -> list[str]:
    keys = [key for key in draft.root if line_of(draft.root, key) <= line]
    key = max(keys, key=lambda key: line_of(draft.root, key), default=next(iter(draft.root)))
    workflow = draft.root[key]
    before = [index for index, step in enumerate(mappings(workflow)) if line_of(step) <= line]
    where = (workflow, before[-1]) if key == "workflow" and before else (draft.root, key)
    return draft.comments.remark_at(*where).before


def _leave_to_a_person(draft: Draft, found: Sequence[Diagnostic]) -> bool:
    """Records what `check` still refuses, where no comment names it. Returns whether there is anything.

    Of a file without older forms only these are recorded, since its other errors are the author's own.
    """
    draft.rule = _LEFT
    was_older, is_any = bool(draft.notes), False
    for one in found:
        is_left = one.severity == "error" and (was_older or one.code in OLDER_FORMS)
        if not is_left or not one.pointer:
            continue
        places = list(_entries_along(draft.root, one.pointer))
        around = [*places, *entries_in(places[-1][0][places[-1][1]])]
        if not any(line.startswith(MARK) for place in around for line in draft.comments.remark_at(*place).before):
            draft.decide(*places[-1], one.message)
            is_any = True
    return is_any


def _entries_along(node: Any, pointer: str) -> Iterator[tuple[Any, str | int]]:
    """The entries on the way to a JSON pointer, as far as they exist."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        key = int(name) if isinstance(node, CommentedSeq) else name
        if not isinstance(node, CommentedSeq) and (not isinstance(node, CommentedMap) or key not in node):
            return
        yield node, key
        node = node[key]


def _still_open(text: str, notes: list[Note]) -> list[Note]:
    """The notes for a person that an earlier upgrade left: its comments are still there."""
    known = {note.message for note in notes if note.kind == "decide"}
    lines = enumerate(text.split("\n"), start=1)
    said = [(number, line.strip().removeprefix(MARK)) for number, line in lines if line.strip().startswith(MARK)]
    return [Note(number, "decide", _OPEN, message) for number, message in said if message not in known]
