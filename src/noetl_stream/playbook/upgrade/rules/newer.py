"""Rewrites the newer dialect: `input`, `output`, `set` with scopes in its keys, `on_no_match`, loops over a cursor."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from noetl_stream.playbook.upgrade.draft import (
    Draft,
    arcs_into,
    arcs_of,
    by_scope,
    each,
    free_name,
    kind_of,
    line_of,
    mapping_at,
    mappings,
    section,
    shown,
    tasks_of,
    to_ruamel,
    value_at,
)
from noetl_stream.playbook.upgrade.expressions import (
    Path,
    Replaced,
    expression_in,
    path_text,
    paths_in,
    rename_to,
    template,
)
from noetl_stream.playbook.upgrade.roundtrip import entries_in
from noetl_stream.playbook.upgrade.rules.policies import write_after
from noetl_stream.playbook.upgrade.rules.reads import SQL, declared_names, each_expression, kind_of_result
from noetl_stream.playbook.upgrade.rules.tasks import with_dollars
from noetl_stream.playbook.upgrade.rules.values import ARGS_KINDS, inline_values, merge_args

_OUTCOME: Final = frozenset(["status", "error", "meta", "http", "pg", "py", "result"])
_WRITERS: Final = ("set", "set_ctx", "set_iter", "set_vars")
_SCOPES: Final = {"ctx": "ctx", "iter": "iter", "vars": "vars", "step": "vars"}
_ENDS: Final = frozenset(["end", "complete", "completed", "stop", "success", "ignore", "none", "continue"])
_STORED: Final = ("store", "inline_max_bytes", "preview_max_bytes", "scope", "ttl", "compression", "publish")
_BY_SIZE: Final = frozenset(["strategy", "threshold_kb", "threshold_bytes"])
"""Keys of an `output_select` that selects nothing, and says from which size a result is stored elsewhere."""
_SELECTED: Final = ("select", "output_select")
_OUTPUT: Final = frozenset([*_STORED, *_SELECTED, "accumulate", "as"])
_AFTER_FAILURE: Final = re.compile(r"step\.failed|event\.status\s*==\s*['\"]error|event\.error")
_IF_DEFINED: Final = re.compile(
    r"(?<![\w.~+*/|-])(?<![~+*/|-] )(?P<name>result|error|response)(?:\.\w+)*+ if (?P=name) is defined else "
    r"(?P<other>\d++|'[^'\\]*+'|\"[^\"\\]*+\")(?=\s*+(?:[,}]|$))"
)
"""A value that is read only where its name is defined, with a constant for the other case."""
_STATEMENTS: Final = ("claim", "command", "query")
"""The keys of a cursor under which its statement stands."""
_QUERY: Final = re.compile(
    r"\s*+(?:select|with)\b(?!.*\b(?:limit|fetch|for\s++(?:no\s++key\s++)?update|insert|update|delete|merge)\b)",
    re.IGNORECASE | re.DOTALL,
)
"""SQL that reads all rows, and claims none."""
_PLAIN_PATH: Final = re.compile(r"\$?(?:\.?[A-Za-z_]\w*+|\[\d++\]|\['[^']++'\])*+\Z")
_PART: Final = re.compile(r"[A-Za-z_]\w*|(?<=\[)\d+(?=\])|(?<=\[')[^']+(?='\])")


def dotted_sets(draft: Draft) -> None:
    """Rewrites keys of `set` and its like that begin with their scope: `set: { ctx.page: 1 }`."""
    for writer in _WRITERS:
        for values in _mappings_at(draft.root.get("workflow"), writer):
            for key in [key for key in values if isinstance(key, str) and "." in key]:
                scope, _, name = key.partition(".")
                if scope not in _SCOPES or (writer != "set" and writer != f"set_{_SCOPES[scope]}") or "." in name:
                    said = f"`{key}` is not a key that can be set: write set_ctx, set_iter or set_vars"
                    draft.decide(values, key, said)
                    continue
                draft.note_change((values, key), f"`{key}` is the key `{name}` of `set_{_SCOPES[scope]}`")
                if writer == "set":
                    draft.move(values, key, section(values, _SCOPES[scope]), name)
                else:
                    draft.rename(values, key, name)


def _mappings_at(node: Any, word: str) -> list[CommentedMap]:
    """Every mapping under this key in a collection."""
    found = [container[key] for container, key in entries_in(node) if key == word]
    return [value for value in found if isinstance(value, CommentedMap)]


def task_input(draft: Draft) -> None:
    """Rewrites `input`, or `data`, of a task as its `args`, or writes the values where its templates read them."""
    for task, step in list(draft.tasks()):
        kind, spec = kind_of(task), mapping_at(task, "spec")
        if spec is not None and "input" in spec and "input" not in {*task, *draft.knobs_of(kind)}:
            draft.move(spec, "input", task, note="`input` stands beside `kind`")
        for word in ("input", "data"):
            values = task.get(word)
            if not isinstance(values, CommentedMap) or word in draft.inputs_of(kind):
                continue
            if not values:
                draft.remove(task, word, note=f"empty `{word}` of a task")
            elif kind in ARGS_KINDS and not values.keys() & (mapping_at(task, "args") or values).keys():
                merge_args(task, values)
                draft.remove(task, word, note=f"`{word}` of kind `{kind}` is `args`")
            elif kind in ARGS_KINDS and "args" not in task:
                draft.rename(task, word, "args", note=f"`{word}` of kind `{kind}` is `args`")
            elif kind in ARGS_KINDS:
                draft.decide(task, word, f"the task has `{word}` and `args` with one name: write one of them")
            elif word == "input":
                _inline_input(draft, task, step, values)


def _inline_input(draft: Draft, task: CommentedMap, step: CommentedMap | None, values: CommentedMap) -> None:
    kind = kind_of(task)
    command = str(task.get("command", task.get("query", "")))
    named = [key for key in values if kind in SQL and f"${key}" in with_dollars(command, {key})]
    for key in named:
        draft.move(values, key, section(task, "params"), note=f"`{key}` is a param of the statement")
    keys = [key for key in task if key not in ("input", "name", "kind")]
    taken = {str(value_at(step, "loop", "iterator"))}
    unread = set(values) - inline_values(draft, [(task, key) for key in keys], values, taken)
    for key in list(values):
        if key in unread:
            draft.drop(values, key, "no template of the task reads this input", heir=(task, "kind"))
        else:
            draft.remove(values, key, heir=(task, "kind"), note=f"`{key}` is written where the task reads it")
    draft.remove(task, "input", heir=(task, "kind"))


def input_reads(draft: Draft) -> None:
    """Rewrites `input.x`, which the arc into a step passed, as `args.x`."""
    if "input" not in declared_names(draft):
        draft.rewrite_parts(draft.root, ["workflow"], rename_to("input", "args"), "`input` is `args`")


def output_words(draft: Draft) -> None:
    """Rewrites `output` as `outcome` in policies, and as `event` in arcs."""
    if "output" in declared_names(draft):
        return
    for task in draft.all_tasks():
        policy = mapping_at(task, "spec", "policy")
        if policy is not None and draft.rewrite(policy, partial(_in_policy, kind=kind_of(task))):
            draft.note_change((task, "spec"), "`output` is `outcome`")
    for step in draft.steps():
        kind = kind_of_result(step)
        draft.rewrite_parts(step, ("set", "vars"), partial(_in_policy, kind=kind), "`output` is `outcome`")
        router = step.get("next")
        if isinstance(router, CommentedMap | CommentedSeq) and draft.rewrite(router, partial(_in_arc, kind=kind)):
            draft.note_change((step, "next"), "`output` is `event`")
            each_expression(router, lambda text: re.sub(r"(event\.status\s*[!=]=\s*)(['\"])ok\2", r"\1'success'", text))


def _in_policy(path: Path, kind: str) -> Replaced:
    return _output_as(path, kind, "outcome", "outcome.result", "outcome.http.status")


def _in_arc(path: Path, kind: str) -> Replaced:
    if path[:3] == ("output", "http", "status"):
        return 3, "event.result.status"
    return _output_as(path, kind, "event", "event.result", "event.result.status")


def _output_as(path: Path, kind: str, whole: str, result: str, status: str) -> Replaced:
    match path:
        case ("output", "status_code", *_) if kind == "http":
            return 2, status
        case ("output", "error", "status" | "status_code", *_) if kind == "http" and whole == "outcome":
            return 3, status
        case ("output", "error", "retry_after", *_):
            return 3, f"{whole}.error.retry_after_s"
        case ("output", "data", "status_code", *_) if kind == "http":
            return 3, status
        case ("output", "data", "headers", *_) if kind == "http":
            return 2, result
        case ("output", "data", "data" | "body", *_) if kind == "http":
            return 3, f"{result}.data"
        case ("output", "data" | "body", *_) if kind == "http":
            return 2, f"{result}.data"
        case ("output", "data", *_) if kind in SQL:
            return 2, result
        case ("output", "data", *_):
            return 2, f"({result}.data | default({result}))"
        case ("output", str(key), *_) if key in _OUTCOME and (
            whole == "outcome" or key in ("status", "error", "result")
        ):
            return 1, whole
        case ("output", *_):
            return 1, result
        case _:
            return None


def failed_results(draft: Draft) -> None:
    """Passes the error of a step to the step that handles it, where that reads `output.error` or `error`."""
    declared, arcs = declared_names(draft), arcs_into(draft.steps())
    for step in draft.steps() if draft.was_older else []:
        failing = [
            arc for _, arc in arcs.get(str(step.get("step")), ()) if _AFTER_FAILURE.search(str(arc.get("when", "")))
        ]

        def rewrite(path: Path) -> Replaced:
            at = 1 if path[:2] == ("output", "error") else 0
            is_read = path[at : at + 1] == ("error",) and path[0] not in declared
            return (at + 1, "args.error") if is_read else None

        tasks = [(task, key) for task in tasks_of(step.get("tool")) for key in task if key not in ("spec", "name")]
        if failing and sum(draft.rewrite_entry(task, key, rewrite) for task, key in tasks):
            draft.note_change((step, "step"), "the error of the step before is passed by the arc: `args.error`")
            for arc in failing:
                section(arc, "args").setdefault("error", to_ruamel(template("event.error")))


def no_match(draft: Draft, step: CommentedMap) -> None:
    """Removes `on_no_match` if it states the default: the branch ends."""
    spec = mapping_at(step, "next", "spec")
    if spec is None or "on_no_match" not in spec:
        return
    word = spec["on_no_match"]
    if word is None or str(word).lower() in _ENDS:
        draft.remove(spec, "on_no_match", heir=(step, "next"), note="a branch ends where no arc fires")
    elif not isinstance(step["next"].get("arcs"), CommentedSeq):
        draft.decide(spec, "on_no_match", f"`{word}` where no arc fires: write the arcs as a list")
    elif str(word).lower() in ("fail", "error") and spec.get("mode", "exclusive") == "exclusive":
        draft.remove(spec, "on_no_match", heir=(step, "next"), note="where no arc fires, a last arc leads to a failure")
        if all("when" in arc for arc in arcs_of(step)):
            _lead_to_failure(draft, step)
        draft.remove_empty(step["next"], "spec")
    else:
        said = f"`{word}` where no arc fires: write a last arc without `when`, to a step for it"
        draft.decide(spec, "on_no_match", said)


def _lead_to_failure(draft: Draft, step: CommentedMap) -> None:
    name, line = _new_step(draft, f"{step.get('step')}_no_match"), line_of(step, "next")
    step["next"]["arcs"].append(to_ruamel({"step": name}, line))
    policy = {"rules": [{"else": {"then": {"do": "fail"}}}]}
    task = to_ruamel({"kind": "noop", "spec": {"policy": policy}}, line, block=True)
    workflow = draft.root["workflow"]
    workflow.insert(list(workflow).index(step) + 1, to_ruamel({"step": name, "tool": task}, line, block=True))


def arc_set(draft: Draft, step: CommentedMap) -> None:
    """Moves `set` of a step's only arc to the step, if nothing else decides whether it is set."""
    router = mapping_at(step, "next")
    arcs = arcs_of(step) if router is not None else mappings(step.get("next"))
    for arc in [arc for arc in arcs if isinstance(arc.get("set"), CommentedMap)]:
        condition = expression_in(arc.get("when"))
        is_certain = condition is None or re.fullmatch(
            r"(event|output)\.(status|name)\s*==\s*['\"](success|ok|step\.done|loop\.done)['\"]", condition
        )
        if len(arcs) == 1 and is_certain and "set" not in step and "loop" not in step:
            draft.move(arc, "set", step, note="`set` of the only arc belongs in the policy of the last task")
        elif "step" in arc and not arc.get("args") and not arc.get("input"):
            _set_between(draft, step, arc)
        else:
            draft.decide(arc, "set", "an arc sets nothing: pass the values as args, or set them in a task's policy")


