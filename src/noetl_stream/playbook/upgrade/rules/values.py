"""Rewrites values on steps and at the root: `vars`, `args`, `set_ctx`, `result`, `with`, `as` (LANGUAGE §2, §5)."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from copy import deepcopy
from typing import Any, Final

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from noetl_stream.playbook.upgrade.draft import (
    Draft,
    by_scope,
    each,
    kind_of,
    line_of,
    section,
    tasks_of,
    to_ruamel,
    value_at,
)
from noetl_stream.playbook.upgrade.expressions import Path, Replaced, expression_in, group, has_template, rename_to
from noetl_stream.playbook.upgrade.rules.policies import WRITES, write_after
from noetl_stream.playbook.upgrade.rules.reads import SQL, kind_of_result
from noetl_stream.playbook.upgrade.rules.steps import pipeline_of
from noetl_stream.playbook.upgrade.rules.tasks import reads_result, result_name, result_task

ARGS_KINDS: Final = frozenset(["python", "noop", "playbook", "workbook"])


def root_vars(draft: Draft) -> None:
    """Rewrites root `vars` as inputs under `workload`, and what steps set of them in `ctx`."""
    root = draft.root
    values = root.get("vars")
    if not isinstance(values, CommentedMap):
        return
    draft.note_change((root, "vars"), "root `vars` are inputs: `workload`")
    workload = root.get("workload")
    if not isinstance(workload, CommentedMap):
        draft.rename(root, "vars", "workload")
        workload = values
    else:
        for key in list(values):
            if key in workload:
                draft.decide(workload, key, f"`vars.{key}` was {values[key]!r}: keep one of the two values")
            else:
                draft.move(values, key, workload)
        draft.remove(root, "vars")
    set_later = {key for step in draft.steps() for key in step.get("vars") or ()}
    names = frozenset({*values, *workload} - set_later)
    for part in (*draft.steps(), root.get("executor")):
        draft.rewrite(part, lambda path: _var(path, names, "workload"))


def step_vars(draft: Draft) -> None:
    """Rewrites `vars` of a step as `ctx` keys set after its last task, read as `ctx.x` everywhere."""
    found: set[str] = set()
    for step in draft.steps():
        values = step.get("vars")
        if not isinstance(values, CommentedMap):
            continue
        draft.note_change((step, "vars"), "`vars` of a step is `set_ctx` of its last task")
        found |= set(values)
        line = line_of(step, "vars")
        draft.remove(step, "vars")
        _set_after(draft, step, "set_ctx", values, line)
    own = frozenset(found)
    draft.rewrite_parts(draft.root, ("workflow", "executor"), lambda path: _var(path, own, "ctx"))


def _var(path: Path, names: frozenset[str], namespace: str) -> Replaced:
    return (2, f"{namespace}.{path[1]}") if path[0] == "vars" and path[1:2] and path[1] in names else None


def step_writes(draft: Draft, step: CommentedMap) -> None:
    """Moves `set_ctx` and its like on a step to its last task."""
    for word in (*WRITES, "set"):
        values = step.get(word)
        if not isinstance(values, CommentedMap):
            continue
        line = line_of(step, word)
        draft.remove(step, word, note=f"`{word}` of a step belongs in the policy of its last task")
        for scope, inner in by_scope(values).items() if word == "set" else [(word[4:], values)]:
            _set_after(draft, step, f"set_{scope}", inner, line)


def _set_after(draft: Draft, step: CommentedMap, word: str, values: CommentedMap, line: int) -> None:
    if not list(tasks_of(step.get("tool"))):
        pipeline_of(draft, step).append(to_ruamel({"kind": "noop"}, line, block=True))
    task = list(tasks_of(step["tool"]))[-1]
    kind, name = kind_of(task), step.get("step")

    def rewrite_own(path: Path) -> Replaced:
        at = 2 if path[0] == "steps" and path[1:2] == (name,) else 1 if path[0] == name else 0
        rows = path[at : at + 1] if kind in SQL else ()
        if at == 0 and path[0] == "result":
            at, rows = 1, path[1:2] if kind in SQL else ()
        if not at:
            return None
        return at, "outcome.result.rows" if rows and isinstance(rows[0], int) else "outcome.result"

    draft.rewrite(values, rewrite_own)
    if word in ("set_ctx", "set_vars") and value_at(step, "loop", "spec", "mode") == "parallel":
        keys = ", ".join(values)
        draft.decide(step, "loop", f"iterations that run at once would overwrite {keys}: write `set_shared` for {word}")
    write_after(draft, task, word, values, line)


def step_args(draft: Draft, step: CommentedMap) -> None:
    """Rewrites `args` and `with` of a step as `args` of its task, or inlines them."""
    for word in ("args", "with", "input"):
        values = step.get(word)
        if not isinstance(values, CommentedMap):
            continue
        if not values:
            draft.remove(step, word, note=f"empty `{word}` of a step")
            continue
        draft.note_change((step, word), f"`{word}` of a step are inputs of its task")
        tasks = list(tasks_of(step.get("tool")))
        if not tasks:
            pipeline_of(draft, step).append(to_ruamel({"kind": "noop"}, line_of(step, word), block=True))
            tasks = list(tasks_of(step["tool"]))
        # A noop beside others has its args for its result.
        kinds = ARGS_KINDS if len(tasks) == 1 else ARGS_KINDS - {"noop"}
        taking = [task for task in tasks if kind_of(task) in kinds]
        read = _inline(draft, step, values)
        if taking:
            _give_args(draft, taking[0], step, word)
            for task in taking[1:]:
                merge_args(task, values)
        else:
            for key in [key for key in values if key not in read]:
                draft.drop(values, key, "no template of the step reads it", heir=(step, "tool"))
            draft.remove(step, word)


def _inline(draft: Draft, step: CommentedMap, values: CommentedMap) -> set[str]:
    """Inlines the values where they are read, except under names of the step's own tasks and iterators."""
    names = {str(task.get("name")) for task in tasks_of(step.get("tool"))} | {str(value_at(step, "loop", "iterator"))}
    return inline_values(draft, [(step, key) for key in ("tool", "next", "loop")], values, names)


