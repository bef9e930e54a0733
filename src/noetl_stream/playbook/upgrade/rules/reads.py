"""Rewrites names of older dialects in templates (LANGUAGE §2)."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from noetl_stream.playbook.upgrade.draft import (
    Draft,
    arcs_of,
    change_texts,
    kind_of,
    mapping_at,
    tasks_of,
    texts_in,
    value_at,
)
from noetl_stream.playbook.upgrade.expressions import (
    Path,
    Replaced,
    Rewrite,
    expression_in,
    path_text,
    paths_in,
    rename_to,
    rewrite_expression,
    rewrite_text,
    with_code,
)
from noetl_stream.playbook.upgrade.roundtrip import keys_in

SQL: Final = frozenset(["postgres", "duckdb"])
RETURNS_VALUE: Final = "return args['value']"
"""The code of a task that returns what another task had for its result."""
_FILTERS: Final = {"to_json": "tojson", "json": "tojson", "to_str": "string", "str": "string", "to_int": "int"}
_FILTER: Final = re.compile(r"(\|\s*)(\w+)\b")
_SAFE: Final = re.compile(r"\s*\|\s*safe\b")
_BACKTICKS: Final = re.compile(r"\{\{`([^`]*+)`\}\}")
_COMMAND: Final = re.compile(r"command_(\d+)\Z")
_STATUS: Final = re.compile(r"(outcome\.status\s*(?:==|!=)\s*)(['\"])(success|done|completed|failed|failure)(?=['\"])")
_EVENT_STATUS: Final = re.compile(r"(event\.status\s*(?:==|!=)\s*)(['\"])(ok|done|completed|failed|failure)(?=['\"])")
_IS_THERE: Final = re.compile(
    r"(?<![\w.])(response|error)\s*(?:is\s+(not\s+)?(?:defined|none|None)\b|(==|!=)\s*(?:None|none|null)\b)"
)
_OF_ERROR: Final = re.compile(r"\bevent\.status\s*==\s*['\"]error['\"]")
_FAILED: Final = ("step.failed", "call.error", "step.error", "loop.failed")
_EVENT_NAMES: Final = ("step.done", "loop.done", "step.exit", "call.done", *_FAILED)
_OLDER: Final = frozenset(["response", "error", "result"])
_HTTP_KEYS: Final = frozenset(["status", "headers", "data", "encoding", "outcome", "results"])
NEW_NAMES: Final = frozenset(["token", "outcome", "iter", "results"])
"""Namespaces that older dialects did not have, so that a key of the workload could have their name."""
_OF_RESULTS: Final = frozenset(["results", "data", "status", "stats", "count", "rows", "result", "command_0", "error"])
"""What older results have, as opposed to a value of the workload."""
_ITSELF: Final = frozenset(["job", "execution"])
_ID_KEYS: Final = frozenset(["uuid", "id", "execution_id"])


def rewrite_for_policy(expression: str, kind: str) -> str:
    """Rewrites an expression over `response`, `error` and `result` for a task's policy."""
    whole = "outcome.result.data" if kind == "http" else "outcome.result"

    def rewrite(path: Path) -> Replaced:
        match path:
            case ("response" | "error", "status" | "status_code", *_) if kind == "http":
                return 2, "outcome.http.status"
            case ("status_code" | "http_status", *_) if kind == "http":
                return 1, "outcome.http.status"
            case ("response", *_) | ("result", *_):
                return 1, whole if path[0] == "response" else "outcome.result"
            case ("error", *_):
                return 1, "outcome.error"
            case ("outcome", "py", "exception", *_):
                return 3, "outcome.py.exception_type"
            case ("success",):
                return 1, "(outcome.status == 'ok')"
            case ("attempt",):
                return 1, "_attempt"
            case _:
                return None

    rewritten = rewrite_expression(_rewrite_is_defined(expression, "outcome", "ok"), rewrite)
    return _STATUS.sub(partial(_status_word, good="ok"), rewritten)


