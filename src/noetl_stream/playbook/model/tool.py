"""The pipeline of a step: the forms of ``tool``, constructs and workbook calls (LANGUAGE §3, §12; v10 §7)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from noetl_stream.playbook.compile.layering import Layer
from noetl_stream.playbook.diagnostics import Location, Problems
from noetl_stream.playbook.kinds.language import WORKBOOK
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.playbook.model.sections import entries
from noetl_stream.playbook.model.sugar import Item, flattened, read_construct, word_of
from noetl_stream.playbook.model.task import TaskDraft, name_of_task, read_task
from noetl_stream.playbook.model.workbook import Workbook
from noetl_stream.playbook.vocabulary import legacy
from noetl_stream.playbook.vocabulary.names import name_in_file
from noetl_stream.playbook.yaml.nodes import Mapping, Node, Scalar, Sequence, kind_of


def read_tool(
    node: Node, step: str, kinds: Kinds, workbook: Workbook, layer: Layer, problems: Problems
) -> list[TaskDraft]:
    """The pipeline of a step, in order.

    Args:
        layer: Defaults of the outer scopes.
    """
    tool = _Tool(kinds, workbook, layer, problems)
    if isinstance(node, Scalar):
        shape = legacy.TOOL_SHAPE
        code = "legacy_syntax" if isinstance(node.value, str) else "wrong_type"
        message = (
            shape.message
            if isinstance(node.value, str)
            else f"`tool` must be a task or a list of tasks, not {kind_of(node)}"
        )
        problems.error(code, message, node, shape.hint)
        return []
    if isinstance(node, Mapping):
        tasks = flattened([tool.item(node, f"{step}_task")])
    else:
        if not node.items:
            hint = "add a task, or remove `tool` from a step that only routes"
            problems.error("invalid_value", "`tool` has no tasks", node, hint)
        tasks = flattened([tool.item(item, f"task_{index}") for index, item in enumerate(node.items)])
    _check_unique(tasks, problems)
    return tasks


@dataclass(frozen=True, slots=True)
class _Tool:
    """Reads the entries of a pipeline, at any depth of constructs."""

    kinds: Kinds
    workbook: Workbook
    layer: Layer
    problems: Problems

    def item(self, node: Node, synthetic: str) -> Item:
        if not isinstance(node, Mapping):
            hint = "write { kind: …, … }"
            self.problems.error("wrong_type", f"a task must be a mapping, not {kind_of(node)}", node, hint)
            self.problems.mark_unreadable(node.pointer)
            node = Mapping(node.mark, node.pointer)
        word = word_of(node)
        if word is not None:
            name = name_of_task(node, synthetic, self.problems)
            return read_construct(node, word, name, self.body, self.problems)
        task = read_task(node, synthetic, self.kinds, self.layer, self.problems)
        called = self.workbook.called(node, task.name, self.problems) if task.kind is WORKBOOK else None
        if called is None:
            return task
        node, origin = called
        return replace(read_task(node, task.name, self.kinds, self.layer, self.problems), at=task.at, origin=origin)

    def body(self, node: Node | None, what: str, prefix: str) -> list[Item]:
        """The tasks of a branch or body."""
        if isinstance(node, Sequence) and not node.items:
            self.problems.error("invalid_value", f"{what} has no tasks", node, "write [ { kind: …, … } ]")
        items = entries(node, what, self.problems)
        return [self.item(item, f"{prefix}task_{index}") for index, item in enumerate(items)]


def _check_unique(tasks: list[TaskDraft], problems: Problems) -> None:
    seen: dict[str, Location] = {}
    for task in tasks:
        name = name_in_file(task.name)
        if name is None:
            continue
        if name in seen:
            message = f"duplicate task `{name}`, first on line {seen[name].mark.line}"
            problems.error("duplicate_name", message, task.at, "rename one: task names must be unique in a step")
        seen.setdefault(name, task.at)
