"""Rewrites tasks: inputs and knobs under older names or in the wrong place (LANGUAGE §12); and `save` and `sink` as a
task that stores, after the one whose result it stores (v10 §10).
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from typing import Any, Final

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from noetl_stream.playbook.upgrade.draft import (
    Draft,
    arcs_of,
    each,
    kind_of,
    line_of,
    mapping_at,
    quote_like,
    shown,
    tasks_of,
    to_ruamel,
)
from noetl_stream.playbook.upgrade.expressions import Path, Replaced, Rewrite, template
from noetl_stream.playbook.upgrade.rules.reads import RETURNS_VALUE, SQL
from noetl_stream.playbook.upgrade.rules.steps import pipeline_of

WORDS: Final = ("save", "sink")
_PLACES: Final = ("storage", "kind", "type", "tool")
_STATEMENTS: Final = ("command", "commands", "query", "statement", "sql")
_NOWHERE: Final = frozenset(["event", "event_log", "events", "none"])
_POSITION: Final = re.compile(r"(?<!%)%s")
_NAME: Final = re.compile(r"[A-Za-z_]\w*\Z")


def step_sink(draft: Draft, step: CommentedMap) -> None:
    """Rewrites `save` and `sink` of a step."""
    for word in WORDS:
        if word not in step:
            continue
        line, pipeline = line_of(step, word), None
        tool = step.get("tool")
        before = list(tasks_of(tool))
        task = sink_task(step[word], f"{step.get('step')}_{word}", line)
        if task is None:
            _keep(draft, step, word)
            continue
        draft.note_change((step, word), f"`{word}` of a step is a task at the end of its pipeline")
        pipeline = pipeline_of(draft, step)
        source = result_name(pipeline)
        reads_result(draft, task, source, before[-1].get("kind") if before else None)
        draft.remove(step, word)
        pipeline.append(task)
        if source and "loop" not in step:
            draft.results[str(step.get("step"))] = source
        elif source:
            pipeline.append(result_task(template(source), line, f"{step.get('step')}_result"))


def task_sink(draft: Draft, step: CommentedMap) -> None:
    """Rewrites `save` and `sink` of a task."""
    for task in list(tasks_of(step.get("tool"))):
        for word in WORDS:
            if word not in task:
                continue
            line = line_of(task, word)
            pipeline = pipeline_of(draft, step)
            if task not in list(pipeline):
                draft.decide(task, word, "write a task that stores, after this one")
                continue
            position = list(pipeline).index(task)
            name = task.setdefault("name", f"task_{position}")
            stored = sink_task(task[word], f"{name}_{word}", line)
            if stored is None:
                _keep(draft, task, word)
                continue
            reads_result(draft, stored, name, kind_of(task))
            draft.remove(task, word, note=f"`{word}` of a task is the task after it")
            pipeline.insert(position + 1, stored)
            if position + 2 == len(pipeline) and "loop" not in step:
                draft.results[str(step.get("step"))] = name
            elif position + 2 == len(pipeline):
                # The iteration ends with the result of the task before the one that stores it.
                pipeline.append(result_task(template(name), line, f"{step.get('step')}_result"))


def result_task(value: Any, line: int, name: str) -> CommentedMap:
    """Makes a task whose result is this value."""
    task: dict[str, Any] = {"name": name, "kind": "noop", "args": value}
    if not isinstance(value, CommentedMap):
        task |= {"kind": "python", "args": {"value": value}, "code": RETURNS_VALUE}
    return to_ruamel(task, line, block=True)  # type: ignore[no-any-return]


def save_kind(draft: Draft, step: CommentedMap) -> None:
    """Rewrites tasks of kind `save` and `sink` as tasks of the kind that stores."""
    tool = step.get("tool")
    for at, task in enumerate(tool if isinstance(tool, CommentedSeq) else [tool]):
        if kind_of(task) not in WORDS:
            continue
        given = {key: value for key, value in task.items() if key not in ("kind", "name", "spec")}
        inner = given.get("save", given) if len(given) == 1 else given
        stored = sink_task(to_ruamel(dict(inner)), str(task.get("name", step.get("step"))), line_of(task))
        if stored is None:
            draft.decide(task, "kind", "write a task that stores the data: kind, auth, command, params")
            continue
        draft.note_change((task, "kind"), f"a task of kind `{kind_of(task)}` is one of the kind that stores")
        if isinstance(tool, CommentedSeq):
            tool[at] = stored
        else:
            stored.pop("name")
            step["tool"] = stored


def _keep(draft: Draft, holder: CommentedMap, word: str) -> None:
    value = holder[word]
    given = value if isinstance(value, CommentedMap) else {}
    if str(next((given[key] for key in _PLACES if key in given), None)) not in _NOWHERE:
        draft.decide(holder, word, "write a task that stores the data: kind, auth, command, params")
        return
    task = holder if "kind" in holder else mapping_at(holder, "tool")
    data = given.get("args")
    if isinstance(data, CommentedMap) and task is not None and kind_of(task) == "noop" and "args" not in task:
        draft.note_assumption((holder, word), f"what `{word}` wrote to the event log is the result of the step")
        task["args"] = data
        given.pop("args")
    rest = ", ".join(f"{key}: {shown(inner)}" for key, inner in given.items() if key not in _PLACES)
    if rest:
        draft.note_assumption((holder, word), f"`{word}` to the event log is dropped, with {rest}")
    draft.remove(holder, word, note=f"`{word}` to the event log is dropped: every result is in its event")


def sink_task(sink: Any, name: str, line: int) -> CommentedMap | None:
    """Makes the task for a sink; ``None`` if it does not say how to store."""
    if isinstance(sink, str) or not isinstance(sink, CommentedMap):
        return None
    given = dict(sink)
    tool = given.pop("tool", None)
    if isinstance(tool, CommentedMap):
        given = {**tool, **given}
    elif isinstance(tool, str):
        given["kind"] = tool
    storage = given.pop("storage", None)
    if isinstance(storage, CommentedMap):
        given = {**storage, **given}
    kind = given.pop("kind", None) or given.pop("type", None) or (storage if isinstance(storage, str) else None)
    if not isinstance(kind, str) or kind in _NOWHERE:
        return None
    if kind in SQL:
        return _sql_sink(kind, given, name, line)
    return to_ruamel({"name": name, "kind": kind, **given}, line, block=True)  # type: ignore[no-any-return]


def _sql_sink(kind: str, given: dict[str, Any], name: str, line: int) -> CommentedMap | None:
    params = given.pop("args", None) or given.pop("data", None) or given.pop("params", None)
    statement = next((given.pop(key) for key in _STATEMENTS if key in given), None)
    table, mode = given.get("table"), given.get("mode")
    if statement is None:
        given = {key: value for key, value in given.items() if key not in ("table", "mode")}
        unique = _columns(given.pop("key", None)) if mode == "upsert" and kind == "postgres" else []
        if not isinstance(params, CommentedMap) or not table:
            return None
        if mode not in (None, "append", "insert") and not (unique and set(unique) <= set(params)):
            return None
        if not all(_NAME.match(str(name)) for name in (*params, *str(table).split("."))):
            return None
        values = ", ".join(f"${column}" for column in params)
        columns = ", ".join(params)
        statement = f"INSERT INTO {table} ({columns}) VALUES ({values})"  # noqa: S608 - the names are checked
        if unique:
            rest = ", ".join(f"{column} = EXCLUDED.{column}" for column in params if column not in unique)
            statement += f" ON CONFLICT ({', '.join(unique)}) DO {f'UPDATE SET {rest}' if rest else 'NOTHING'}"
    elif isinstance(params, CommentedMap) and isinstance(statement, str):
        statement = with_dollars(statement, set(params))
    task: dict[str, Any] = {"name": name, "kind": kind, **given, "command": statement}
    if isinstance(params, CommentedMap):
        task["command"] = _args_as_params(str(statement), params)
        task["params"] = to_ruamel(dict(params))
    return to_ruamel(task, line, block=True)  # type: ignore[no-any-return]


def _columns(key: Any) -> list[str]:
    """The columns that a `key` names."""
    return [str(one).strip() for one in (key if isinstance(key, CommentedSeq) else str(key or "").split(",")) if one]


def with_dollars(statement: str, names: set[str]) -> str:
    """Rewrites `:name` and `%(name)s` as `$name`, where a param of that name is not named so already."""

    def write_placeholder(match: re.Match[str]) -> str:
        name = match[1]
        return f"${name}" if name in names and f"${name}" not in statement else match[0]

    return re.sub(r"(?<![:\w]):([A-Za-z_]\w*)", write_placeholder, re.sub(r"%\((\w+)\)s", write_placeholder, statement))


def _args_as_params(statement: str, params: CommentedMap) -> str:
    """Rewrites `{{ name }}` of a param in a statement as its placeholder."""

    def write_placeholder(match: re.Match[str]) -> str:
        name = match[2].removeprefix("args.")
        return f"${name}" if name in params else match[0]

    return re.sub(r"('?)\{\{\s*([\w.]+)\s*\}\}\1", write_placeholder, statement)


def reads_result(draft: Draft, task: CommentedMap, name: str | None, kind: Any) -> None:
    """Rewrites a task to read the result that it stores by the name of the task before."""
    source = name or "_prev"

    def rewrite(path: Path) -> Replaced:
        match path:
            case ("response", *_):
                return 1, f"{source}.data" if kind == "http" else source
            case ("this", "data", *_) if kind in SQL:
                return 2, source
            case ("this", "data", *_) if kind != "http":
                return 2, f"({source}.data | default({source}))"
            case ("result" | "this", *_):
                return 1, source
            case _:
                return None

    draft.rewrite(task, rewrite)


def result_name(pipeline: CommentedSeq) -> str | None:
    """The name of the last task of a pipeline, which gets one."""
    last = pipeline[-1] if pipeline else None
    if not isinstance(last, CommentedMap):
        return None
    return str(last.setdefault("name", f"task_{len(pipeline) - 1}"))


def stored_results(draft: Draft) -> None:
    """Rewrites reads of a step's result, which now is that of the task that stores."""
    if not draft.results:
        return
    changes = draft.rewrite(draft.root.get("executor"), _stored_rewrite(draft))
    for step in draft.steps():
        name = str(step.get("step"))
        own = {str(task.get("name")) for task in tasks_of(step.get("tool"))} | {name}
        for key in ("tool", "loop", "spec"):
            changes += draft.rewrite(step.get(key), _stored_rewrite(draft, own))
        for arc in arcs_of(step):
            changes += draft.rewrite(arc, _stored_rewrite(draft, set(), name))
    if changes:
        said = "results of steps that store are read of their task before: `.results`"
        draft.note_change((draft.root, "workflow"), said)