def rewrite_for_arc(
    expression: str, kind: str, result: str = "event.result", bound: frozenset[str] = frozenset()
) -> str:
    """Rewrites an expression over `response`, `error`, `result` and `exit_code` for an arc.

    Args:
        result: The path of the step's result in the arc.
        bound: The names among these that have another meaning in this playbook.
    """
    whole = f"{result}.data" if kind == "http" else result

    def rewrite(path: Path) -> Replaced:
        match path:
            case (str(name), *_) if name in bound:
                return None
            case ("response", "status" | "status_code", *_) if kind == "http":
                return 2, f"{result}.status"
            case ("response", "headers", *_) if kind == "http":
                return 1, result
            case ("response", *_):
                return 1, whole
            case ("result", *_):
                return 1, result
            case ("error", "status" | "status_code") if kind == "http":
                return 2, "(event.error.code | default(0) | int)"
            case ("error", *_):
                return 1, "event.error"
            case ("exit_code",) if kind == "shell":
                return 1, "(event.error.code | default(0) | int)"
            case _:
                return None

    return rewrite_expression(_rewrite_is_defined(expression, "event", "success", bound), rewrite)


def _rewrite_is_defined(expression: str, namespace: str, good: str, bound: frozenset[str] = frozenset()) -> str:
    """Rewrites `response is defined` and `error is defined` as a comparison of the status."""

    def compare_status(match: re.Match[str]) -> str:
        name, negation, comparison = match[1], match[2], match[3]
        if name in bound:
            return match[0]
        about_nothing = "defined" not in match[0]
        is_there = (negation is None) != about_nothing if comparison is None else comparison == "!="
        status = good if (name == "response") == is_there else "error"
        return f"{namespace}.status == '{status}'"

    return _IS_THERE.sub(compare_status, expression)


def _status_word(match: re.Match[str], good: str) -> str:
    return f"{match[1]}{match[2]}{'error' if match[3].startswith('fail') else good}"


def declared_names(draft: Draft, *, results: bool = True) -> frozenset[str]:
    """The names that a playbook declares itself, which therefore are not names of an older dialect.

    Args:
        results: Whether the names of steps and tasks are among them.
    """
    workload = draft.root.get("workload")
    names = set(workload) if isinstance(workload, CommentedMap) else set()
    for step in draft.steps():
        names |= {str(step.get("step"))} if results else set()
        loop = step.get("loop")
        while isinstance(loop, CommentedMap):
            names.add(str(loop.get("iterator")))
            loop = loop.get("loop")
        names |= {str(task.get("name")) for task in tasks_of(step.get("tool"))} if results else set()
        for arc in arcs_of(step):
            names |= set(arc["args"]) if isinstance(arc.get("args"), CommentedMap) else set()
    for writes in _writes(draft.root.get("workflow")):
        names |= set(writes)
    return frozenset(names)


def _writes(node: Any) -> Iterator[CommentedMap]:
    """Every `set_…` mapping in a collection."""
    for key in keys_in(node):
        if isinstance(node[key], CommentedMap) and str(key).startswith("set_"):
            yield node[key]
        else:
            yield from _writes(node[key])


def policy_words(draft: Draft) -> None:
    """Rewrites older names and status words in the policies of tasks."""
    if (_OLDER | {"success", "attempt"}) & declared_names(draft):
        return
    for task in draft.all_tasks():
        policy = mapping_at(task, "spec", "policy")
        if policy is not None and each_expression(policy, partial(rewrite_for_policy, kind=kind_of(task))):
            draft.note_change((task, "spec"), "the policy reads `outcome`, whose `status` is `ok` or `error`")


def event_words(draft: Draft) -> None:
    """Rewrites older names of events and results in guards and `args` of arcs."""
    bound = (_OLDER | {"exit_code"}) & declared_names(draft)
    for step in draft.steps():
        end = "loop.done" if "loop" in step else "step.done"
        change = _arc_words(kind_of_result(step), end, bound)
        for arc in arcs_of(step):
            if each_expression(arc, change):
                draft.note_change((arc, "when"), f"the arc reads `event`, whose `name` is `{end}` or `step.failed`")


def _arc_words(kind: str, end: str, bound: frozenset[str]) -> Callable[[str], str]:
    def change(text: str) -> str:
        text = rewrite_for_arc(text, kind, bound=bound)
        text = re.sub(r"\bevent\.type\b", "event.name", text)
        return _event_names(_EVENT_STATUS.sub(partial(_status_word, good="success"), text), end)

    return change


