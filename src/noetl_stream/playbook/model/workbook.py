"""The workbook: reusable tasks, run by ``kind: workbook`` (LANGUAGE §12).

A call becomes the entry's task under the call's name. Its ``args`` are merged over the entry's ``args`` if the kind has
that input, else over the entry's inputs; its ``spec`` over the entry's. Both merge like scopes (LANGUAGE §1
*Layering*): mappings key by key, anything else replaces. A call's ``policy`` replaces the entry's.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from typing import Annotated, Final

import msgspec
from msgspec.structs import replace

from noetl_stream.playbook.diagnostics import Location, Problems
from noetl_stream.playbook.kinds.inputs import spellings
from noetl_stream.playbook.kinds.spec import WORKBOOK, Kinds, KindSpec
from noetl_stream.playbook.model.layering import Layer, merge_mappings
from noetl_stream.playbook.model.sections import (
    Part,
    Required,
    Section,
    described,
    is_null,
    pairs,
    ref,
    report_wrong_type,
)
from noetl_stream.playbook.model.sugar import word_of
from noetl_stream.playbook.model.task import LANGUAGE_KEYS, TaskDraft, label_of_task, move_spec_keys, read_task, unlabel
from noetl_stream.playbook.suggestions import did_you_mean, list_names
from noetl_stream.playbook.vocabulary.names import check_name, report_duplicate
from noetl_stream.playbook.yaml.nodes import Mapping, MappingKey, Node, Scalar, Sequence, holds_template

_SHAPE: Final = "workbook: { tasks: { <name>: { kind: …, … } } }"


class WorkbookTasks(Section):
    title = "the workbook"

    tasks: Part = described(
        "The tasks by name.",
        {"type": ["object", "null"], "propertyNames": ref("name"), "additionalProperties": ref("workbook_task")},
    )


class ListedEntry(Section):
    title = "an entry of the workbook"

    name: Annotated[str, Required("- { name: …, tool: { kind: …, … } }")] = described(
        "The name that steps use.", ref("name"), default=""
    )
    tool: Annotated[Part, Required("- { name: …, tool: { kind: …, … } }")] = described(
        "The task.", ref("workbook_task")
    )


class WorkbookEntry(msgspec.Struct, frozen=True):
    """A workbook entry as read; ``at`` is its name. ``draft`` is ``None`` if it cannot be called."""

    at: Location
    task: Mapping
    draft: TaskDraft | None


class Workbook(msgspec.Struct, frozen=True):
    """The workbook: its entries by name, and those in use."""

    entries: MappingOf[str, WorkbookEntry]
    used: set[str] = msgspec.field(default_factory=set)

    def find_called(self, node: Mapping, name: str, problems: Problems) -> tuple[Mapping, str] | None:
        """The task that a call runs, and its origin; ``None``, after reporting, if it has none.

        Args:
            node: The task of kind ``workbook``.
            name: The name of that task.
        """
        named = node.get("task") or node.get("name")
        if named is None:
            hint = "write task: <entry>, or name the task like the entry"
            problems.error("missing_key", "a task of kind `workbook` needs `task`", node, hint)
            return None
        called = named.plain() if "task" in node.keys else name
        if not isinstance(called, str):
            return None
        entry = self.entries.get(called)
        if entry is None:
            known = (
                f"entries: {list_names(self.entries)}; `task` is not rendered" if self.entries else f"write {_SHAPE}"
            )
            hint = did_you_mean(called, self.entries) or known
            problems.error("unknown_entry", f"the workbook has no entry `{called}`", named, hint)
            return None
        self.used.add(called)
        if entry.draft is None or entry.draft.kind is None:
            return None
        own = node.drop_keys(node.keys.keys() - {"name", "spec"})
        defined = move_spec_keys(entry.task, entry.draft.kind, problems)
        task = merge_mappings(_with_args(defined, entry.draft.kind, node.get("args"), problems), own)
        return _with_spec(task, defined, own), f"workbook {called}, line {entry.at.mark.line}"

    def unused_entries(self) -> dict[str, WorkbookEntry]:
        """The workbook entries that no task runs."""
        return {name: entry for name, entry in self.entries.items() if name not in self.used}


def read_workbook(node: Node | None, kinds: Kinds, problems: Problems) -> Workbook:
    """Reads the root ``workbook``. Each entry is checked alone, except for required inputs, which calls may add."""
    entries: dict[str, WorkbookEntry] = {}
    for name, at, task in _read_listed(node, problems):
        if name in entries:
            first, rule = entries[name].at.mark.line, "entry names must be unique in the workbook"
            report_duplicate(f"workbook entry `{name}`", first, at, rule, problems)
        elif check_name(name, "an entry's name", at, problems) and isinstance(task, Mapping):
            entries[name] = WorkbookEntry(at, task, _read_entry(task, name, kinds, problems))
        elif not isinstance(task, Mapping):
            report_wrong_type(task, "a workbook entry", "one task", problems, "write { kind: …, … }")
    return Workbook(entries)


def _read_listed(node: Node | None, problems: Problems) -> list[tuple[str, Location, Node]]:
    if isinstance(node, Sequence):
        found: list[tuple[str, Location, Node]] = []
        for item in (ListedEntry.recover(item, problems) for item in node.items):
            entry = ListedEntry.from_node(item, problems)
            if entry.name and entry.tool is not None and isinstance(item, Mapping):
                found.append((entry.name, item.values["name"], entry.tool))
        return found
    tasks = WorkbookTasks.from_node(node, problems).tasks
    return [(key.name, key, task) for key, task in ([] if is_null(tasks) else pairs(tasks, "`tasks`", problems))]


def _read_entry(task: Mapping, name: str, kinds: Kinds, problems: Problems) -> TaskDraft | None:
    """Reads the task of an entry; ``None`` if it cannot be called."""
    if (word := word_of(task)) is not None:
        hint = f"put the `{word}` in the step and its tasks in the workbook"
        problems.error("workbook_entry", f"a workbook entry must be one task, not a `{word}`", task.keys[word], hint)
        return None
    if (label := label_of_task(task)) is not None:
        hint = "remove the label: an entry is named by its key"
        problems.error("label_keyed_task", "a workbook entry cannot have a label", label, hint)
        task = unlabel(task, problems).drop_keys({"name"})
    if "name" in task.keys:
        problems.error("workbook_entry", "a workbook entry is named by its key", task.keys["name"], "remove `name`")
    draft = read_task(task.drop_keys({"name"}), name, kinds, Layer(), problems, require_all=False)
    for rule in draft.policy.rules if draft.policy else ():
        if rule.do == "jump":
            hint = "put `jump` in the policy of the task that calls the entry"
            problems.error("workbook_entry", "a workbook entry cannot jump", rule.to_node or rule.at, hint)
    if draft.kind is WORKBOOK:
        at = task.values.get("kind", task)
        problems.error("workbook_entry", "a workbook entry cannot call the workbook", at, "write the tool's kind")
        return None
    return draft


def _with_args(task: Mapping, kind: KindSpec, args: Node | None, problems: Problems) -> Mapping:
    """Merges the call's ``args`` over the entry's task."""
    if not isinstance(args, Mapping):
        if args is not None and holds_template(args):
            hint = "write args: { … }, which is merged key by key"
            problems.error("wrong_type", "`args` of a workbook call must be a mapping, not a template", args, hint)
        return task
    known = spellings(kind.inputs)
    if "args" in known or kind.inputs.model_config.get("extra") == "allow":
        return merge_mappings(task, _mapping_of_one("args", args))
    for name in args.keys.keys() & LANGUAGE_KEYS:
        problems.error("unknown_key", f"`{name}` is not an input of kind `{kind.kind}`", args.keys[name])
    given = {known.get(name): name for name in args.keys}
    renamed = {name: given.get(known.get(name), name) if name in known else name for name in task.keys}
    keys = {renamed[name]: key for name, key in task.keys.items()}
    values = {renamed[name]: value for name, value in task.values.items()}
    return merge_mappings(replace(task, keys=keys, values=values), args.drop_keys(LANGUAGE_KEYS))


def _with_spec(task: Mapping, entry: Mapping, call: Mapping) -> Mapping:
    """Merges the ``spec`` of the entry and of the call into ``task``; a call's policy replaces the entry's."""
    outer, inner = entry.get("spec"), call.get("spec")
    if not isinstance(outer, Mapping) or not isinstance(inner, Mapping):
        return task
    spec = merge_mappings(_expand_timeout(outer), _expand_timeout(inner))
    if "policy" in inner.keys:
        spec.values["policy"] = inner.values["policy"]
    return replace(task, values={**task.values, "spec": spec})


def _expand_timeout(spec: Mapping) -> Mapping:
    timeout = spec.get("timeout")
    if not isinstance(timeout, Scalar):
        return spec
    return replace(spec, values={**spec.values, "timeout": _mapping_of_one("total", timeout)})


def _mapping_of_one(name: str, value: Node) -> Mapping:
    """Makes the mapping with ``value`` as its only one."""
    return Mapping(value.mark, value.pointer, {name: MappingKey(name, value.mark, value.pointer)}, {name: value})
