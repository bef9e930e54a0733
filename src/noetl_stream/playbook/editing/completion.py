"""Completion: keys and words of the JSON Schema of playbooks, and the names of the playbook in scope at a place."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from noetl_stream.playbook.check.reads import BLOCK_FIELDS, EVENT_KEYS, EXECUTION_KEYS, OUTCOME_KEYS
from noetl_stream.playbook.editing.expressions import expression_before
from noetl_stream.playbook.editing.names import BARE_ORDER, SPACE_OF, ReadScope, Symbol, TextNames, task_mappings
from noetl_stream.playbook.editing.tree import (
    Step,
    TextList,
    TextMapping,
    TextPart,
    TextScalar,
    child_of,
    find,
    items_of,
    names_in,
    pairs_of,
    path_to,
    read_tree,
    text_of,
)
from noetl_stream.playbook.model.loop import READ_ONLY
from noetl_stream.playbook.model.policy import TOKEN_KEYS
from noetl_stream.playbook.model.step import MERGED_ARGS
from noetl_stream.playbook.vocabulary.names import NAMESPACE_WORDS
from noetl_stream.template.filters.values import FILTERS, TESTS
from noetl_stream.template.runtime.scope import SHADOWABLE

Schema = dict[str, Any]

_DEEPEST: Final = 24
_DEEPEST_CONDITION: Final = 8


class KnownKey(msgspec.Struct, frozen=True):
    """A key that a place may have. ``opens`` is the kind of its value: ``mapping``, ``list`` or empty."""

    name: str
    description: str
    opens: str


class SchemaWords:
    """The keys, values and descriptions of one JSON Schema, by path."""

    def __init__(self, schema: Schema) -> None:
        self._root: Final = schema

    def keys_at(self, root: TextPart | None, path: tuple[Step, ...], *, also_there: bool = False) -> list[KnownKey]:
        """The keys that the mapping at a path may have, without its present keys unless ``also_there``."""
        there = set() if also_there else set(names_in(find(root, path)))
        found: dict[str, KnownKey] = {}
        held = self._schemas_at(root, path)
        properties = [pair for schema in held for pair in schema.get("properties", {}).items()]
        for name, one in [*properties, *(pair for schema in held for pair in self._deciding_keys(schema, there))]:
            known = [*self._expand(one, None)]
            if not known or name in there or (name in found and found[name].description):
                continue
            description = _description(known)
            if not description.startswith("Reserved"):
                found[name] = KnownKey(name, description, _opens(known))
        return [*found.values()]

    def _deciding_keys(self, schema: Schema, there: set[str]) -> Iterator[tuple[str, Schema]]:
        """The keys that would satisfy a condition that asks only for keys, such as ``else``."""
        condition = schema.get("if", {})
        if condition.keys() == {"required"} and not there & set(condition["required"]):
            for inner in self._expand(schema.get("then", {}), None):
                yield from (
                    (name, inner["properties"][name])
                    for name in condition["required"]
                    if name in inner.get("properties", {})
                )

    def values_at(self, root: TextPart | None, path: tuple[Step, ...]) -> list[str]:
        """The words that the value at a path may be, as far as known."""
        words: dict[str, None] = {}
        for schema in self._schemas_at(root, path):
            listed = [schema["const"]] if "const" in schema else schema.get("enum", ())
            if not listed and "boolean" in _types(schema):
                listed = [True, False]
            for word in listed:
                if isinstance(word, bool):
                    words["true" if word else "false"] = None
                elif isinstance(word, str | int) and word != "":
                    words[str(word)] = None
        return [*words]

    def about(self, root: TextPart | None, path: tuple[Step, ...]) -> list[str]:
        """The texts about the key that ends a path: its description, its possible values, its default."""
        if not path or not isinstance(path[-1], str):
            return []
        held = [inner for schema in self._schemas_at(root, path[:-1]) for inner in _schemas_within(schema, path[-1])]
        known = [one for schema in held for one in self._expand(schema, find(root, path))]
        words = self.values_at(root, path)
        types = list(dict.fromkeys(kind for one in known for kind in _types(one) if kind != "null"))
        default = next((one["default"] for one in known if one.get("default") is not None), None)
        kinds = f"One of {', '.join(f'`{word}`' for word in words)}." if words else ""
        if types and not words:
            kinds = f"Type: {' or '.join(types)}."
        shown = "" if default is None else f"Default: `{msgspec.json.encode(default).decode()}`."
        return [line for line in (_description(known), kinds, shown) if line]

    def _schemas_at(self, root: TextPart | None, path: tuple[Step, ...]) -> list[Schema]:
        """The schemas that apply at a path, as far as the text so far decides."""
        held = [*self._expand(self._root, root)]
        for step in path:
            root = child_of(root, step)
            inner = [one for schema in held for one in _schemas_within(schema, step)]
            held = [found for schema in inner for found in self._expand(schema, root)]
        return held

    def _expand(self, schema: Schema, part: TextPart | None, depth: int = 0) -> Iterator[Schema]:
        """Yields a schema, and all schemas that apply with it."""
        if depth > _DEEPEST or schema.get("doNotSuggest"):
            return
        yield schema
        also = [*schema.get("allOf", ()), *schema.get("anyOf", ()), *schema.get("oneOf", ())]
        if (referred := self._resolve(schema)) is not None:
            also.insert(0, referred)
        if "if" in schema:
            chosen = schema.get("then" if self._matches(schema["if"], part) else "else")
            also += [chosen] if chosen else []
        for one in also:
            yield from self._expand(one, part, depth + 1)

    def _resolve(self, schema: Schema) -> Schema | None:
        name = schema.get("$ref", "").removeprefix("#/$defs/")
        return self._root["$defs"].get(name) if name else None

    def _matches(self, schema: Schema, part: TextPart | None, depth: int = 0) -> bool:
        """Whether the text so far matches the condition of an ``if``."""
        if depth > _DEEPEST_CONDITION:
            return True
        names = names_in(part)
        referred = self._resolve(schema)
        properties, other = schema.get("properties", {}), schema.get("additionalProperties")
        return (
            (referred is None or self._matches(referred, part, depth + 1))
            and _is_of(schema, part)
            and all(name in names for name in schema.get("required", ()))
            and schema.get("minProperties", 0) <= len(names) <= schema.get("maxProperties", len(names))
            and all(self._matches(one, part, depth + 1) for one in schema.get("allOf", ()))
            and ("anyOf" not in schema or any(self._matches(one, part, depth + 1) for one in schema["anyOf"]))
            and ("not" not in schema or not self._matches(schema["not"], part, depth + 1))
            and all(
                self._matches(inner, pair.value, depth + 1)
                for pair in pairs_of(part)
                if isinstance(inner := properties.get(pair.key.value, other), dict)
            )
        )


def _schemas_within(schema: Schema, step: Step) -> list[Schema]:
    if isinstance(step, int):
        inner = schema.get("items")
    else:
        inner = schema.get("properties", {}).get(step, schema.get("additionalProperties"))
    return [inner] if isinstance(inner, dict) else []


def _is_of(schema: Schema, part: TextPart | None) -> bool:
    words = [schema["const"]] if "const" in schema else schema.get("enum")
    if words is not None and not (isinstance(part, TextScalar) and part.value in map(str, words)):
        return False
    wanted = {"object": TextMapping, "array": TextList}.get(str(schema.get("type")))
    return wanted is None or isinstance(part, wanted)


def _types(schema: Schema) -> list[str]:
    kind = schema.get("type", [])
    return [kind] if isinstance(kind, str) else kind


def _description(schemas: list[Schema]) -> str:
    return next((one["description"] for one in schemas if one.get("description")), "")


def _opens(schemas: list[Schema]) -> str:
    kinds = {kind for schema in schemas for kind in _types(schema)} - {"null"}
    return {"object": "mapping", "array": "list"}.get(next(iter(kinds)), "") if len(kinds) == 1 else ""


_PLACEHOLDER: Final = "zz"
_WRITTEN: Final = re.compile(r"(?:\w[\w./-]*)?\Z")
_BEGINNING: Final = re.compile(r"\s*(?:- +)*\Z")
_KEY_FOLLOWS: Final = re.compile(r"[\w-]*\s*:")
_NOTHING_FOLLOWS: Final = re.compile(r"\s*(?:[},\]#]|\Z)")


class WrittenPlace(msgspec.Struct, frozen=True):
    """The place of a word that is being written.

    Attributes:
        path: The path from the root of the document; it ends with the key being written, if ``is_key``.
        is_key: Whether a key is being written, else a value.
        start: The start of the word that is being written.
        root: The document with a placeholder for the word.
        has_colon: Whether the key has its colon.
    """

    path: tuple[Step, ...]
    is_key: bool
    start: int
    root: TextPart | None
    has_colon: bool


def place_at(text: str, offset: int) -> WrittenPlace:
    """The place at an offset. An unfinished key or value is read as if it were complete."""
    line_start = text.rfind("\n", 0, offset) + 1
    line_end = text.find("\n", offset)
    after = text[offset : len(text) if line_end < 0 else line_end].rstrip("\r")
    found = _WRITTEN.search(text, line_start, offset)
    start = found.start() if found else offset
    filled = _complete_line(text[line_start:start], after)
    read = text if filled is None else f"{text[:start]}{filled}{text[offset:]}"
    root = read_tree(read)
    path, is_key = path_to(root, start)
    return WrittenPlace(path, is_key, start, root, _KEY_FOLLOWS.match(after) is not None)


def _complete_line(lead: str, after: str) -> str | None:
    """Completes a line with an unfinished key or value, so that it can be read; ``None`` if it is finished."""
    if _BEGINNING.match(lead):
        rest = " #" if after.strip() else ""
        return _PLACEHOLDER if _KEY_FOLLOWS.match(after) else f"{_PLACEHOLDER}: 0{rest}"
    opened = lead.rfind("{")
    if lead.rstrip().endswith(("{", ",")) and opened > max(lead.rfind("}"), lead.rfind("[")):
        end = "" if "}" in after else "}"
        return _PLACEHOLDER if _KEY_FOLLOWS.match(after) else f"{_PLACEHOLDER}: 0{end}"
    return _PLACEHOLDER if _NOTHING_FOLLOWS.match(after) else None


OfferKind = Literal["key", "word", "name", "namespace", "filter"]

MAX_OFFERED: Final = 500

_PATH_BEFORE: Final = re.compile(r"(?:[A-Za-z_]\w*)(?:\.\w*)*\Z|\Z")
_FILTER_BEFORE: Final = re.compile(r"\|\s*(\w*)\Z")
_TEST_BEFORE: Final = re.compile(r"\bis\s+(?:not\s+)?(\w*)\Z")
_CLOSING: Final = re.compile(r"[%}]\}")
_RESULT_VIEWS: Final = {"data": "the whole result", "outcome": "how the task ended", "results": "results of tasks"}


class Offer(msgspec.Struct, frozen=True):
    """A completion. ``text`` replaces the unfinished word."""

    label: str
    kind: OfferKind
    detail: str
    text: str


class Offers(msgspec.Struct, frozen=True):
    """The completions of a place, which replace the text from ``start`` on."""

    start: int
    offers: list[Offer]


class Language(msgspec.Struct, frozen=True):
    """The language as an editor knows it, independently of the text.

    Attributes:
        words: The JSON Schema of playbooks.
        helpers: The name of each kind's block in ``outcome``.
    """

    words: SchemaWords
    helpers: Mapping[str, str]


def complete(text: str, offset: int, language: Language, playbooks: Collection[str] = ()) -> Offers:
    """The completions at an offset.

    Args:
        playbooks: The paths of playbooks that can be called.
    """
    expression = expression_before(text, offset)
    if expression is not None:
        start, found = _complete_expression(text, offset, expression, language)
    else:
        place = place_at(text, offset)
        start = place.start
        found = _keys(place, language) if place.is_key else _values(text, place, language, playbooks)
    offers: dict[str, Offer] = {}
    for offer in found:
        if len(offers) < MAX_OFFERED:
            offers.setdefault(offer.label, offer)
    return Offers(start, [*offers.values()])


def _keys(place: WrittenPlace, language: Language) -> Iterator[Offer]:
    for key in language.words.keys_at(place.root, place.path[:-1]):
        adds = "" if place.has_colon else ": "
        yield Offer(key.name, "key", key.description, f"{key.name}{adds}")


def _values(text: str, place: WrittenPlace, language: Language, playbooks: Collection[str]) -> Iterator[Offer]:
    named = _names_for(text, place, playbooks)
    if named is not None:
        yield from _offer_names(*named)
        return
    for word in language.words.values_at(place.root, place.path):
        yield Offer(word, "word", "", word)


def _names_for(text: str, place: WrittenPlace, playbooks: Collection[str]) -> tuple[Iterable[str], str] | None:
    """The names that a value may refer to, and their kind; ``None`` for any other value."""
    path, root = place.path, place.root
    key = path[-1] if path else None
    around = find(root, path[:-1])
    if (key == "step" and "arcs" in path) or key == "entry_step":
        return TextNames(text, root).declared_names("step"), "step"
    if key == "to" and "then" in path[-2:]:
        return TextNames(text, root).tasks.get(step_around(root, path), ()), "task"
    if key in ("auth", "credential") and not {"tool", "rows"}.isdisjoint(path):
        return TextNames(text, root).declared_names("keychain"), "keychain"
    kind = text_of(child_of(around, "kind"))
    if key == "task" and kind == "workbook":
        return TextNames(text, root).declared_names("entry"), "workbook entry"
    if key == "path" and kind == "playbook":
        return playbooks, "playbook"
    return None


def step_around(root: TextPart | None, path: tuple[Step, ...]) -> str:
    """The name of the step that a path leads into."""
    return text_of(find(root, (*path[:2], "step"))) if path[:1] == ("workflow",) else ""


def _offer_names(names: Iterable[str], detail: str) -> Iterator[Offer]:
    return (Offer(name, "name", detail, name) for name in names)


def _complete_expression(text: str, offset: int, expression: str, language: Language) -> tuple[int, Iterator[Offer]]:
    if behind := _FILTER_BEFORE.search(expression):
        return offset - len(behind[1]), (Offer(name, "filter", "filter", name) for name in sorted(FILTERS))
    if behind := _TEST_BEFORE.search(expression):
        tests = sorted(name for name in TESTS if name.isidentifier())
        return offset - len(behind[1]), (Offer(name, "filter", "test", name) for name in tests)
    found = _PATH_BEFORE.search(expression)
    path = found[0] if found else ""
    *before, word = path.split(".")
    # The text without the expression, which may be open: the text after it is read as it is.
    opened = offset - len(expression) - 2
    line_end = text.find("\n", offset)
    closing = _CLOSING.search(text, offset, len(text) if line_end < 0 else line_end)
    rest = closing.end() if closing else offset
    names = TextNames.of(f"{text[:opened]}zz{text[rest:]}")
    at, _ = path_to(names.root, opened)
    scalar = find(names.root, at)
    scope = names.scope_of(scalar) if isinstance(scalar, TextScalar) else None
    if scope is None:
        return offset, iter(())
    reading = _Reading(names, scope, at, language)
    return offset - len(word), reading.offer_below(before) if before else reading.offer_bare_names()


class _Reading(msgspec.Struct, frozen=True):
    """A template that is being written."""

    names: TextNames
    scope: ReadScope
    path: tuple[Step, ...]
    language: Language

    def offer_bare_names(self) -> Iterator[Offer]:
        for kind in BARE_ORDER:
            space = SPACE_OF.get(kind, kind)
            if space in self.scope.space:
                step = self.scope.step if kind in ("task", "iter", "args") else ""
                yield from _offer_names(self.names.declared_names(kind, step), kind)
        for name, words in NAMESPACE_WORDS.items():
            if name in self.scope.space:
                yield Offer(name, "namespace", words, name)

    def offer_below(self, path: list[str]) -> Iterator[Offer]:
        """The completions after a path and a dot."""
        first, *keys = path
        symbol = self.names.meaning(first, self.scope) if first not in self.scope.space - SHADOWABLE else None
        if symbol is None and first not in self.scope.space:
            return iter(())
        if symbol is not None:
            first, keys = SPACE_OF.get(symbol.kind, symbol.kind), [symbol.name, *keys]
        match [first, *keys]:
            case ["workload", *inner]:
                return _offer_names(names_in(find(self.names.root, ("workload", *inner))), "workload")
            case ["steps"]:
                return _offer_names(self.names.declared_names("step"), "step")
            case ["steps", step]:
                tasks = [*task_mappings(child_of(self._step(step), "tool"))]
                return self._result(tasks[-1] if tasks else None, with_tasks=True)
            case ["steps", step, "results"]:
                return _offer_names(self.names.declared_names("task", step), "task")
            case ["results"]:
                return _offer_names(self.names.declared_names("task", self.scope.step), "task")
            case ["steps", step, "results", task]:
                return self._result(self._task(step, task))
            case ["results", task]:
                return self._result(self._task(self.scope.step, task))
            case ["iter", *parents] if set(parents) <= {"parent"}:
                own = self.names.declared_names("iter", self.scope.step)
                return _offer_names([*own, *sorted(READ_ONLY)], "iter")
            case ["args"]:
                merged = MERGED_ARGS if find(self._step(self.scope.step), ("spec", "join")) is not None else ()
                return _offer_names([*self.names.declared_names("args", self.scope.step), *merged], "args")
            case ["ctx"]:
                read = (one.symbol.name for one in self.names.occurrences if one.symbol.kind == "ctx")
                return _offer_names([*self.names.declared_names("ctx"), *read], "ctx")
            case ["vars"]:
                return _offer_names(self.names.declared_names("vars", self.scope.step), "vars")
            case ["keychain"]:
                return _offer_names(self.names.declared_names("keychain"), "keychain")
            case ["outcome"]:
                return _offer_names([*sorted(OUTCOME_KEYS), *self._helper()], "outcome")
            case ["outcome" | "event" | "execution", block] if block in BLOCK_FIELDS:
                return _offer_names(BLOCK_FIELDS[block], block)
            case ["event"]:
                return _offer_names(sorted(EVENT_KEYS), "event")
            case ["token"]:
                return _offer_names([*sorted(TOKEN_KEYS), *self._metadata()], "token")
            case ["execution"]:
                return _offer_names(sorted(EXECUTION_KEYS), "execution")
            case _:
                return iter(())

    def _metadata(self) -> Iterator[str]:
        """The keys that the admission of the step adds to the token."""
        for rule in items_of(find(self._step(self.scope.step), ("spec", "policy", "admit", "rules"))):
            yield from names_in(find(rule, ("then", "token")) or find(rule, ("else", "then", "token")))

    def _result(self, task: TextPart | None, *, with_tasks: bool = False) -> Iterator[Offer]:
        declared = names_in(find(task, ("spec", "result", "schema", "properties")))
        yield from _offer_names(declared, "result")
        for name, words in _RESULT_VIEWS.items():
            if name != "results" or with_tasks:
                yield Offer(name, "name", words, name)

    def _step(self, name: str) -> TextPart | None:
        return self.names.about(Symbol("step", name))

    def _task(self, step: str, name: str) -> TextPart | None:
        return self.names.about(Symbol("task", name, step))

    def _helper(self) -> list[str]:
        """The block that the kind of the surrounding task has in ``outcome``."""
        for length in range(len(self.path), 0, -1):
            around = find(self.names.root, self.path[:length])
            if isinstance(around, TextMapping) and "kind" in around.names:
                helper = self.language.helpers.get(text_of(around.get("kind")))
                return [helper] if helper else []
        return []
