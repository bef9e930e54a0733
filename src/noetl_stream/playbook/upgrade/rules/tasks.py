"""Rewrites inputs and knobs of tasks under older names or in the wrong place (LANGUAGE §12)."""

from __future__ import annotations

from typing import Any, Final

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from noetl_stream.playbook.upgrade.draft import Draft, kind_of, line_of, section, to_ruamel
from noetl_stream.playbook.upgrade.rules.reads import SQL
from noetl_stream.playbook.upgrade.rules.storage import with_dollars

_NAMES: Final = {
    "http": {"data": "json", "json_body": "json", "query": "params", "query_params": "params", "uri": "url"},
    "python": {"script": "code", "source": "code"},
    "shell": {"cmd": "command", "script": "command", "environment": "env", "working_dir": "cwd", "workdir": "cwd"},
    "nats": {"operation": "action", "data": "payload", "message": "payload"},
    "postgres": {"sql": "command", "statement": "command", "script": "command", "dsn": "auth"},
    "duckdb": {"sql": "command", "statement": "command", "script": "command"},
    "playbook": {"playbook": "path", "return": "return_step", "input": "args", "input_payload": "args"},
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
_TIMES: Final = ("timeout", "timeout_s", "timeout_seconds")


def task_inputs(draft: Draft) -> None:
    """Renames inputs that have another name."""
    for task, _ in list(draft.tasks()):
        kind = kind_of(task)
        for old, new in _NAMES.get(kind, {}).items():
            if old in task and new not in task and not isinstance(task[old], CommentedMap if new == "code" else ()):
                draft.note_change((task, old), f"`{old}` of kind `{kind}` is `{new}`")
                draft.rename(task, old, new)


def shell_commands(draft: Draft) -> None:
    """Rewrites `cmds` as lines of one command that ends with the first that fails."""
    for task, _ in list(draft.tasks()):
        key = next((key for key in ("cmds", "commands") if key in task), None)
        if kind_of(task) != "shell" or key is None or "command" in task:
            continue
        lines = task[key]
        text = "\n".join(map(str, lines)) if isinstance(lines, CommentedSeq) else str(lines)
        draft.note_change((task, key), f"`{key}` of kind `shell` is `command`, which ends with the first that fails")
        many = "\n" in text.strip()
        draft.rename(task, key, "command", to_ruamel(f"set -e\n{text}\n" if many else text.strip()))


def nats_actions(draft: Draft) -> None:
    """Renames actions of `nats` that have another name."""
    for task, _ in list(draft.tasks()):
        action = str(task.get("action"))
        if kind_of(task) == "nats" and action in _ACTIONS:
            draft.note_change((task, "action"), f"`{action}` is `{_ACTIONS[action]}`")
            task["action"] = _ACTIONS[action]
            if action == "js_publish":
                task["jetstream"] = True


def duckdb_memory(draft: Draft) -> None:
    """Removes `database: ":memory:"`, which a task has anyway."""
    for task, _ in list(draft.tasks()):
        if kind_of(task) == "duckdb" and task.get("database") == ":memory:":
            draft.note_change((task, "database"), "a duckdb task has its own database in memory")
            draft.remove(task, "database")


def knob_names(draft: Draft) -> None:
    """Renames knobs, and moves those beside `spec` under it."""
    for task, _ in list(draft.tasks()):
        kind = kind_of(task)
        knobs = draft.knobs_of(kind)
        names = {**_KNOBS.get(kind, {}), **{knob: knob for knob in knobs}}
        for old, new in names.items():
            if old in task and new in knobs and (old == "verify_ssl" or old not in _own_inputs(draft, kind)):
                draft.note_change((task, old), f"`{old}` of a task is `spec.{new}`")
                draft.move(task, old, section(task, "spec", at=line_of(task, old)), new)
        spec = task.get("spec")
        for old, new in _KNOBS.get(kind, {}).items():
            if isinstance(spec, CommentedMap) and old in spec and new not in spec:
                draft.note_change((spec, old), f"`{old}` is `{new}`")
                draft.rename(spec, old, new)


def _own_inputs(draft: Draft, kind: str) -> frozenset[str]:
    """The inputs of a kind, without those that are knobs accepted beside `spec`."""
    return draft.inputs_of(kind) - draft.knobs_of(kind)


def task_timeout(draft: Draft) -> None:
    """Moves `timeout` beside `spec`, and its other names, under `spec`."""
    for task, _ in list(draft.tasks()):
        kind = kind_of(task)
        spec = task.get("spec")
        for key in _TIMES:
            is_input = key in draft.inputs_of(kind) and not (key == "timeout" and kind == "http")
            if key in task and not is_input:
                draft.note_change((task, key), f"`{key}` of a task is `spec.timeout`")
                draft.move(task, key, section(task, "spec", at=line_of(task, key)), "timeout")
            if isinstance(spec, CommentedMap) and key in spec and key != "timeout" and "timeout" not in spec:
                draft.note_change((spec, key), f"`{key}` is `timeout`")
                draft.rename(spec, key, "timeout")


def inputs_in_spec(draft: Draft) -> None:
    """Moves inputs under `spec` out of it."""
    for task, _ in list(draft.tasks()):
        spec, kind = task.get("spec"), kind_of(task)
        if not isinstance(spec, CommentedMap):
            continue
        renamed = _NAMES.get(kind, {})
        inputs = (draft.inputs_of(kind) | renamed.keys()) - draft.knobs_of(kind) - {"timeout", "policy", "pool"}
        for key in [key for key in spec if key in inputs and key not in task]:
            draft.note_change((spec, key), f"`{key}` is an input: it stands beside `kind`")
            draft.move(spec, key, task)
        if not spec:
            draft.remove(task, "spec")


def placeholders(draft: Draft) -> None:
    """Rewrites `:name` and `%(name)s` in SQL, for params that are given by name."""
    for task, _ in list(draft.tasks()):
        params: Any = task.get("params")
        if kind_of(task) not in SQL or not isinstance(params, CommentedMap):
            continue
        for key in ("command", "query"):
            if isinstance(task.get(key), str):
                text = with_dollars(task[key], set(params))
                if text != task[key]:
                    draft.note_change((task, key), "a param is `$name` in SQL")
                    task[key] = type(task[key])(text)


RULES: Final = (
    inputs_in_spec,
    task_inputs,
    shell_commands,
    nats_actions,
    duckdb_memory,
    knob_names,
    task_timeout,
    placeholders,
)
