"""Rewrites results of loops, and what Python code reads in an older shape (LANGUAGE §6, §12)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from ruamel.yaml.comments import CommentedMap

from noetl_stream.playbook.upgrade.draft import (
    Draft,
    arcs_into,
    kind_of,
    mapping_at,
    quote,
    quote_like,
    section,
    tasks_of,
    value_at,
)
from noetl_stream.playbook.upgrade.expressions import Path, Replaced, expression_in, has_template, path_text, template
from noetl_stream.playbook.upgrade.rules.kinds import entries_of
from noetl_stream.playbook.upgrade.rules.reads import (
    SQL,
    declared_names,
    each_result,
    kind_of_result,
    last_statements,
    may_return_result,
    parse_code,
)

_WHOLE: Final = re.compile(r"(?:steps\.|args\.)?([A-Za-z_]\w*)(?:\.data)?(\s*+\|\s*+default\([^()]*+\))?\Z")
_COMMAND: Final = re.compile(r"command_(\d+)\Z")
_COUNTS: Final = {
    "total": "({0} | length)",
    "failed": "({0} | select('none') | length)",
    **dict.fromkeys(("success", "succeeded", "completed", "ok"), "({0} | reject('none') | length)"),
}
"""The statistics of a loop, and the functions of its present list for them."""
_HTTP_PARTS: Final = {"status_code": "status", "status": "status", "headers": "headers", "data": "data", "body": "data"}
"""What older results of http have, and where that is now."""
_CODE_PARTS: Final = re.compile(
    r'''(?P<text>"""(?:[^"\\]|\\.|"(?!""))*+"""|\'{3}(?:[^'\\]|\\.|'(?!''))*+\'{3}|"(?:[^"\\\n]|\\.)*+"'''
    r"""|'(?:[^'\\\n]|\\.)*+'|\#[^\n]*+)|\{\{\s*+(?P<path>[A-Za-z_]\w*+(?:\.\w++)*+)\s*+\}\}""",
    re.DOTALL,
)
"""The strings and comments of Python code, and the templates outside them."""
_PATH: Final = re.compile(r"[A-Za-z_]\w*+(?:\.\w++)*+\Z")
_LIST: Final = frozenset(["len", "sorted", "enumerate", "list", "iter", "reversed"])


Arcs = dict[str, list[tuple[CommentedMap, CommentedMap]]]
"""The arcs into each step, with the steps that they come from."""


class CodeReads(msgspec.Struct):
    """What code reads of a name: keys, by the way to each, and whether it takes it for a list.

    Attributes:
        words: The constant texts of the code, which are keys of what it reads in several statements.
    """

    ways: set[tuple[str, ...]] = msgspec.field(default_factory=set)
    words: set[str] = msgspec.field(default_factory=set)
    is_list: bool = False
    is_asked: bool = False

    @property
    def keys(self) -> set[str]:
        return {way[0] for way in self.ways}


def code_templates(draft: Draft) -> None:
    """Rewrites templates in Python code as args of the task. Older dialects rendered the code before they ran it."""
    for task in draft.all_tasks() if draft.was_older else []:
        code = task.get("code")
        if kind_of(task) != "python" or not isinstance(code, str) or not has_template(code):
            continue
        written, given, is_all = _with_args(code, dict(mapping_at(task, "args") or {}))
        if given:
            draft.note_change((task, "code"), f"code is not rendered: {', '.join(given)} are args of the task")
            task["code"] = quote_like(code, written)
            args = section(task, "args")
            args.update({name: quote(value) for name, value in given.items() if name not in args})
        if not is_all:
            draft.decide(task, "code", "code is not rendered: pass what stands in {{ }} as args, and read it by name")


def _with_args(code: str, own: dict[str, Any]) -> tuple[str, dict[str, str], bool]:
    """Returns the code with args in place of templates, these args, and true if no other template is left.

    Args:
        own: The existing args of the task.
    """
    given, left = dict[str, str](), list[str]()

    def write(match: re.Match[str]) -> str:
        text, path = match["text"], match["path"]
        if text is not None:
            is_prefixed = match.string[: match.start()][-1:].isalnum()
            path = None if is_prefixed else expression_in(text[1:-1])
        name = str(path).rpartition(".")[2]
        is_read = path is not None and _PATH.match(path) is not None
        if not is_read or {**own, **given}.get(name, template(str(path))) != template(str(path)):
            left.extend([match[0]] if "{{" in match[0] and not match[0].startswith("#") else [])
            return match[0]
        given[name] = template(str(path))
        return name if text is None else f"str({name})"

    return _CODE_PARTS.sub(write, code), given, not left