def _set_between(draft: Draft, step: CommentedMap, arc: CommentedMap) -> None:
    """Leads an arc that sets values to a step that sets them, and goes on to the target."""
    line, target = line_of(arc, "set"), str(arc["step"])
    values = draft.remove(arc, "set", note=f"what the arc sets is set by a step before `{target}`")
    scopes = by_scope(values)
    name = _new_step(draft, f"{step.get('step')}_to_{target}")
    arc["args"] = to_ruamel({key: value for inner in scopes.values() for key, value in inner.items()}, line)
    writes = {f"set_{scope}": {key: template(f"args.{key}") for key in inner} for scope, inner in scopes.items()}
    policy = {"rules": [{"else": {"then": {"do": "continue", **writes}}}]}
    task = to_ruamel({"kind": "noop", "spec": {"policy": policy}}, line, block=True)
    between = {"step": name, "tool": task, "next": {"arcs": [{"step": target}]}}
    arc["step"] = name
    draft.root["workflow"].insert(list(draft.root["workflow"]).index(step) + 1, to_ruamel(between, line, block=True))


def _new_step(draft: Draft, first: str) -> str:
    """The name of a new step."""
    return free_name(first, {str(one.get("step")) for one in draft.steps()})


def cursor_loop(draft: Draft, step: CommentedMap) -> None:
    """Rewrites a loop over a cursor that reads rows as a loop over the rows of a query, in tables."""
    loop = mapping_at(step, "loop")
    holders = [one for one in (loop, mapping_at(step, "loop", "spec")) if one is not None]
    if loop is None or not ("cursor" in loop or any(one.get("mode") == "cursor" for one in holders)):
        return
    cursor = mapping_at(loop, "cursor")
    word = next((word for word in _STATEMENTS if cursor is not None and word in cursor), None)
    is_query = cursor is not None and word is not None and kind_of(cursor) in SQL and _QUERY.match(str(cursor[word]))
    if cursor is None or word is None or not is_query or cursor.keys() - {word, "kind", "auth", "params", "batch"}:
        draft.decide(
            step,
            "loop",
            "a loop asks once for its rows: write a query of all of them under `rows`, in place of `cursor`, and in it "
            "no claim of one row after another",
        )
        return
    if word != "command":
        draft.rename(cursor, word, "command", note=f"`{word}` of a cursor is `command`")
    draft.rename(loop, "cursor", "rows", note="a loop over a cursor is a loop over the rows of a query")
    for holder in [one for one in holders if one.get("mode") == "cursor"]:
        draft.remove(holder, "mode", heir=(loop, "rows"), note="the rows come in their order")
    draft.remove_empty(loop, "spec", heir=(loop, "rows"))
    _note_items(draft, step, str(loop.get("iterator")))