def _stored_rewrite(draft: Draft, own: AbstractSet[str] = frozenset(), step: str = "") -> Rewrite:
    """Makes the rewrite of reads of the steps that store.

    Args:
        own: Bare names that mean something else here.
        step: The step whose arcs these are, for ``event.result``.
    """

    def rewrite(path: Path) -> Replaced:
        if path[:2] == ("event", "result") and step in draft.results:
            return 2, f"steps.{step}.results.{draft.results[step]}"
        at = 2 if path[0] == "steps" and len(path) > 1 else 1
        name = str(path[at - 1])
        if name not in draft.results or (at == 1 and name in own) or path[at : at + 1] == ("results",):
            return None
        return at, f"steps.{name}.results.{draft.results[name]}"

    return rewrite


SINK_RULES: Final = each(Draft.steps, save_kind, task_sink, step_sink)


_NAMES: Final = {
    "http": {"data": "json", "json_body": "json", "query": "params", "query_params": "params", "uri": "url"},
    "python": {"script": "code", "source": "code"},
    "shell": {"cmd": "command", "script": "command", "environment": "env", "working_dir": "cwd", "workdir": "cwd"},
    "nats": {"operation": "action", "data": "payload", "message": "payload"},
    "postgres": {"sql": "command", "statement": "command", "script": "command", "dsn": "auth"},
    "duckdb": {"sql": "command", "statement": "command", "script": "command"},
    "playbook": {
        "playbook": "path",
        "return": "return_step",
        "result_step": "return_step",
        "payload": "args",
        "input": "args",
        "input_payload": "args",
    },
    "workbook": {"workbook_task": "task", "task_name": "task"},
}
_KNOBS: Final = {
    "http": {"verify_ssl": "verify_tls", "verify": "verify_tls", "allow_redirects": "follow_redirects"},
}
_ACTIONS: Final = {
    "js_publish": "publish",
    "get": "kv_get",
    "put": "kv_put",
    "delete": "kv_delete",
    "kv.get": "kv_get",
    "kv.put": "kv_put",
    "object.get": "object_get",
    "object.put": "object_put",
}
_PARTS_OF_DATA: Final = {"query": "params", "params": "params", "body": "json", "json": "json"}
_WITHOUT_BODY: Final = ("GET", "HEAD", "DELETE")
_TIMES: Final = ("timeout", "timeout_s", "timeout_seconds")