def _event_names(text: str, end: str) -> str:
    if "event.name" not in text:
        return text
    for old in _EVENT_NAMES:
        # An exit was either end; the guard says which.
        failed = old in _FAILED or (old == "step.exit" and _OF_ERROR.search(text) is not None)
        new = "step.failed" if failed else end
        text = text.replace(f"'{old}'", f"'{new}'").replace(f'"{old}"', f'"{new}"')
    return text


def each_expression(node: Any, change: Callable[[str], str]) -> int:
    """Changes the code of each template in a collection. Returns how many texts changed."""
    return change_texts(node, lambda text: with_code(text, change))


def quoted_braces(draft: Draft) -> None:
    """Rewrites literal braces in backticks, as in Go templates, as quoted text."""

    def quoted(match: re.Match[str]) -> str:
        mark = next((mark for mark in "'\"" if mark not in match[1]), None)
        return match[0] if mark is None else f"{{{{ {mark}{match[1]}{mark} }}}}"

    for key in ("workflow", "workbook"):
        if change_texts(draft.root.get(key), lambda text: _BACKTICKS.sub(quoted, text)):
            draft.note_change((draft.root, key), "text with braces stands in quotes, not in backticks")


def job_uuid(draft: Draft) -> None:
    """Rewrites `job.uuid` as the id of the execution."""
    if _ITSELF & declared_names(draft):
        return

    def rewrite(path: Path) -> Replaced:
        return (2, "execution_id") if path[0] in _ITSELF and path[1:2] and path[1] in _ID_KEYS else None

    parts = ("workflow", "workbook", "executor")
    draft.rewrite_parts(draft.root, parts, rewrite, "`job.uuid` is `execution_id`")


def filter_names(draft: Draft) -> None:
    """Rewrites filters that have another name, and removes `safe`, since nothing is escaped."""

    def change(code: str) -> str:
        code = _SAFE.sub("", code)
        return _FILTER.sub(lambda match: match[1] + _FILTERS.get(match[2], match[2]), code)

    for key in ("workflow", "workbook", "executor"):
        if each_expression(draft.root.get(key), change):
            draft.note_change((draft.root, key), "a filter has another name")


def older_names(draft: Draft) -> None:
    """Rewrites `context`, and `loop` and `item` of a loop."""
    names = declared_names(draft)
    if "context" not in names:
        draft.rewrite_parts(draft.root, ["workflow"], rename_to("context", "ctx"), "`context` is `ctx`")
    for step in draft.steps():
        iterator = value_at(step, "loop", "iterator")
        words = _loop_words(str(step.get("step")), str(iterator), names)

        def change(text: str, words: Rewrite = words) -> str:
            return text if "{%" in text else rewrite_text(text, words)  # a statement can have names of its own

        if iterator is not None and change_texts(step.get("tool"), change):
            draft.note_change((step, "tool"), "`loop.index` and `item` are read from `iter`")


def _loop_words(step: str, iterator: str, names: frozenset[str]) -> Rewrite:
    def rewrite(path: Path) -> Replaced:
        match path:
            case ("loop", "index0", *_):
                return 2, "iter.index"
            case ("loop_index" | "_index", *_) if path[0] not in names:
                return 1, "iter.index"
            case (str(name), "result_index" | "current_index", *_) if name == step:
                return 2, "iter.index"
            case ("iter", "_index", *_):
                return 2, "iter.index"
            case ("loop", "index", *_):
                return 2, "(iter.index + 1)"
            case ("loop", "length", *_):
                return 2, "iter.count"
            case ("item" | "_item", *_) if path[0] not in names:
                return 1, f"iter.{iterator}"
            case _:
                return None

    return rewrite


def workload_names(draft: Draft) -> None:
    """Rewrites bare names of the workload that are namespaces now, and steps that have the name of a workload key."""
    workload = draft.root.get("workload")
    if not isinstance(workload, CommentedMap) or not draft.was_older:
        return
    steps = {str(step.get("step")) for step in draft.steps()}
    bound = declared_names(draft, results=False) - set(workload)

    def change(path: Path) -> Replaced:
        name = path[0]
        if name not in workload or name in bound:
            return None
        if name in NEW_NAMES:
            return 1, f"workload.{name}"
        is_result = name in steps and len(path) > 1 and path[1] in _OF_RESULTS
        is_result = is_result and not (isinstance(workload[name], CommentedMap) and path[1] in workload[name])
        return (1, f"steps.{name}") if is_result else None

    said = "a name that means something else now is written in full"
    draft.rewrite_parts(draft.root, ("workflow", "executor"), change, said)