def _note_items(draft: Draft, step: CommentedMap, iterator: str) -> None:
    """Says that an item is a table of rows; a person decides where something reads a column of it."""
    columns: list[Path] = []

    def note(path: Path) -> Replaced:
        own = path[1:] if path[0] == "iter" else path
        if own[:1] == (iterator,) and len(own) > 1:
            columns.append(path)
        return None

    draft.rewrite_parts(step, ("tool",), note)
    message = (
        f"`{iterator}` is a table of rows, not a row: a task of `duckdb` reads it, with tables: {{ {iterator}: … }}"
    )
    if columns:
        draft.decide(step, "tool", message)
    else:
        draft.note_assumption((step, "tool"), message)


def output_block(draft: Draft) -> None:
    """Rewrites `output`, which says how a result is stored, which of it is selected, and what is accumulated."""
    for step in draft.steps():
        tasks = list(tasks_of(step.get("tool")))
        for task in [task for task in tasks if (mapping_at(task, "output_select") or {}).keys() & _BY_SIZE]:
            if not task["output_select"].keys() - _BY_SIZE and "output_select" not in draft.inputs_of(kind_of(task)):
                draft.drop(task, "output_select", "large results are stored by themselves", heir=(task, "kind"))
        holders = [(task, task, word) for task in tasks for word in ("output", "result")]
        holders += [(step, task, word) for task in tasks[-1:] for word in ("output", "result")]
        for holder, task, word in holders:
            block = mapping_at(holder, word)
            is_input = holder is task and word in draft.inputs_of(kind_of(task))
            if block and block.keys() <= _OUTPUT and not is_input:
                _rewrite_output(draft, step, holder, task, word)
    for task, owner in list(draft.tasks()):
        spec = mapping_at(task, "spec")
        if owner is not None and spec is not None and isinstance(spec.get("result"), CommentedMap):
            draft.drop(spec, "result", "large results are stored by themselves", heir=(task, "spec"))
            draft.remove_empty(task, "spec")