def loop_results(draft: Draft) -> None:
    """Rewrites results of loops read as `x.results` and `x.stats`: a loop's result is the list itself."""
    shadowing = declared_names(draft, results=False)
    loops = {str(step.get("step")) for step in draft.steps() if "loop" in step}
    said = "the result of a loop is the list of its iterations' results"
    for step in draft.steps():
        own = "loop" in step

        def change(path: Path, own: bool = own) -> Replaced:
            is_event = own and path[:2] == ("event", "result")
            at = 2 if is_event or path[0] == "steps" else 1
            if not is_event and (
                str(path[at - 1 : at][0] if path[at - 1 : at] else "") not in loops or path[0] in shadowing
            ):
                return None
            whole = "event.result" if is_event else f"steps.{path[at - 1]}"
            if path[at : at + 1] in (("results",), ("data",)):
                return at + 1, whole
            if path[at : at + 1] == ("count",):
                return at + 1, _COUNTS["total"].format(whole)
            if path[at : at + 1] == ("stats",) and path[at + 1 : at + 2] and path[at + 1] in _COUNTS:
                return at + 2, _COUNTS[str(path[at + 1])].format(whole)
            return None

        draft.rewrite_parts(step, list(step), change, said)
    if draft.steps():
        draft.rewrite_parts(draft.root, ["executor"], change, said)


def whole_results(draft: Draft) -> None:
    """Rewrites `x.result`, the whole result in older dialects, where the result has no such key."""
    own: dict[str, bool] = {}
    for task, step in draft.tasks():
        is_key = kind_of(task) == "python" and may_return_result(str(task.get("code", "")), draft.was_older)
        is_key |= kind_of(task) in ("playbook", "workbook", "noop")
        for name in (task.get("name"), step.get("step") if step is not None and "loop" not in step else None):
            own[str(name)] = is_key
    own |= {str(step.get("step")): False for step in draft.steps() if "loop" in step}
    shadowing = declared_names(draft, results=False)

    def change(path: Path) -> Replaced:
        at = 2 if path[0] == "steps" else 1
        is_read = path[at : at + 1] == ("result",)
        is_name = is_read and own.get(str(path[at - 1])) is False and (at == 2 or path[0] not in shadowing)
        return (at + 1, path_text(path[:at])) if is_name or path[:2] == ("_prev", "result") else None

    parts = ("workflow", "executor") if draft.was_older else ()
    draft.rewrite_parts(draft.root, parts, change, "the result of a step or task is read by its name alone")


def http_status(draft: Draft) -> None:
    """Rewrites `x.status_code` of an http result as `x.status`."""

    def rewrite(path: Path, start: int) -> Replaced:
        return (start + 1, f"{path_text(path[:start])}.status") if path[start] == "status_code" else None

    each_result(draft, frozenset(["http"]), rewrite, "`status_code` of a response is `status`")


def python_reads(draft: Draft) -> None:
    """Gives Python code results of loops, SQL and http in the shape in which it reads them."""
    sources = {str(step.get("step")): step for step in draft.steps()}
    last, entries, arcs = last_statements(draft), entries_of(draft), arcs_into(draft.steps())
    for step in draft.steps():
        tasks = {str(task.get("name")): kind_of(task) for task in tasks_of(step.get("tool"))}
        before = ""
        for task in tasks_of(step.get("tool")):
            args = task.get("args")
            tasks["_prev"], before = before, kind_of(task)
            code = entries.get(str(task.get("task", task.get("name")))) if kind_of(task) == "workbook" else task
            if kind_of(code) != "python" or code is None or not isinstance(args, CommentedMap):
                continue
            read = _reads_in(str(code.get("code", "")), set(map(str, args)))
            for key, value in list(args.items()):
                whole = _WHOLE.match(expression_in(value) or "")
                if whole is None or key not in read:
                    continue
                kind, inner = ("", "") if whole[1] in tasks else _origin(step, whole[1], sources, arcs)
                kind = tasks.get(whole[1], kind)
                is_body = kind == "http" and ".data" in whole[0]
                shaped = None if is_body else _shaped(kind, whole[0], bool(whole[2]), read[str(key)], draft.was_older)
                if shaped is None and kind == "loop" and inner == "http" and draft.was_older and read[str(key)].is_list:
                    shaped = _bodies(draft, args, str(key), whole[0], read[str(key)])
                statements = {
                    int(found[1]) for way in read[str(key)].ways for part in way if (found := _COMMAND.match(part))
                }
                is_last = kind not in SQL or statements <= {last.get(whole[1], 0)}
                if shaped is not None and is_last:
                    draft.replace(args, key, shaped, note=f"the code reads `{key}` in its older shape")
                    args.fa.set_block_style()
                elif statements or (shaped is None and "stats" in read[str(key)].keys):
                    draft.decide(args, key, f"the code reads `{key}` in an older shape: hand over what it needs")


def _origin(
    step: CommentedMap, name: str, steps: dict[str, CommentedMap], arcs: Arcs, depth: int = 3, *, ended: bool = False
) -> tuple[str, str]:
    """The kind of what a name means in a step, and that of its items if it is the result of a loop.

    A name may be a step, what every arc into the step passes, or the item of a loop over one of these.

    Args:
        ended: Whether the step has ended, as in its arcs, so that its own name is its result.
    """
    own = str(step.get("step"))
    if name in steps and (ended or name != own):
        kind = kind_of_result(steps[name])
        return ("loop", kind) if "loop" in steps[name] else (kind, "")
    if depth and name == value_at(step, "loop", "iterator"):
        whole = _WHOLE.match(expression_in(value_at(step, "loop", "in")) or "")
        return (_origin(step, whole[1], steps, arcs, depth - 1)[1], "") if whole else ("", "")
    passed = [
        (before, expression_in(arc["args"][name]))
        for before, arc in arcs.get(own, ())
        if depth and name in (mapping_at(arc, "args") or ())
    ]
    wholes = [(before, _WHOLE.match(text or "")) for before, text in passed]
    found = {
        _origin(before, whole[1], steps, arcs, depth - 1, ended=True) if whole else ("", "") for before, whole in wholes
    }
    return found.pop() if len(found) == 1 else ("", "")


