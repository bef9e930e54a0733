"""The declarations and reads of names in a playbook (LANGUAGE §2, §3), by the offsets of its text.

Reads the tree of the unfinished text, so that a mistake elsewhere hides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from noetl_stream.playbook.check import bindings
from noetl_stream.playbook.editing.expressions import ReadKey, ReadPath, reads_in
from noetl_stream.playbook.editing.tree import (
    TextMapping,
    TextPair,
    TextPart,
    TextScalar,
    child_of,
    find,
    items_of,
    names_in,
    pairs_of,
    read_tree,
    scalars_in,
    text_of,
)
from noetl_stream.playbook.model.loop import READ_ONLY
from noetl_stream.playbook.model.sugar import WORDS
from noetl_stream.template.runtime.scope import NAMESPACES

Kind = Literal["step", "task", "ctx", "iter", "vars", "args", "workload", "keychain", "entry", "playbook", "schema"]

Space = frozenset[str]
"""The namespaces that a template may read."""

NOTHING: Final[Space] = frozenset()

_IN_CODE: Final = re.compile(r"\b(ctx|workload|iter)\s*+(?:\[|\.get\()\s*+(?:\"([A-Za-z_]\w*+)\"|'([A-Za-z_]\w*+)')")
"""The pattern by which Python code reads a key of a namespace by its name."""
_WRITES: Final[dict[str, Kind]] = {"set_ctx": "ctx", "set_shared": "ctx", "set_iter": "iter", "set_vars": "vars"}
BARE_ORDER: Final[tuple[Kind, ...]] = ("args", "ctx", "iter", "workload", "task", "step")
"""The order in which a bare name is looked up (LANGUAGE §2)."""
SPACE_OF: Final = {"task": "results", "step": "steps"}
MAX_DEPTH: Final = 64


class Symbol(msgspec.Struct, frozen=True):
    """A name of a playbook. ``step`` is the step it belongs to, for tasks, ``iter``, ``vars`` and ``args``."""

    kind: Kind
    name: str
    step: str = ""


class Occurrence(msgspec.Struct, frozen=True):
    """A place that declares or reads a name. ``about`` is the declared mapping, if it is one."""

    symbol: Symbol
    start: int
    end: int
    declares: bool = False
    about: TextPart | None = None


class ReadScope(msgspec.Struct, frozen=True):
    """The scope of templates: the surrounding step, if any, and the namespaces they may read."""

    step: str
    space: Space


class TextNames:
    """The names of one text.

    Attributes:
        occurrences: The places of all names, in file order, except names in unusual spelling, as over two lines.
        tasks: The tasks and constructs of each step, in file order.
    """

    def __init__(self, text: str, root: TextPart | None) -> None:
        self._text: Final = text
        self.root: Final = root
        self._found: list[Occurrence] = []
        self._templates: list[tuple[TextScalar, ReadScope]] = []
        self._code: list[tuple[TextScalar, str]] = []
        self.tasks: Final[dict[str, list[str]]] = {}
        self._declared: dict[tuple[Kind, str], dict[str, None]] = {}
        self._document()
        for symbol in (one.symbol for one in self._found if one.declares):
            self._declared.setdefault((symbol.kind, symbol.step), {})[symbol.name] = None
        for scalar, scope in self._templates:
            for path in reads_in(text, scalar):
                self._read(path, scope)
        for scalar, step in self._code:
            self._read_code(scalar, step)
        written = (one for one in self._found if text[one.start : one.end] == one.symbol.name)
        self.occurrences: Final = sorted(written, key=lambda one: (one.start, one.end))

    @classmethod
    def of(cls, text: str) -> TextNames:
        return cls(text, read_tree(text))

    def declared_names(self, kind: Kind, step: str = "") -> list[str]:
        """The declared names of a kind, in file order."""
        return [*self._declared.get((kind, step), ())]

    def occurrence_at(self, offset: int) -> Occurrence | None:
        """The name at an offset, or that ends there."""
        return next((one for one in self.occurrences if one.start <= offset <= one.end), None)

    def occurrences_of(self, symbol: Symbol) -> list[Occurrence]:
        return [one for one in self.occurrences if one.symbol == symbol]

    def about(self, symbol: Symbol) -> TextPart | None:
        """The part that the first declaration of a name declares."""
        return next((one.about for one in self.occurrences_of(symbol) if one.declares), None)

    def scope_of(self, scalar: TextScalar) -> ReadScope | None:
        """The scope of a template in a value; ``None`` if the value is not rendered."""
        return next((scope for one, scope in self._templates if one is scalar), None)

    def meaning(self, name: str, scope: ReadScope) -> Symbol | None:
        """The symbol that a bare name is bound to at a place."""
        for kind in BARE_ORDER:
            if SPACE_OF.get(kind, kind) in scope.space:
                symbol = self._symbol(kind, name, scope)
                if name in self._declared.get((symbol.kind, symbol.step), ()):
                    return symbol
        return None

    # What is written

    def _document(self) -> None:
        root = self.root
        for pair in pairs_of(child_of(root, "workload")):
            self._declare("workload", pair.key, about=pair.value)
        for item in items_of(child_of(root, "keychain")):
            if isinstance(name := child_of(item, "name"), TextScalar):
                self._declare("keychain", name, about=item)
        spec = find(root, ("executor", "spec"))
        if isinstance(entry := child_of(spec, "entry_step"), TextScalar):
            self._refer("step", entry)
        if isinstance(last := find(spec, ("policy", "finally")), TextScalar):
            self._refer("step", last)
        self._render(find(root, ("metadata", "labels")), "", bindings.STARTING)
        self._render(child_of(spec, "result"), "", bindings.RESULT)
        for path in (("concurrency", "key"), ("tracing", "attributes")):
            self._render(find(spec, ("policy", *path)), "", bindings.STARTING)
        steps = [item for item in items_of(child_of(root, "workflow")) if isinstance(item, TextMapping)]
        self._workbook(child_of(root, "workbook"))
        for step in steps:
            self._step(step)

    def _workbook(self, workbook: TextPart | None) -> None:
        for pair in pairs_of(child_of(workbook, "tasks")):
            self._declare("entry", pair.key, about=pair.value)
            self._task(pair.value, "")
        for item in items_of(workbook):
            if isinstance(name := child_of(item, "name"), TextScalar):
                self._declare("entry", name, about=item)
            self._task(child_of(item, "tool"), "")

    def _step(self, step: TextMapping) -> None:
        named = step.get("step")
        name = text_of(named)
        if isinstance(named, TextScalar):
            self._declare("step", named, about=step)
        self.tasks.setdefault(name, [])
        self._loop(step.get("loop"), name, bindings.LOOP)
        self._render(find(step, ("spec", "policy", "admit")), name, bindings.ADMISSION)
        self._render(find(step, ("spec", "policy", "limit", "key")), name, bindings.LOOP)
        self._render(find(step, ("spec", "policy", "lifecycle", "timeout_s")), name, bindings.STARTED)
        self._render(find(step, ("spec", "policy", "emit", "events")), name, bindings.ARC)
        self._render(find(step, ("spec", "policy", "tracing", "attributes")), name, bindings.STARTED)
        for tool in (step.get("tool"), find(step, ("spec", "policy", "compensation", "tool"))):
            if isinstance(tool, TextMapping):
                self._task(tool, name)
            self._entries(tool, name, 0)
        for arc in items_of(find(step, ("next", "arcs"))):
            target = child_of(arc, "step")
            if isinstance(target, TextScalar):
                self._refer("step", target)
            for pair in pairs_of(child_of(arc, "args")):
                self._declare("args", pair.key, text_of(target), about=pair.value)
            self._render(child_of(arc, "when"), name, bindings.ARC)
            self._render(child_of(arc, "args"), name, bindings.ARC)
            self._render(child_of(arc, "spec"), name, bindings.ARC)
        self._render(find(step, ("next", "spec", "policy")), name, bindings.ARC)

    def _loop(self, loop: TextPart | None, step: str, space: Space, depth: int = 0) -> None:
        if not isinstance(loop, TextMapping) or depth > MAX_DEPTH:
            return
        if isinstance(iterator := loop.get("iterator"), TextScalar):
            self._declare("iter", iterator, step, about=loop)
        self._render(loop.get("in"), step, space)
        self._task(loop.get("rows"), step)
        for path in (("spec", "max_in_flight"), ("spec", "policy", "max_in_flight")):
            self._render(find(loop, path), step, space)
        self._loop(loop.get("loop"), step, bindings.INNER_LOOP, depth + 1)

    def _entries(self, entries: TextPart | None, step: str, depth: int) -> None:
        """Reads the tasks and constructs of a list."""
        for item in items_of(entries) if depth <= MAX_DEPTH else ():
            if not isinstance(item, TextMapping):
                continue
            label = label_of(item)
            if label is not None:
                self._declare_task(label.key, step, label.value)
                self._task(label.value, step)
                continue
            if isinstance(name := item.get("name"), TextScalar):
                self._declare_task(name, step, item)
            word = construct_of(item)
            if word is None:
                self._task(item, step)
                continue
            for branch in branches_of(item, word):
                self._render(child_of(branch, "when"), step, bindings.SUGAR)
                for body in bodies_of(branch, word):
                    self._entries(body, step, depth + 1)

    def _declare_task(self, name: TextScalar, step: str, about: TextPart | None) -> None:
        self._declare("task", name, step, about)
        if text_of(child_of(about, "kind")) == "workbook" and child_of(about, "task") is None:
            self._refer("entry", name)
        self.tasks.setdefault(step, []).append(name.value)

    def _task(self, task: TextPart | None, step: str) -> None:
        kind = text_of(child_of(task, "kind"))
        for pair in pairs_of(task):
            key, value = pair.key.value, pair.value
            if key == "spec":
                self._task_spec(value, step)
            elif key == "code" and isinstance(value, TextScalar):
                self._code.append((value, step))
            elif key not in ("name", "kind"):
                self._render(value, step, bindings.INPUTS)
            if not isinstance(value, TextScalar):
                continue
            if key in ("auth", "credential"):
                self._refer("keychain", value)
            elif kind == "workbook" and key == "task":
                self._refer("entry", value)
            elif kind == "playbook" and key == "path" and "{" not in value.value:
                self._refer("playbook", value)

    def _task_spec(self, spec: TextPart | None, step: str) -> None:
        schema = find(spec, ("result", "schema", "path"))
        if isinstance(schema, TextScalar):
            self._refer("schema", schema)
        self._render(find(spec, ("policy", "limit", "key")), step, bindings.SUGAR)
        for path in (("timeout",), ("policy", "tracing", "attributes")):
            self._render(find(spec, path), step, bindings.BOUNDS)
        for rule in items_of(find(spec, ("policy", "rules"))):
            self._render(child_of(rule, "when"), step, bindings.POLICY)
            for then in (child_of(rule, "then"), find(rule, ("else", "then"))):
                if isinstance(to := child_of(then, "to"), TextScalar):
                    self._refer("task", to, step)
                for pair in pairs_of(then):
                    written = _WRITES.get(pair.key.value)
                    for one in pairs_of(pair.value) if written else ():
                        self._declare(written, one.key, "" if written == "ctx" else step, one.value)  # type: ignore[arg-type]
                    self._render(pair.value, step, bindings.POLICY)

    def _render(self, part: TextPart | None, step: str, space: Space) -> None:
        scope = ReadScope(step, space)
        self._templates += ((scalar, scope) for scalar in scalars_in(part))

    def _declare(self, kind: Kind, name: TextScalar, step: str = "", about: TextPart | None = None) -> None:
        if name.value:
            start, end = name.inner
            self._found.append(Occurrence(Symbol(kind, name.value, step), start, end, True, about))

    def _refer(self, kind: Kind, name: TextScalar, step: str = "") -> None:
        start, end = name.inner
        self._found.append(Occurrence(Symbol(kind, name.value, step), start, end))

    # What templates and code read

    def _symbol(self, kind: Kind, name: str, scope: ReadScope) -> Symbol:
        return Symbol(kind, name, scope.step if kind in ("task", "iter", "vars", "args") else "")

    def _read(self, path: ReadPath, scope: ReadScope) -> None:
        first, *keys = path
        if first.name not in NAMESPACES:
            symbol = self.meaning(first.name, scope)
            if symbol is not None:
                self._note(symbol, first)
                self._read_result_of(symbol, keys)
            return
        if first.name == "iter":
            while keys and keys[0].name == "parent":
                keys = keys[1:]
        if not keys:
            return
        key = keys[0]
        match first.name:
            case "ctx" | "workload" | "vars" | "args" | "keychain":
                kind: Kind = first.name
                self._note(self._symbol(kind, key.name, scope), key)
            case "iter" if key.name not in READ_ONLY:
                self._note(Symbol("iter", key.name, scope.step), key)
            case "steps":
                symbol = Symbol("step", key.name)
                self._note(symbol, key)
                self._read_result_of(symbol, keys[1:])
            case "results":
                self._note(Symbol("task", key.name, scope.step), key)
            case _:
                pass

    def _read_result_of(self, symbol: Symbol, keys: list[ReadKey]) -> None:
        """Reads ``.results.<task>`` of a step."""
        if symbol.kind == "step" and len(keys) > 1 and keys[0].name == "results":
            self._note(Symbol("task", keys[1].name, symbol.name), keys[1])

    def _read_code(self, code: TextScalar, step: str) -> None:
        for found in _IN_CODE.finditer(self._text, *code.inner):
            kind: Kind = found[1]  # type: ignore[assignment]
            group = 2 if found[2] is not None else 3
            symbol = Symbol(kind, found[group], step if kind == "iter" else "")
            self._found.append(Occurrence(symbol, *found.span(group)))

    def _note(self, symbol: Symbol, key: ReadKey) -> None:
        self._found.append(Occurrence(symbol, key.start, key.end))


def label_of(item: TextMapping) -> TextPair | None:
    """The label of a labelled task; ``None`` for another."""
    if len(item.pairs) != 1 or "kind" not in names_in(item.pairs[0].value):
        return None
    return None if item.pairs[0].key.value in WORDS else item.pairs[0]


def construct_of(item: TextMapping) -> str | None:
    """The keyword of an entry that is a construct."""
    return None if "kind" in item.names else next((word for word in WORDS if word in item.names), None)


def branches_of(item: TextMapping, word: str) -> list[TextPart | None]:
    """The branches of a construct; of ``while`` and ``until`` its only one."""
    return items_of(item.get(word)) if word == "choose" else [item.get(word)]


def bodies_of(branch: TextPart | None, word: str) -> Iterator[TextPart | None]:
    """The pipelines in a branch of a construct."""
    inner = "then" if word == "choose" else "do"
    yield child_of(branch, inner)
    yield find(branch, ("else", inner))


def task_mappings(entries: TextPart | None) -> Iterator[TextMapping]:
    """The tasks of a pipeline, at any depth of constructs."""
    parts: Iterable[TextPart | None] = [entries] if isinstance(entries, TextMapping) else items_of(entries)
    for part in parts:
        if not isinstance(part, TextMapping):
            continue
        label = label_of(part)
        word = construct_of(part)
        if label is not None and isinstance(label.value, TextMapping):
            yield label.value
        elif word is None:
            yield part
        else:
            for body in (body for branch in branches_of(part, word) for body in bodies_of(branch, word)):
                yield from task_mappings(body)