def _selected(block: Any) -> list[Any]:
    """What is selected of a result: each a path, or `{path, as}`."""
    if isinstance(block, CommentedSeq):
        return list(block)
    if isinstance(block, CommentedMap) and not block.keys() <= {"path", "as"}:
        return [to_ruamel({"path": path, "as": name}, line_of(block)) for name, path in block.items()]
    return [block] if block else []


def _rewrite_output(draft: Draft, step: CommentedMap, holder: CommentedMap, task: CommentedMap, word: str) -> None:
    """Rewrites the block under ``word`` of a task or its step."""
    block = holder[word]
    for key in [key for key in _STORED if key in block]:
        why = "large results are stored by themselves, for as long as the execution is kept"
        draft.drop(block, key, why, heir=(holder, word))
    names = {str(step.get("step")), str(task.get("name", step.get("step")))}
    found: dict[str, Path] = {}
    for key in [key for key in _SELECTED if key in block]:
        for one in _selected(block[key]):
            path = one.get("path") if isinstance(one, CommentedMap) and one.keys() <= {"path", "as"} else one
            name = one.get("as", str(path).rpartition(".")[2]) if isinstance(one, CommentedMap) else one
            if isinstance(path, str) and isinstance(name, str) and _PLAIN_PATH.match(path):
                found[name] = tuple(int(part) if part.isdigit() else part for part in _PART.findall(path))
                if kind_of(task) == "http" and found[name][:1] == ("data",):
                    draft.note_assumption((holder, word), f"`{path}` is read in the body of the response")
            else:
                draft.decide(holder, word, f"`{key}` has {shown(one)}: read it of the result where it is needed")
        read = ", ".join(found) or "what it selects"
        draft.remove(block, key, heir=(holder, word), note=f"`{key}`: {read} is read of the result")
    if "accumulate" in block:
        _accumulate(draft, step, holder, task, word, names)
    for key in list(block):
        draft.note_change((block, key), f"`{key}` of `{word}`: a result has the name of its task")
        if key == "as" and isinstance(block[key], str):
            alias, name = block[key], f"steps.{step.get('step')}"
            draft.rewrite(draft.root.get("workflow"), rename_to(alias, name))
        draft.remove(block, key, heir=(holder, word))
    draft.remove(holder, word)
    body = ("data",) if kind_of(task) == "http" else ()

    def rewrite(path: Path) -> Replaced:
        at = 2 if path[0] == "steps" else 1
        is_own = path[0] == "output" or str(path[at - 1]) in names
        if len(path) <= at or not is_own or path[at] not in found:
            return None
        return at + 1, path_text((*path[:at], *body, *found[str(path[at])]))

    draft.rewrite_parts(draft.root, ("workflow", "executor"), rewrite)


