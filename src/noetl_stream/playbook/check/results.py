"""Reads of results: the task whose result a path reads, and its known schema (LANGUAGE §2 *Results*, §10)."""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingOf
from collections.abc import Sequence
from itertools import dropwhile
from typing import Any, Final, NamedTuple

from noetl_stream.playbook.check.bindings import Path, Visible
from noetl_stream.playbook.model.loop import LoopDraft
from noetl_stream.playbook.model.step import StepDraft
from noetl_stream.playbook.model.task import TaskDraft
from noetl_stream.playbook.results.result_schema import ResultSchema
from noetl_stream.playbook.results.validator import ITEM, Unknown, Walk
from noetl_stream.playbook.yaml.nodes import Mapping, Node, Scalar

_ONE_PATH: Final = re.compile(r"\s*\{\{\s*([A-Za-z_]\w*(?:\.\w+)*)\s*\}\}\s*\Z")
LISTED: Final = ("rows", "data")
"""The keys of a result that may be a list."""
_NUMBERS: Final = frozenset(["status", "row_count", "exit_code"])
"""The keys of results that are numbers."""
_NOTHING: Final[MappingOf[str, Any]] = {}


class ReadResult(NamedTuple):
    """A read of a task's result: the task, and the keys below the result; :data:`.ITEM` is any item of a list."""

    task: TaskDraft
    keys: Path

    def key_text(self, depth: int) -> str:
        """The first keys of the read in the syntax of templates: ``rows[].name``."""
        return "".join(key if key == ITEM else f".{key}" for key in self.keys[:depth]).removeprefix(".")