def task_inputs(draft: Draft, task: CommentedMap) -> None:
    """Renames inputs that have another name."""
    kind = kind_of(task)
    for old, new in _NAMES.get(kind, {}).items():
        if old in task and new not in task and not isinstance(task[old], CommentedMap if new == "code" else ()):
            draft.rename(task, old, new, note=f"`{old}` of kind `{kind}` is `{new}`")


def http_data(draft: Draft, task: CommentedMap) -> None:
    """Rewrites `data` of http: the query of a request that has no body, else the body, or both by name."""
    data, method = task.get("data"), str(task.get("method", "GET")).upper()
    if kind_of(task) != "http" or not isinstance(data, CommentedMap):
        return
    if data and data.keys() <= _PARTS_OF_DATA.keys():
        for key in list(data):
            name = _PARTS_OF_DATA[key]
            draft.move(data, key, task, name, note=f"`{key}` of `data` is `{name}`")
        draft.remove_empty(task, "data", heir=(task, "kind"))
    elif method in _WITHOUT_BODY and "params" not in task:
        draft.rename(task, "data", "params", note=f"`data` of a {method} is its query: `params`")


def shell_commands(draft: Draft, task: CommentedMap) -> None:
    """Rewrites `cmds` as lines of one command that ends with the first that fails."""
    key = next((key for key in ("cmds", "commands") if key in task), None)
    if kind_of(task) != "shell" or key is None or "command" in task:
        return
    lines = task[key]
    text = "\n".join(map(str, lines)) if isinstance(lines, CommentedSeq) else str(lines)
    draft.note_change((task, key), f"`{key}` of kind `shell` is `command`, which ends with the first that fails")
    many = "\n" in text.strip()
    draft.rename(task, key, "command", to_ruamel(f"set -e\n{text}\n" if many else text.strip()))