def inline_values(
    draft: Draft, places: list[tuple[CommentedMap, str]], values: CommentedMap, taken: AbstractSet[Any]
) -> set[str]:
    """Inlines values where the templates of these entries read them. Returns the keys that were read.

    Args:
        taken: Bare names that mean something else.
    """
    read: set[str] = set()

    def rewrite(path: Path) -> Replaced:
        at = 1 if path[0] in ("args", "input") else 0
        key = path[at] if at < len(path) else None
        if key not in values or (at == 0 and (key in taken or key == path[0] == "args")):
            return None
        value = values[key]
        if has_template(value):
            expression = expression_in(value)
            text = None if expression is None else group(expression)
        else:
            text = None if isinstance(value, CommentedMap | CommentedSeq) else _literal(value)
        if text is None:
            return None
        read.add(str(key))
        return at + 1, text

    for holder, key in places:
        draft.rewrite_entry(holder, key, rewrite)
    return read


def _literal(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return (
        repr(str(value)) if isinstance(value, str) else repr(float(value)) if isinstance(value, float) else str(value)
    )


def _give_args(draft: Draft, task: CommentedMap, step: CommentedMap, word: str) -> None:
    values = step[word]
    if isinstance(task.get("args"), CommentedMap):
        merge_args(task, values)
        draft.remove(step, word)
    else:
        task.fa.set_block_style()
        draft.move(step, word, task, "args")


def merge_args(task: CommentedMap, values: CommentedMap) -> None:
    """Gives a task these args beside its own."""
    own = section(task, "args")
    for key, value in values.items():
        own.setdefault(key, deepcopy(value))


def task_with(draft: Draft, task: CommentedMap) -> None:
    """Rewrites `with` of a task as its named inputs."""
    values, kind = task.get("with"), kind_of(task)
    if not isinstance(values, CommentedMap) or "with" in draft.inputs_of(kind):
        return
    name = "args" if kind in ARGS_KINDS else "params" if kind in SQL else None
    if name is not None and name not in task:
        draft.rename(task, "with", name, note=f"`with` of kind `{kind}` is `{name}`")
    elif name is not None and isinstance(task[name], CommentedMap):
        draft.note_change((task, "with"), f"`with` of kind `{kind}` is `{name}`")
        for key in [key for key in values if key not in task[name]]:
            draft.move(values, key, task[name])
        draft.remove(task, "with")
    elif set(values) <= draft.inputs_of(kind) - task.keys():
        draft.note_change((task, "with"), "the inputs of a task stand beside `kind`")
        draft.unpack(task, "with", task)
    else:
        draft.decide(task, "with", f"write these as inputs of kind `{kind}`")


def step_result(draft: Draft, step: CommentedMap) -> None:
    """Rewrites `result` of a step as what a last task returns."""
    if "result" not in step:
        return
    draft.note_change((step, "result"), "`result` of a step is the result of its last task")
    value = step["result"]
    if isinstance(value, CommentedMap) and list(value) == ["from"]:
        value = value["from"]
        value = value if has_template(value) else f"{{{{ {value} }}}}"
    line = line_of(step, "result")
    kind = kind_of_result(step)
    pipeline = pipeline_of(draft, step)
    task = result_task(value, line, f"{step.get('step')}_result")
    reads_result(draft, task, result_name(pipeline), kind)
    draft.remove(step, "result")
    pipeline.append(task)


def step_as(draft: Draft, step: CommentedMap) -> None:
    """Rewrites `as` of a step: its result is read by the step's name."""
    last = list(tasks_of(step.get("tool")))[-1:]
    for task in [task for task in last if "as" in task and "as" not in step]:
        draft.move(task, "as", step)
    alias = step.get("as") or step.get("bind")
    word = "as" if "as" in step else "bind"
    if not isinstance(alias, str) or not re.fullmatch(r"[A-Za-z_]\w*", alias):
        return
    name = step.get("step")
    draft.remove(step, word, note=f"`{alias}` is read as the result of the step: `steps.{name}`")
    draft.rewrite_parts(draft.root, ("workflow", "executor"), rename_to(alias, f"steps.{name}"))


RULES: Final = (root_vars, step_vars, *each(Draft.steps, step_writes, step_as, step_args, step_result))
TASK_RULES: Final = each(Draft.all_tasks, task_with)
