"""A playbook that is being rewritten: its parts, the changes that rules make, and their notes."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import wraps
from itertools import chain, count
from typing import Any, Final, Literal

import msgspec
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString, SingleQuotedScalarString

from noetl_stream.playbook.kinds.inputs import spellings
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.playbook.upgrade.expressions import Rewrite, has_template, rewrite_text
from noetl_stream.playbook.upgrade.roundtrip import MARK, Comments, Key, entries_in, keys_in

NoteKind = Literal["changed", "assumed", "decide"]

_FLOW_ITEMS: Final = 4
"""The most scalars of a mapping of scalars that is written on one line."""

SECRET_RULES: Final = frozenset(["keychain_kinds", "keychain_oauth2", "python_auth", "duckdb_auth"])
"""Rules about entries that may hold a secret, which notes never repeat."""
WORDS: Final = ("choose", "while", "until")


class Note(msgspec.Struct, frozen=True, order=True):
    """A note of the converter. ``line`` starts at 1, in the original file.

    ``changed``: the same in another form. ``assumed``: the meaning is not certain. ``decide``: a person must decide.
    """

    line: int
    kind: NoteKind
    rule: str
    message: str

    def to_json(self) -> dict[str, Any]:
        return {"line": self.line, "kind": self.kind, "rule": self.rule, "message": self.message}


class Draft(msgspec.Struct):
    """A document that is being rewritten, with the state of the rules.

    Attributes:
        rule: The rule at work.
        was_older: Whether a rule changed something, so that the file is known to be of an older dialect.
        results: The tasks that had a step's result before rules appended others, by step.
    """

    root: CommentedMap
    comments: Comments
    kinds: Kinds
    notes: list[Note] = msgspec.field(default_factory=list)
    rule: str = ""
    results: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def was_older(self) -> bool:
        return any(note.kind != "decide" for note in self.notes)

    # --- what a rule says ---------------------------------------------------------------------------------------------

    def note_change(self, at: tuple[Any, Key | None], message: str) -> None:
        self._note("changed", at, message)

    def note_assumption(self, at: tuple[Any, Key | None], message: str) -> None:
        self._note("assumed", at, message)

    def decide(self, container: Any, key: Key, message: str) -> None:
        """Records a decision for a person, also in a comment before the entry."""
        message = " ".join(message.split())
        said = f"{MARK}{message}"
        remark = self.comments.remark_at(container, key)
        if said not in remark.before:
            remark.before.append(said)
        self._note("decide", (container, key), message)

    def _note(self, kind: NoteKind, at: tuple[Any, Key | None], message: str) -> None:
        note = Note(line_of(*at), kind, self.rule, message)
        if message and note not in self.notes:
            self.notes.append(note)

    # --- the parts ----------------------------------------------------------------------------------------------------

    def steps(self) -> list[CommentedMap]:
        """The steps of the document that are mappings."""
        return mappings(self.root.get("workflow"))

    def tasks(self) -> Iterator[tuple[CommentedMap, CommentedMap | None]]:
        """Every task, with its step; those of the workbook have none. Bodies of constructs are included."""
        for step in self.steps():
            for task in tasks_of(step.get("tool")):
                yield task, step
        workbook = self.root.get("workbook")
        entries = workbook.get("tasks") if isinstance(workbook, CommentedMap) else workbook
        if isinstance(entries, CommentedMap):
            yield from ((entry, None) for entry in entries.values() if isinstance(entry, CommentedMap))
        for entry in mappings(entries) if isinstance(entries, CommentedSeq) else []:
            tool = entry.get("tool")
            yield from ((task, None) for task in ([tool] if isinstance(tool, CommentedMap) else mappings(tool)))

    def all_tasks(self) -> list[CommentedMap]:
        """The tasks of the document, as they are now: a rule may add others."""
        return [task for task, _ in self.tasks()]

    def keychain_entries(self) -> list[CommentedMap]:
        """The entries of the keychain that are mappings."""
        return mappings(self.root.get("keychain"))

    def inputs_of(self, kind: str) -> frozenset[str]:
        """The inputs of a kind under every name; empty if the kind is not known."""
        known = self.kinds.get(kind)
        return frozenset(spellings(known.inputs)) if known else frozenset()

    def knobs_of(self, kind: str) -> frozenset[str]:
        """The knobs of a kind under every name; empty if the kind is not known."""
        known = self.kinds.get(kind)
        return frozenset(spellings(known.knobs)) if known else frozenset()

    # --- how a rule changes them --------------------------------------------------------------------------------------

    def move(
        self, source: CommentedMap, key: str, to: CommentedMap, name: str | None = None, *, note: str = ""
    ) -> None:
        """Moves an entry with its comments to the end of another mapping, under another name.

        Two mappings become one. Existing entries stay, and a person decides about the others.
        """
        self._note("changed", (source, key), note)
        name = name or key
        if isinstance(source[key], CommentedMap) and isinstance(to.get(name), CommentedMap):
            for inner in list(source[key]):
                self.move(source[key], inner, to[name])
            self.remove_empty(source, key, heir=(to, name))
            return
        if name in to:
            self.decide(source, key, f"`{name}` is there already: keep one of the two values")
            return
        line, remark = line_of(source, key), self.comments.take(source, key)
        to[name] = source.pop(key)
        _place(to, name, line)
        moved = self.comments.remark_at(to, name)
        moved.before, moved.end = [*moved.before, *remark.before], remark.end or moved.end

    def nest(self, holder: CommentedMap, key: str, *path: str, name: str | None = None, note: str) -> None:
        """Moves an entry into the section at a path of its own mapping, which is made if it is missing."""
        self.move(holder, key, section(holder, *path, at=line_of(holder, key)), name, note=note)

    def unpack(self, holder: CommentedMap, key: str, to: CommentedMap) -> None:
        """Moves the entries of a mapping into another one, and removes it."""
        for inner in list(holder[key]):
            self.move(holder[key], inner, to)
        self.remove(holder, key)

    def rename(self, container: CommentedMap, key: str, name: str, value: Any = ..., *, note: str = "") -> None:
        """Renames an entry in place, and replaces its value if one is given."""
        self._note("changed", (container, key), note)
        position, line = list(container).index(key), line_of(container, key)
        remark = self.comments.take(container, key)
        old = container.pop(key)
        container.insert(position, name, old if value is ... else value)
        _place(container, name, line)
        moved = self.comments.remark_at(container, name)
        moved.before, moved.end = [*remark.before, *moved.before], remark.end or moved.end

    def rename_older(self, container: CommentedMap | None, names: Mapping[str, str], message: str) -> None:
        """Renames the entries that have an older name, unless it has the present one, too.

        Args:
            message: The note, with placeholders for both names.
        """
        for old, new in names.items():
            if container is not None and old in container and new not in container:
                self.rename(container, old, new, note=message.format(old, new))

    def replace(self, container: CommentedMap, key: str, value: Any, *, note: str, block: bool = False) -> None:
        """Replaces the value of an entry.

        Args:
            block: Whether a mapping has a line for each key.
        """
        self._note("changed", (container, key), note)
        container[key] = to_ruamel(value, line_of(container, key), block=block)

    def remove(self, container: CommentedMap, key: str, heir: tuple[Any, Key] | None = None, *, note: str = "") -> Any:
        """Removes an entry and returns its value. Its comments go to ``heir``, else to the entry after it."""
        self._note("changed", (container, key), note)
        keys = list(container)
        remark = self.comments.take(container, key)
        following = keys[keys.index(key) + 1] if key != keys[-1] else None
        value = container.pop(key)
        said = [*remark.before, *([remark.end] if remark.end else [])]
        if any(said):
            if heir is None and following is None and len(container) == 0:
                self.comments.tail += said
            else:
                inherited = self.comments.remark_at(*(heir or (container, following or next(reversed(container)))))
                inherited.before = [*said, *inherited.before]
        return value

    def drop(self, container: CommentedMap, key: str, why: str, heir: tuple[Any, Key] | None = None) -> None:
        """Removes an entry without a counterpart. A note has it, of secrets only the keys, and the reason."""
        value = container[key]
        keys = ", ".join(map(str, value)) if isinstance(value, CommentedMap) else ""
        text = keys if self.rule in SECRET_RULES else shown(value)
        self.note_assumption((container, key), f"`{f'{key}: {text}' if text else key}` is dropped: {why}")
        self.remove(container, key, heir)

    def remove_empty(self, container: CommentedMap, key: str, heir: tuple[Any, Key] | None = None) -> None:
        """Removes an entry if it is an empty mapping, as after its own entries have moved."""
        if isinstance(container.get(key), CommentedMap) and not container[key]:
            self.remove(container, key, heir)

    def rewrite(self, value: Any, change: Rewrite) -> int:
        """Rewrites the paths in all templates of a collection. Returns the number of changed texts."""
        return change_texts(value, lambda text: rewrite_text(text, change))

    def rewrite_entry(self, holder: CommentedMap, key: str, change: Rewrite) -> int:
        """Rewrites the paths in all templates of an entry, if it is there, as :meth:`rewrite` does."""
        return change_entry(holder, key, lambda text: rewrite_text(text, change)) if key in holder else 0

    def rewrite_parts(self, holder: CommentedMap, keys: Iterable[str], change: Rewrite, note: str = "") -> None:
        """Rewrites the paths in these collections of a mapping, with a note on each that changes."""
        for key in keys:
            if self.rewrite(holder.get(key), change):
                self.note_change((holder, key), note)


Rule = Callable[[Draft], None]


def each(
    parts: Callable[[Draft], list[CommentedMap]], *changes: Callable[[Draft, CommentedMap], None]
) -> tuple[Rule, ...]:
    """Makes the rules that apply these changes, one after another, to all parts of a kind, such as all steps."""

    def rule_of(change: Callable[[Draft, CommentedMap], None]) -> Rule:
        @wraps(change)
        def rule(draft: Draft) -> None:
            for part in parts(draft):
                change(draft, part)

        return rule

    return tuple(map(rule_of, changes))


def change_texts(node: Any, change: Callable[[str], str]) -> int:
    """Changes the texts with a template in a collection. Returns how many are other ones then."""
    return sum(change_entry(node, key, change) for key in keys_in(node))


def change_entry(holder: Any, key: Key, change: Callable[[str], str]) -> int:
    """Changes the texts with a template in an entry, as :func:`change_texts` does."""
    value = holder[key]
    if is_python_code(holder, key):
        return 0
    if not has_template(value):
        return change_texts(value, change)
    text = change(value)
    if text != value:
        holder[key] = quote_like(value, text)
    return int(text != value)


def texts_in(value: Any) -> Iterator[str]:
    """The texts in a value, at any depth."""
    inner = (container[key] for container, key in entries_in(value))
    return (part for part in (value, *inner) if isinstance(part, str))


def line_of(container: Any, key: Key | None = None) -> int:
    """The line of an entry or a collection in the file, from 1; 1 if it was not in the file."""
    place = getattr(container, "lc", None)
    if place is None:
        return 1
    data = place.data or {}
    if key is not None and key in data:
        return int(data[key][0]) + 1
    if key is not None and isinstance(container, CommentedMap | CommentedSeq):
        try:
            inner = container[key]
        except (KeyError, IndexError):
            inner = None
        if getattr(getattr(inner, "lc", None), "line", None) is not None:
            return int(inner.lc.line) + 1
    return 1 if place.line is None else int(place.line) + 1


def _place(container: CommentedMap, key: str, line: int) -> None:
    container.lc.add_kv_line_col(key, [line - 1, 0, line - 1, 0])


def to_ruamel(value: Any, at: int = 0, *, block: bool = False) -> Any:
    """Converts plain values to ruamel's, small mappings on one line.

    Args:
        at: The line that the values come from, for notes about them.
        block: Whether the outermost mapping has a line for each key.
    """
    if isinstance(value, CommentedMap | CommentedSeq):
        return value
    if isinstance(value, dict):
        mapping = CommentedMap((key, to_ruamel(inner, at)) for key, inner in value.items())
        if at:
            mapping.lc.line, mapping.lc.col = at - 1, 0
            for key in mapping:
                _place(mapping, key, at)
        if not block and _is_small(mapping):
            mapping.fa.set_flow_style()
        return mapping
    if isinstance(value, list):
        sequence = CommentedSeq(to_ruamel(item, at) for item in value)
        if at:
            sequence.lc.line, sequence.lc.col = at - 1, 0
        return sequence
    return quote(value) if type(value) is str else value


def quote(text: str) -> str:
    """Quotes a text in the most readable style: templates in quotes, texts of several lines as a block."""
    if "\n" in text:
        return _with_style(LiteralScalarString, text)
    if not has_template(text):
        return text
    return _with_style(SingleQuotedScalarString if '"' in text else DoubleQuotedScalarString, text)


def quote_like(old: str, new: str) -> str:
    """Quotes a text like another one."""
    if isinstance(old, LiteralScalarString):
        return _with_style(LiteralScalarString, new)
    if isinstance(old, DoubleQuotedScalarString) and '"' not in new:
        return _with_style(DoubleQuotedScalarString, new)
    return _with_style(SingleQuotedScalarString, new) if isinstance(old, SingleQuotedScalarString) else quote(new)


def _with_style(style: type[str], text: str) -> str:
    return style(text)


def _is_small(mapping: CommentedMap) -> bool:
    is_short = sum(len(str(key)) + len(str(value)) + 4 for key, value in mapping.items()) < 100
    return is_short and len(mapping) <= _FLOW_ITEMS and all(map(_fits_on_line, mapping.values()))


def _fits_on_line(value: Any) -> bool:
    if isinstance(value, CommentedMap | CommentedSeq):
        return isinstance(value, CommentedMap) and bool(value.fa.flow_style())
    return "\n" not in str(value)


def kind_of(task: Any) -> str:
    """The kind of a task; empty if it has none."""
    kind = value_at(task, "kind")
    return kind if isinstance(kind, str) else ""


def is_python_code(holder: Any, key: Key) -> bool:
    """Whether an entry is the code of a python task, which is no template. Its kind may still have an older name."""
    return key == "code" and "python" in [value_at(holder, word) for word in ("kind", "type", "tool")]


def value_at(node: Any, *path: str) -> Any:
    """The value at a path of mappings; ``None`` if there is none."""
    for key in path:
        node = node.get(key) if isinstance(node, CommentedMap) else None
    return node


def mapping_at(node: Any, *path: str) -> CommentedMap | None:
    """The mapping at a path; ``None`` if there is none."""
    found = value_at(node, *path)
    return found if isinstance(found, CommentedMap) else None


def shown(value: Any) -> str:
    """A value of the file on one line, for a note."""
    if isinstance(value, CommentedMap):
        return "{" + ", ".join(f"{key}: {shown(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, CommentedSeq):
        return "[" + ", ".join(map(shown, value)) + "]"
    return " ".join(str(value).split())


def by_scope(values: CommentedMap) -> dict[str, CommentedMap]:
    """The values that a `set` sets, by scope; those outside of scopes are set in `ctx`."""
    scopes = {key: values[key] for key in ("ctx", "iter", "vars") if isinstance(values.get(key), CommentedMap)}
    rest = {key: value for key, value in values.items() if key not in scopes}
    if rest and scopes:
        scopes["ctx"] = to_ruamel({**scopes.get("ctx", {}), **rest}, line_of(values))
    return scopes or {"ctx": values}


def free_name(first: str, taken: Container[str]) -> str:
    """A name that is not taken: this one, or one that begins with it."""
    names = chain([first], (f"{first}_{number}" for number in count(2)))
    return next(name for name in names if name not in taken)


def arcs_of(step: CommentedMap) -> list[CommentedMap]:
    """The arcs of a step's router that are mappings."""
    return mappings(value_at(step, "next", "arcs"))