def nats_actions(draft: Draft, task: CommentedMap) -> None:
    """Renames actions of `nats` that have another name."""
    action = str(task.get("action"))
    if kind_of(task) == "nats" and action in _ACTIONS:
        draft.replace(task, "action", _ACTIONS[action], note=f"`{action}` is `{_ACTIONS[action]}`")
        if action == "js_publish":
            task["jetstream"] = True


def playbook_options(draft: Draft, task: CommentedMap) -> None:
    """Drops `return_result` of a called playbook, whose result is always there, and a `task` beside its path."""
    if kind_of(task) == "playbook" and isinstance(task.get("task"), str) and "path" in task:
        draft.drop(task, "task", "the whole playbook at `path` is called", heir=(task, "kind"))
    if kind_of(task) == "playbook" and task.get("return_result") is not None:
        draft.drop(task, "return_result", "the result of a called playbook is always read by the task's name")


def nats_objects(draft: Draft, task: CommentedMap) -> None:
    """Renames the `name` of an object, which is the key in its bucket."""
    is_object = kind_of(task) == "nats" and str(task.get("action")).startswith("object_") and "bucket" in task
    if is_object and "name" in task and "key" not in task:
        draft.rename(task, "name", "key", note="the `name` of an object is its `key`")


def duckdb_memory(draft: Draft, task: CommentedMap) -> None:
    """Removes `database: ":memory:"`, which a task has anyway."""
    if kind_of(task) == "duckdb" and task.get("database") == ":memory:":
        draft.remove(task, "database", note="a duckdb task has its own database in memory")