def _accumulate(
    draft: Draft, step: CommentedMap, holder: CommentedMap, task: CommentedMap, word: str, names: set[str]
) -> None:
    given, line = holder[word]["accumulate"], line_of(holder[word], "accumulate")
    options = given if isinstance(given, CommentedMap) else {"enabled": given is not False}
    strategy, merged = str(options.get("strategy", "append")), str(options.get("merge_path", "$"))
    unknown = set(options) - {"enabled", "strategy", "merge_path", "manifest_as"}
    name = str(options.get("manifest_as", "accumulated"))
    if options.get("enabled") is False:
        draft.remove(holder[word], "accumulate", heir=(holder, word), note="`accumulate` is switched off")
        return
    key = f"{step.get('step')}_{name}"
    parts = [int(part) if part.isdigit() else part for part in _PART.findall(merged)]
    body = ("data",) if kind_of(task) == "http" else ()
    source = path_text(("outcome", "result", *body, *parts))
    so_far = f"(ctx.{key} | default([]))"
    values = {"append": f"{so_far} + [{source}]", "concat": f"{so_far} + {source}", "replace": source}
    is_known = given in (None, True) or isinstance(given, CommentedMap)
    is_plain = is_known and strategy in values and not unknown and name.isidentifier() and _PLAIN_PATH.match(merged)
    if not is_plain or "loop" in step:
        draft.decide(
            holder,
            word,
            f"`accumulate: {shown(given)}`: write set_ctx or set_shared in the policy of the task",
        )
        draft.remove(holder[word], "accumulate", heir=(holder, word))
        return
    said = f"what is accumulated is `ctx.{key}`; the result itself is the last one"
    draft.note_assumption((holder[word], "accumulate"), said)
    draft.remove(holder[word], "accumulate", heir=(holder, word), note=f"`accumulate` is `set_ctx: {{ {key}: … }}`")
    write_after(draft, task, "set_ctx", to_ruamel({key: template(values[strategy])}, line), line)

    def rewrite(path: Path) -> Replaced:
        at = 2 if path[0] == "steps" else 1
        return (
            (at + 1, f"ctx.{key}")
            if str(path[at - 1 : at]) and path[at - 1] in names and path[at : at + 1] == (name,)
            else None
        )

    draft.rewrite_parts(draft.root, ("workflow", "executor"), rewrite)