def arcs_into(steps: Iterable[CommentedMap]) -> dict[str, list[tuple[CommentedMap, CommentedMap]]]:
    """The arcs into each step, by its name, with the steps that they come from."""
    found: dict[str, list[tuple[CommentedMap, CommentedMap]]] = {}
    for step in steps:
        for arc in arcs_of(step):
            found.setdefault(str(arc.get("step")), []).append((step, arc))
    return found


def mappings(value: Any) -> list[CommentedMap]:
    """The mappings in a list; none if it is not a list."""
    return [item for item in value if isinstance(item, CommentedMap)] if isinstance(value, CommentedSeq) else []


def tasks_of(tool: Any) -> Iterator[CommentedMap]:
    """The tasks of a pipeline, those inside constructs included."""
    for task in [tool] if isinstance(tool, CommentedMap) else mappings(tool):
        word = next((word for word in WORDS if word in task), None)
        if word is None:
            yield task
            continue
        for branch in mappings(task[word]) if word == "choose" else [task[word]]:
            inner = branch.get("else", branch) if isinstance(branch, CommentedMap) else None
            if isinstance(inner, CommentedMap):
                yield from tasks_of(inner.get("then") or inner.get("do"))


def section(parent: CommentedMap, *path: str, at: int = 0) -> CommentedMap:
    """The mapping under these keys of ``parent``, created if it is missing. A long path has a line for each key."""
    for key in path:
        if len(path) > 1:
            parent.fa.set_block_style()
        inner, line = parent.get(key), at or line_of(parent)
        if not isinstance(inner, CommentedMap):
            parent[key] = inner = to_ruamel({}, line, block=len(path) > 1 or not parent.fa.flow_style())
            _place(parent, key, line)
        parent = inner
    if len(path) > 1:
        parent.fa.set_block_style()
    return parent