class ResultReads:
    """The reads of results whose schema is known.

    Args:
        steps: All steps, by name.
        registered: The schemas that the catalog has, by address.
    """

    def __init__(self, steps: MappingOf[str, StepDraft], registered: MappingOf[str, Any] = _NOTHING) -> None:
        self._steps = steps
        self._registered = registered
        self._walks: dict[int, Walk] = {}

    def unknown(self, path: Path, visible: Visible) -> tuple[ReadResult, Unknown] | None:
        """The read of a result at ``path``, and where it leaves the schema; ``None`` if it does not."""
        read = self._read(path, visible)
        walk = self._walk(read.task.schema) if read is not None and read.keys and read.task.schema is not None else None
        if read is None or walk is None:
            return None
        if path[0] != "event":
            read = _without_data(read, walk)
        unknown = walk.unknown(read.keys) if read is not None else None
        return None if read is None or unknown is None else (read, unknown)

    def key_of_list(self, path: Path) -> tuple[str, str] | None:
        """The step with a loop and the key that is read of its result, which is a list."""
        match path:
            case ("steps", name, key, *more) if name in self._steps and self._steps[name].levels:
                is_task = key == "results" and bool(more)
                return None if key in ("outcome", ITEM) or is_task else (name, key)
        return None

    def whole(self, path: Path, visible: Visible) -> ReadResult | None:
        """The read of a whole result; ``None`` if the path leads into it."""
        read = self._read(path, visible)
        return read if read is not None and not read.keys else None

    def has(self, path: Path, visible: Visible) -> bool:
        """Whether the result at ``path`` is known to have the first key that is read of it."""
        read = self._read(path, visible)
        if read is None or read.task.kind is None or not read.keys:
            return False
        args = read.task.inputs.get("args") if read.task.kind.kind == "noop" else None
        return read.keys[0] in (read.task.kind.result_keys or (args.keys if isinstance(args, Mapping) else ()))

    def number(self, path: Path, visible: Visible) -> ReadResult | None:
        """The read of a number of a result at ``path``."""
        read = self._read(path, visible)
        known = read.task.kind.result_keys if read is not None and read.task.kind is not None else ()
        return (
            read if read is not None and len(read.keys) == 1 and read.keys[0] in _NUMBERS.intersection(known) else None
        )

    def is_length_of_data(self, path: Path, visible: Visible) -> bool:
        """Whether a path asks a list or text in a result for its length in the syntax of other languages."""
        read = self._read(path, visible) if path[-1] == "length" else None
        return read is not None and read.task.schema is None and len(read.keys) > 1 and read.keys[0] in LISTED

    def foreign_key(self, path: Path, visible: Visible) -> ReadResult | None:
        """The read of a result at ``path`` whose first key no result of its kind has."""
        read = self._read(path, visible)
        known = read.task.kind.result_keys if read is not None and read.task.kind is not None else ()
        if read is None or not known or not read.keys or read.keys[0] in (*known, "outcome", "results", ITEM):
            return None
        if read.keys[0] == "data" and path[0] != "event":
            read = read._replace(keys=read.keys[1:])
        return read if read.keys and read.keys[0] not in known else None

    def _read(self, path: Path, visible: Visible) -> ReadResult | None:
        around = self._steps.get(visible.step)
        match path:
            case ("results", name, *keys) if around is not None:
                task = _task_of(around, name)
            case ("steps", name, "results", task_name, *keys) if name in self._steps:
                task = _task_of(self._steps[name], task_name)
            case ("steps", name, *keys) if name in self._steps:
                task = _last_task(self._steps[name])
            case ("event", "result", *keys) if around is not None:
                task = _last_task(around)
            case ("iter", *names) if around is not None:
                return self._read_item(tuple(names), visible, around.levels)
            case _:
                return None
        return ReadResult(task, tuple(keys)) if task is not None else None

    def _read_item(self, names: Path, visible: Visible, levels: Sequence[LoopDraft]) -> ReadResult | None:
        """The read of an iterator's item, if its level iterates over a path into a result."""
        name, *keys = [*dropwhile("parent".__eq__, names)] or [""]
        depth = next((depth for depth, level in enumerate(levels) if level.iterator == name), None)
        path = None if depth is None else path_in(levels[depth].items, visible)
        if path is None:
            return None
        inside = path[0] == "iter"
        listed = self._read_item(path[1:], visible, levels[:depth]) if inside else self._read(path, visible)
        return None if listed is None else listed._replace(keys=(*listed.keys, ITEM, *keys))

    def _walk(self, schema: ResultSchema) -> Walk | None:
        content = self._registered.get(schema.address) if schema.address else schema.content
        if not isinstance(content, MappingOf):
            return None
        return self._walks.setdefault(id(content), Walk(content))


def _without_data(read: ReadResult, walk: Walk) -> ReadResult | None:
    """Applies the rules of names of results (LANGUAGE §2 *Results*); ``None`` if no key of the result is read."""
    first, *rest = read.keys
    if first == ITEM or walk.has(first):
        return read
    if first == "data":
        return read._replace(keys=tuple(rest)) if rest else None
    return None if first in ("outcome", "results") else read


def path_in(node: Node | None, visible: Visible) -> Path | None:
    """The path that a value consists of, such as ``{{ fetch.rows }}``; ``None`` for any other value."""
    found = _ONE_PATH.match(node.value) if isinstance(node, Scalar) and isinstance(node.value, str) else None
    if found is None:
        return None
    first, *keys = found[1].split(".")
    bound = visible.bindings.get(first) or ((first,) if first in visible.namespaces else None)
    return None if bound is None else (*bound, *keys)


def _task_of(step: StepDraft, name: str) -> TaskDraft | None:
    return next((task for task in step.tasks if task.name == name), None)


def _last_task(step: StepDraft) -> TaskDraft | None:
    """The task whose result is the step's; ``None`` if that depends on the run, or the result is a loop's list."""
    may_be_last = [task for task in step.tasks if task is step.tasks[-1] or _may_break(task)]
    is_sure = step.loop is None and len(may_be_last) == 1 and not may_be_last[0].origin
    return may_be_last[0] if is_sure else None


def _may_break(task: TaskDraft) -> bool:
    return task.policy is not None and any(rule.do == "break" for rule in task.policy.rules)