def sql_results(draft: Draft) -> None:
    """Rewrites results of SQL read by statement, `x.command_0.rows`, or as a list, `x[0]`."""
    last = last_statements(draft)

    def rewrite(path: Path, start: int) -> Replaced:
        at = start + 1 if path[start : start + 1] == ("data",) else start
        part = path[at] if at < len(path) else ""
        if isinstance(part, int):
            return at, f"{path_text(path[:start])}.rows"
        found = _COMMAND.match(part)
        if found is None or int(found[1]) != last.get(str(path[start - 1]), int(found[1])):
            return None
        is_row = any(isinstance(following, int) for following in path[at + 1 : at + 2])
        return at + 1, path_text(path[:start]) + (".rows" if is_row else "")

    each_result(draft, SQL, rewrite, "the result of SQL is `{rows, row_count, columns, statements}`")
    for step in draft.steps():
        for key in list(step):
            if _reads_statement(step[key]):
                draft.decide(step, key, "`command_0` and the like: a task has the result of its last statement only")


def last_statements(draft: Draft) -> dict[str, int]:
    """The index of the last statement of each SQL task, by the names of the task and of its step."""
    last: dict[str, int] = {}
    for task, step in draft.tasks():
        if kind_of(task) in SQL:
            for name in (task.get("name"), step.get("step") if step is not None else None):
                last[str(name)] = _statements(task) - 1
    return last


def _statements(task: CommentedMap) -> int:
    given = next((task[key] for key in ("command", "query", "commands") if key in task), "")
    texts = given if isinstance(given, CommentedSeq) else [given]
    return max(1, sum(1 for text in texts for part in str(text).split(";") if part.strip()))


def _reads_statement(value: Any) -> bool:
    parts = (str(part) for text in texts_in(value) for path in paths_in(text) for part in path[1:3])
    return any(map(_COMMAND.match, parts))


def python_results(draft: Draft) -> None:
    """Rewrites results of python read as `x.data.result`."""
    returned: dict[str, str] = {}
    for task, step in draft.tasks():
        if kind_of(task) == "python":
            answer = _returns_result(str(task.get("code", "")))
            for name in (task.get("name"), step.get("step") if step is not None else None):
                returned[str(name)] = answer

    def rewrite(path: Path, start: int) -> Replaced:
        keys = path[start : start + 2]
        answer = returned.get(str(path[start - 1]), "maybe")
        is_older = answer == "no" or (answer == "maybe" and draft.was_older)
        return (start + 2, path_text(path[:start])) if keys == ("data", "result") and is_older else None

    each_result(draft, frozenset(["python"]), rewrite, "the result of python is what the code returns")