def knob_names(draft: Draft, task: CommentedMap) -> None:
    """Renames knobs, and moves those beside `spec` under it."""
    kind = kind_of(task)
    knobs = draft.knobs_of(kind)
    own = draft.inputs_of(kind) - knobs  # some knobs are accepted beside `spec`
    names = {**_KNOBS.get(kind, {}), **{knob: knob for knob in knobs}}
    for old, new in names.items():
        if old in task and new in knobs and (old == "verify_ssl" or old not in own):
            draft.nest(task, old, "spec", name=new, note=f"`{old}` of a task is `spec.{new}`")
    draft.rename_older(mapping_at(task, "spec"), _KNOBS.get(kind, {}), "`{}` is `{}`")


def task_timeout(draft: Draft, task: CommentedMap) -> None:
    """Moves `timeout` beside `spec`, and its other names, under `spec`."""
    kind = kind_of(task)
    spec = task.get("spec")
    for key in _TIMES:
        is_input = key in draft.inputs_of(kind) and not (key == "timeout" and kind == "http")
        if key in task and not is_input:
            draft.nest(task, key, "spec", name="timeout", note=f"`{key}` of a task is `spec.timeout`")
        if isinstance(spec, CommentedMap) and key in spec and key != "timeout" and "timeout" not in spec:
            draft.rename(spec, key, "timeout", note=f"`{key}` is `timeout`")


def inputs_in_spec(draft: Draft, task: CommentedMap) -> None:
    """Moves inputs under `spec` out of it."""
    spec, kind = task.get("spec"), kind_of(task)
    if not isinstance(spec, CommentedMap):
        return
    renamed = _NAMES.get(kind, {})
    inputs = (draft.inputs_of(kind) | renamed.keys()) - draft.knobs_of(kind) - {"timeout", "policy", "pool"}
    for key in [key for key in spec if key in inputs and key not in task]:
        draft.move(spec, key, task, note=f"`{key}` is an input: it stands beside `kind`")
    draft.remove_empty(task, "spec")


def placeholders(draft: Draft, task: CommentedMap) -> None:
    """Rewrites `:name` and `%(name)s` in SQL, for params that are given by name."""
    params: Any = task.get("params")
    if kind_of(task) == "postgres" and isinstance(params, CommentedSeq):
        _number_placeholders(draft, task, len(params))
    if kind_of(task) not in SQL or not isinstance(params, CommentedMap):
        return
    for key in ("command", "query"):
        if isinstance(task.get(key), str):
            text = with_dollars(task[key], set(params))
            if text != task[key]:
                draft.note_change((task, key), "a param is `$name` in SQL")
                task[key] = type(task[key])(text)


def _number_placeholders(draft: Draft, task: CommentedMap, count: int) -> None:
    """Rewrites `%s` in SQL as `$1` and so on, for params that are a list."""
    for key in ("command", "query"):
        text = task.get(key)
        if not isinstance(text, str) or not count or len(_POSITION.findall(text)) != count or ";" in text.strip()[:-1]:
            continue
        *parts, last = _POSITION.split(text)
        numbered = "".join(f"{part}${number}" for number, part in enumerate(parts, start=1)) + last
        draft.note_change((task, key), "the params of a list are `$1`, `$2` in SQL")
        task[key] = quote_like(text, numbered.replace("%%", "%"))


RULES: Final = (
    *each(Draft.all_tasks, inputs_in_spec, http_data, task_inputs, shell_commands),
    *each(Draft.all_tasks, nats_actions, playbook_options, nats_objects, duckdb_memory),
    *each(Draft.all_tasks, knob_names, task_timeout, placeholders),
)