RULES: Final = (dotted_sets, task_input, output_block, *each(Draft.steps, arc_set))
"""These run before the rules that read `set`, `result` and inputs."""


def state_from_outside(draft: Draft) -> None:
    """Notes guards of arcs on state that nothing in the playbook sets, such as an approval."""
    if not draft.was_older:
        return
    written = {
        key for word in ("set_ctx", "set_shared") for one in _mappings_at(draft.root["workflow"], word) for key in one
    }
    for step in draft.steps():
        for arc in arcs_of(step) if value_at(step, "next", "spec", "wait") is None else []:
            when = str(arc.get("when", ""))
            read = {path[1] for path in paths_in(when) if path[0] == "ctx" and len(path) > 1} - written
            for key in sorted(map(str, read)):
                if not re.search(rf"ctx\.{re.escape(key)}\b\s*(?:\|\s*default|is\s+(?:not\s+)?defined)", when):
                    message = f"nothing here sets `ctx.{key}`: if somebody else does, let the branch wait for it"
                    said = f"{message}, with next: {{ spec: {{ wait: {{ timeout_s: 86400 }} }} }}"
                    draft.note_assumption((arc, "when"), said)


def absent_names(draft: Draft) -> None:
    """Writes what stands behind `else` where a task asks for `result` or `error`, which no task has, and says so."""
    declared = declared_names(draft)
    for task, step in list(draft.tasks()) if draft.was_older else []:
        found: list[str] = []

        def change(code: str, found: list[str] = found) -> str:
            found += [match[0] for match in _IF_DEFINED.finditer(code) if match["name"] not in declared]
            return _IF_DEFINED.sub(lambda match: match[0] if match["name"] in declared else match["other"], code)

        if step is not None and each_expression(task, change):
            said = " and ".join(f"`{one}`" for one in dict.fromkeys(found))
            draft.decide(
                task, "kind", f"{said} reads what no task has, so `else` is written: pass the value in the arc, as args"
            )


LATER_RULES: Final = (*each(Draft.steps, cursor_loop, no_match), output_words, input_reads)
"""These run after the rules that shape steps and arcs."""
LAST_RULES: Final = (failed_results, absent_names, state_from_outside)