def _bodies(draft: Draft, args: CommentedMap, key: str, whole: str, read: CodeReads) -> Any:
    """The bodies of the responses of a loop, unless the code reads keys that responses have."""
    message = f"the items of `{key}` are responses, with `status`, `headers` and `data`"
    if read.words & _HTTP_PARTS.keys():
        draft.note_assumption((args, key), message)
        return None
    draft.note_assumption((args, key), f"{message}: the code gets the bodies alone")
    return template(f"{whole} | map(attribute='data') | list")


def _shaped(kind: str, whole: str, is_given: bool, read: CodeReads, was_older: bool) -> Any:
    """What an arg must be for the code that reads it; ``None`` if it can stay.

    Args:
        was_older: Whether the playbook is of an older dialect, in which the body alone was the result of http.
    """
    part_of = f"({whole})" if is_given else whole
    if kind == "loop":
        items = whole if is_given else f"{whole} | default([])"
        counts = {name: template(text.format(f"({items})")) for name, text in _COUNTS.items() if name in read.words}
        if not read.keys & {"results", "stats"}:
            return None
        return {"results": template(items), **({"stats": counts} if "stats" in read.keys else {})}
    if kind in SQL:
        inner = {"rows", "row_count", "columns", "status"}
        ways = {way[1:] if way[0] == "data" else way for way in read.ways} - {()}
        commands = {way[0] for way in ways if _COMMAND.match(way[0]) or way[0] == "result"}
        if len(commands) == 1:
            name = commands.pop()
            value = template(f"{part_of}.rows" if name == "result" else whole)
            return {"data": {name: value}} if "data" in read.keys else {name: value}
        is_rows = read.is_list and not read.is_asked and not read.keys & inner
        return template(f"{part_of}.rows") if is_rows and not read.ways else None
    if kind == "http" and read.keys & {"status_code", "body"}:
        names = [name for name in _HTTP_PARTS if name != "body" or name in read.keys]
        return {name: template(f"{part_of}.{_HTTP_PARTS[name]}") for name in names}
    if kind == "http" and was_older and (read.is_list or (read.keys and not read.keys & {*_HTTP_PARTS, "encoding"})):
        return template(f"{part_of}.data")
    return None


def _reads_in(code: str, names: set[str]) -> dict[str, CodeReads]:
    """The reads of these names in code."""
    tree = parse_code(code)
    found: dict[str, CodeReads] = {}
    nodes = list(ast.walk(tree)) if tree is not None else []
    for node in nodes:
        name, way = _way_to(node)
        if name in names:
            read = found.setdefault(name, CodeReads())
            if way:
                read.ways.add(way)
        for taken, is_mapping in _taken_as(node):
            if taken in names:
                read = found.setdefault(taken, CodeReads())
                read.is_asked |= is_mapping
                read.is_list |= not is_mapping
    words = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    for read in found.values():
        read.words = words
    return found


def _way_to(node: ast.AST) -> tuple[str, tuple[str, ...]]:
    """The name at the beginning of `a["b"].get("c")`, and the keys read of it; as far as these are constant."""
    match node:
        case ast.Name():
            return node.id, ()
        case ast.Subscript(value=inner, slice=ast.Constant(value=str(key))):
            name, way = _way_to(inner)
            return name, (*way, key)
        case ast.Call(func=ast.Attribute(value=inner, attr="get"), args=[ast.Constant(value=str(key)), *_]):
            name, way = _way_to(inner)
            return name, (*way, key)
        case ast.BoolOp(op=ast.Or(), values=[first, *_]):
            return _way_to(first)
    return "", ()


def _taken_as(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """The names that a node takes for a list, or asks whether they are a mapping."""
    match node:
        case ast.For(iter=taken) | ast.comprehension(iter=taken):
            yield _name_of(taken), False
        case ast.Subscript(value=taken, slice=ast.Constant(value=int()) | ast.Slice() | ast.UnaryOp()):
            yield _name_of(taken), False
        case ast.Call(func=ast.Name(id="isinstance"), args=[taken, kind]):
            yield _name_of(taken), "dict" in ast.dump(kind)
        case ast.Call(func=ast.Name(id=called), args=[taken, *_]) if called in _LIST:
            yield _name_of(taken), False


def _name_of(node: ast.expr) -> str:
    """The name in `x`, or `x or []`; empty for anything else."""
    name, way = _way_to(node)
    return "" if way else name


RULES: Final = (code_templates, whole_results, loop_results, http_status, python_reads)