def parse_code(code: str) -> ast.Module | None:
    """The syntax tree of a python task's code; ``None`` if it cannot be read."""
    lines = ["async def code():", "pass", *code.split("\n")]
    try:
        return ast.parse("\n    ".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def may_return_result(code: str, was_older: bool) -> bool:
    """Whether the key ``result`` of what code returns may be its own, which in an older playbook has to be certain."""
    answer = _returns_result(code)
    return answer == "yes" or (answer == "maybe" and not was_older)


def _returns_result(code: str) -> str:
    """Whether code returns a mapping with the key ``result``: ``yes``, ``no`` or ``maybe``."""
    tree = parse_code(code)
    if tree is None:
        return "maybe"
    values: list[ast.expr | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value == "result":
            return "yes"
        if isinstance(node, ast.Return) or (
            isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == "result" for target in node.targets)
        ):
            values.append(node.value)
    plain = (ast.Dict, ast.List, ast.ListComp, ast.Constant, ast.BinOp, ast.Compare, ast.JoinedStr)
    spreads = any(isinstance(value, ast.Dict) and None in value.keys for value in values)
    known = not spreads and all(isinstance(value, plain) for value in values)
    return "no" if values and known else "maybe"


def task_results(draft: Draft) -> None:
    """Rewrites results of tasks that the arcs of their step read by the bare name of the task."""
    known = declared_names(draft, results=False) | {str(step.get("step")) for step in draft.steps()}
    for step in draft.steps():
        names = {str(task["name"]) for task in tasks_of(step.get("tool")) if "name" in task} - known

        def change(path: Path, names: set[str] = names, step: CommentedMap = step) -> Replaced:
            return (1, f"steps.{step.get('step')}.results.{path[0]}") if path[0] in names else None

        said = "outside its pipeline, a task's result is `steps.<step>.results.<task>`"
        draft.rewrite_parts(step, ["next"] if names else [], change, said)


def http_results(draft: Draft) -> None:
    """Rewrites results of http that are read as if they were the body."""
    if not draft.was_older:
        return

    def rewrite(path: Path, start: int) -> Replaced:
        return (start, f"{path_text(path[:start])}.data") if path[start] not in _HTTP_KEYS else None

    each_result(draft, frozenset(["http"]), rewrite, "the body of a response is `data` of the result")


Within = Callable[[Path, int], Replaced]
"""Rewrites a path, given the index of its first part within a result."""


def each_result(draft: Draft, kinds: frozenset[str], rewrite: Within, message: str) -> None:
    """Rewrites reads of results of these kinds."""
    shadowing = declared_names(draft, results=False)
    steps = {str(step.get("step")): kind_of_result(step) for step in draft.steps()}
    steps |= {
        f"{step.get('step')}.results.{task.get('name')}": kind_of(task)
        for step in draft.steps()
        for task in tasks_of(step.get("tool"))
    }
    places: list[tuple[CommentedMap, str, Rewrite]] = [
        (draft.root, key, _rewrite_within(rewrite, kinds, steps, {}, shadowing)) for key in ("executor", "workbook")
    ]
    for step in draft.steps():
        tasks = {str(task.get("name")): kind_of(task) for task in tasks_of(step.get("tool"))}
        for key in step:
            own = kind_of_result(step) if key == "next" else ""
            places.append((step, str(key), _rewrite_within(rewrite, kinds, steps, tasks, shadowing, event=own)))
    for task, _ in draft.tasks():
        places.append((task, "spec", _rewrite_within(rewrite, kinds, {}, {}, shadowing, outcome=kind_of(task))))
    for container, key, change in places:
        draft.rewrite_parts(container, [key], change, message)


def _rewrite_within(
    rewrite: Within,
    kinds: frozenset[str],
    steps: Mapping[str, str],
    tasks: Mapping[str, str],
    shadowing: frozenset[str],
    *,
    event: str = "",
    outcome: str = "",
) -> Rewrite:
    """Rewrites paths into the results of steps, tasks, the step that ended and the task just run, by their kinds.

    Args:
        steps: The kinds of steps by name, and of their tasks, as in ``load.results.fetch``.
        shadowing: Bare names that are not results.
    """

    def change(path: Path) -> Replaced:
        match path:
            case ("steps", str(name), "results", str(task), _, *_) if f"{name}.results.{task}" in steps:
                return rewrite(path, 4) if steps[f"{name}.results.{task}"] in kinds else None
            case (str(name), "results", str(task), _, *_) if (
                name not in shadowing and f"{name}.results.{task}" in steps
            ):
                return rewrite(path, 3) if steps[f"{name}.results.{task}"] in kinds else None
            case ("steps", str(name), _, *_) if steps.get(name) in kinds:
                return rewrite(path, 2)
            case ("results", str(name), _, *_) if tasks.get(name) in kinds:
                return rewrite(path, 2)
            case ("event", "result", _, *_) if event in kinds:
                return rewrite(path, 2)
            case ("outcome", "result", _, *_) if outcome in kinds:
                return rewrite(path, 2)
            case (str(name), _, *_) if name not in shadowing and (tasks.get(name) or steps.get(name)) in kinds:
                return rewrite(path, 1)
            case _:
                return None

    return change


def kind_of_result(step: CommentedMap) -> str:
    """The kind of the task whose result is the step's."""
    tasks = list(tasks_of(step.get("tool")))
    last = tasks[-1] if tasks else None
    if value_at(last, "code") == RETURNS_VALUE:
        source = expression_in(value_at(last, "args", "value"))
        last = next((task for task in tasks if task.get("name") == source), last)
    return kind_of(last)


RULES: Final = (
    *(policy_words, event_words, job_uuid, filter_names, older_names),
    *(task_results, sql_results, python_results, http_results),
)
