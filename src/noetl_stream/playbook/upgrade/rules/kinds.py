"""Rewrites kinds of tasks that are words of the language now, and inputs that a kind does not have (LANGUAGE §12)."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any, Final

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from noetl_stream.playbook.kinds.spec import LANGUAGE_KINDS
from noetl_stream.playbook.upgrade.draft import (
    Draft,
    arcs_of,
    each,
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
from noetl_stream.playbook.upgrade.expressions import Path, Replaced, all_of, expression_in, paths_in, template
from noetl_stream.playbook.upgrade.rules.policies import ERROR, rules_of
from noetl_stream.playbook.upgrade.rules.root import add_credential
from noetl_stream.playbook.upgrade.rules.values import ARGS_KINDS, inline_values, merge_args
from noetl_stream.playbook.vocabulary import kind_advice

_NOTHING: Final = frozenset(["start", "end", "router", "route", "none"])
_ITERATOR: Final = ("collection", "element", "mode", "in", "iterator", "spec", "concurrency", "enumerate")
_LABELS: Final = ("task", "name", "type", "kind", "tool", "desc")
_OPEN: Final = ("key", "source", "tool", "type", "service", "scope", "credential", "name")
"""Keys of an `auth` that name a credential, and hold no secret."""
_REACHES: Final = re.compile(
    r"(?i)\b(?:INSTALL|LOAD|ATTACH|COPY)\s++\S++|\b(?:read_\w++|parquet_scan)\s*+\("
    r"|\bFROM\s++'[^']++'|\bCREATE\s++(?:OR\s++REPLACE\s++)?SECRET\b"
)
"""Statements that read or write outside of the task's own database."""
_MANAGED: Final = ("provider", "project_id", "project", "secret_name", "version", "region")
_SECRET_VALUES: Final = frozenset(["secret_value", "value", "data"])
_PASSED: Final = ("with", "input", "data", "args")
_CALL: Final = frozenset(["kind", "name", "task", "args"])
_MADE: Final = re.compile(
    r"(?i)\bCREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMP\w*\s+)?(?:TABLE|VIEW)\s+(?:IF\s+NOT\s+EXISTS\s+)?(\w+)"
)
_READ: Final = re.compile(r"(?i)\b(?:FROM|JOIN|INTO)\s+(\w+)")
_POOL: Final = {"timeout": "timeout_s", "size": "max_size"}
_POOL_KEYS: Final = ("max_size", "timeout_s")


def workbook_entries(draft: Draft) -> None:
    """Rewrites entries of a workbook list whose kind and inputs stand beside `name`."""
    for entry in mappings(draft.root.get("workbook")):
        if "task" in entry and "name" not in entry:
            draft.rename(entry, "task", "name", note="an entry of the workbook is named by `name`")
        is_mapping = isinstance(entry.get("tool"), CommentedMap)
        for key in [key for key in ("sink", "save", "args", "with", "assert") if key in entry and is_mapping]:
            draft.move(entry, key, entry["tool"], note=f"`{key}` of an entry stands under `tool`")
        for key in [key for key in ("desc", "description") if key in entry]:
            draft.drop(entry, key, "an entry of the workbook has no description")
        word = next((key for key in ("tool", "type", "kind") if isinstance(entry.get(key), str)), None)
        if word is None or isinstance(entry.get("tool"), CommentedMap | CommentedSeq):
            continue
        draft.note_change((entry, word), "the kind of an entry and its inputs stand under `tool`")
        kind = entry[word]
        draft.rename(entry, word, "tool", to_ruamel({"kind": kind}, line_of(entry, word), block=True))
        for key in [key for key in entry if key not in ("name", "tool")]:
            draft.move(entry, key, entry["tool"])


def workbook_calls(draft: Draft) -> None:
    """Writes an entry of the workbook where it is called, if the call passes what its kind has no input for, or if
    what it returns is stored.
    """
    entries, written = entries_of(draft), set[str]()
    for step in draft.steps():
        for task in list(tasks_of(step.get("tool"))):
            name = task.get("task", task.get("name"))
            entry = entries.get(str(name)) if kind_of(task) == "workbook" else None
            if entry is not None:
                _called_with(draft, step, task)
            values = task.get("args")
            inputs = draft.inputs_of(kind_of(entry))
            foreign = [key for key in values if key not in inputs] if isinstance(values, CommentedMap) else []
            passes = bool(foreign) and (kind_of(entry) not in ARGS_KINDS or _reads_args(entry, foreign))
            if entry is None or not (passes or {"sink", "save"} & entry.keys()) or task.keys() - _CALL:
                continue
            draft.note_change((task, "kind"), f"the entry `{name}` of the workbook is written where it is called")
            draft.remove(task, "kind", heir=(step, "tool"))
            draft.remove(task, "task", heir=(step, "tool")) if "task" in task else None
            task.setdefault("name", str(name))
            for key, value in deepcopy(entry).items():
                if key != "name":
                    task[key] = value
            if passes:
                draft.remove(task, "args")
                task.update({key: value for key, value in values.items() if key in inputs})
                read = inline_values(draft, [(task, key) for key in task], values, frozenset())
                if kind_of(task) in ARGS_KINDS:
                    merge_args(task, values)
                for key in [key for key in foreign if key not in read and kind_of(task) not in ARGS_KINDS]:
                    draft.drop(values, key, "the entry reads no such arg", heir=(step, "tool"))
            written.add(str(name))
    called = {str(task.get("task", task.get("name"))) for task, _ in draft.tasks() if kind_of(task) == "workbook"}
    for name in written - called:
        for word in [word for word in ("sink", "save") if word in entries[name]]:
            draft.remove(entries[name], word, note=f"`{word}` of an entry is the task after its calls")


def _called_with(draft: Draft, step: CommentedMap, task: CommentedMap) -> None:
    """Moves what a call passes, on the task or its step, under `args`."""
    for holder in (task, step) if step.get("tool") is task else (task,):
        for word in [word for word in _PASSED if isinstance(holder.get(word), CommentedMap) and "args" not in task]:
            note = f"`{word}` of a call of the workbook is `args`"
            task.fa.set_block_style()
            draft.rename(task, word, "args", note=note) if holder is task else draft.move(
                step, word, task, "args", note=note
            )


def _reads_args(entry: CommentedMap | None, names: list[Any]) -> bool:
    """Whether an entry's own args read what a call passes."""
    own = mapping_at(entry, "args") or mapping_at(entry, "with")
    return own is not None and any(path[0] in names for value in own.values() for path in paths_in(str(value)))


def entries_of(draft: Draft) -> dict[str, CommentedMap]:
    """The tasks of the workbook, by name."""
    workbook = draft.root.get("workbook")
    listed = mapping_at(workbook, "tasks") or workbook
    if isinstance(listed, CommentedMap):
        found = listed.items()
    else:
        found = ((entry.get("name"), entry.get("tool")) for entry in mappings(listed))
    return {str(name): entry for name, entry in found if isinstance(entry, CommentedMap)}


def iterator_step(draft: Draft, step: CommentedMap) -> None:
    """Rewrites a step of kind `iterator` as a loop around its task."""
    tool = step.get("tool")
    holder = tool if isinstance(tool, CommentedMap) else step
    word = _iterator_word(holder)
    if word is None:
        return
    draft.note_change((step, "step"), "`iterator` is a `loop` around the task")
    task, loop = holder["task"], section(step, "loop", at=line_of(holder, word))
    _iterate(draft, holder, word, loop)
    while (inner := _iterator_word(task)) is not None:
        loop = section(loop, "loop", at=line_of(task, inner))
        _iterate(draft, task, inner, loop)
        holder["task"] = task = task["task"]
    if isinstance(task.get("task"), str) and "name" not in task:
        draft.rename(task, "task", "name")
    draft.move(holder, "task", step, "iterator_task")
    if holder is tool:
        draft.unpack(step, "tool", step)
    draft.rename(step, "iterator_task", "tool")


def _iterator_word(holder: CommentedMap) -> str | None:
    """The key that marks an iterator around a task; ``None`` if it is none."""
    is_around = isinstance(holder.get("task"), CommentedMap)
    return next((key for key in ("type", "kind", "tool") if is_around and holder.get(key) == "iterator"), None)


def _iterate(draft: Draft, holder: CommentedMap, word: str, loop: CommentedMap) -> None:
    loop.fa.set_block_style()
    for key in [key for key in _ITERATOR if key in holder]:
        draft.move(holder, key, loop)
    draft.remove(holder, word, heir=(holder, "task"))


def placeholder_kinds(draft: Draft) -> None:
    """Rewrites `start`, `end` and `router` as `noop`, and `artifact` as the result that it loads."""
    for task, step in list(draft.tasks()):
        kind = kind_of(task)
        if kind in _NOTHING and kind not in draft.kinds:
            draft.replace(task, "kind", "noop", note=f"kind `{kind}` does nothing: `noop`")
        if kind == "artifact" and step is not None:
            _read_artifact(draft, task)


def _read_artifact(draft: Draft, task: CommentedMap) -> None:
    holders = (mapping_at(task, "args"), mapping_at(task, "input"), task)
    holder = next((one for one in holders if one and "result_ref" in one), None)
    reference = expression_in(holder["result_ref"]) if holder is not None else None
    paths = paths_in(template(reference)) if reference else []
    is_all = holder is not None and (holder is task or holder.keys() == {"result_ref"})
    is_all = is_all and not task.keys() - {"kind", "name", "action", "args", "input", "result_ref", "spec"}
    if holder is None or not is_all or len(paths) != 1 or paths[0][-1] != "_ref" or task.get("action", "get") != "get":
        return
    draft.note_change((task, "kind"), "a result is read by the name of its step, large or small")
    value = template(str(reference).replace("._ref", ""))
    draft.remove(holder, "result_ref", heir=(task, "kind"))
    for key in [key for key in ("action", "args", "input") if key in task]:
        draft.remove(task, key, heir=(task, "kind"))
    task["kind"] = "python"
    task["args"] = to_ruamel({"value": value})
    task["code"] = "return value"


def secret_steps(draft: Draft) -> None:
    """Rewrites a step that fetched a secret of another manager as a stored credential, read where the secret was."""
    for task, step in list(draft.tasks()):
        if step is None:
            continue
        is_step = task is step.get("tool")
        name = str(step.get("step") if is_step else task.get("name"))
        is_managed = "secret_name" in task or ("provider" in task and "name" in task)
        if kind_of(task) != "secrets" or not is_managed or not name.isidentifier():
            continue
        said = ", ".join(f"{key} {shown(task[key])}" for key in _MANAGED if key in task)
        message = f"store the credential `{name}` with a `secret_value` ({said}): `noetl-stream credential set`"
        add_credential(draft, name, message, line_of(step))
        draft.note_change((step, "tool"), "a secret of another manager is a stored credential")
        for key in [key for key in _MANAGED if key in task]:
            draft.remove(task, key, heir=(task, "kind"))
        task["credential"] = name
        _read_secret(draft, step, name)


def _read_secret(draft: Draft, step: CommentedMap, name: str) -> None:
    """Rewrites reads of the secret, also of those that an arc passes, since no arc hands a secret on."""

    def rewrite(path: Path) -> Replaced:
        at = 2 if path[0] == "steps" else 1
        is_read = path[at - 1 : at] == (name,) and path[at : at + 1] and path[at] in _SECRET_VALUES
        return (at + 1, f"keychain.{name}.secret_value") if is_read else None

    targets = {str(one.get("step")): one for one in draft.steps()}
    for arc in arcs_of(step):
        args, target = mapping_at(arc, "args"), targets.get(str(arc.get("step")))
        for key in [key for key, value in (args or {}).items() if _is_secret(value, name)]:
            assert args is not None
            value = to_ruamel({key: args[key]}, line_of(args, key))
            draft.remove(args, key, heir=(arc, "step"), note=f"`{key}` is read of the keychain by the step itself")
            if target is not None:
                inline_values(draft, [(target, "tool")], value, frozenset())
        draft.remove_empty(arc, "args", heir=(arc, "step"))
    for one in draft.steps():
        draft.rewrite_parts(one, ["tool"], rewrite)


def _is_secret(value: Any, name: str) -> bool:
    """Whether a value is the secret that a step of this name fetched."""
    paths = paths_in(value) if isinstance(value, str) else []
    return any(path[-2:-1] == (name,) and path[-1] in _SECRET_VALUES for path in paths)


def missing_kinds(draft: Draft, task: CommentedMap) -> None:
    """Leaves tasks of kinds that do not exist to a person, with the kind to use instead."""
    kind = kind_of(task)
    is_older = draft.was_older or kind in kind_advice.MISSING_KINDS
    if kind and is_older and kind not in draft.kinds and kind not in LANGUAGE_KINDS:
        hint = kind_advice.MISSING_KINDS.get(kind, f"another kind, or a plugin for `{kind}`")
        draft.decide(task, "kind", f"there is no kind `{kind}`: use {hint}")


def python_libs(draft: Draft, task: CommentedMap) -> None:
    """Rewrites `libs` that is a list as a mapping of name to module."""
    libs = task.get("libs")
    if kind_of(task) != "python" or not isinstance(libs, CommentedSeq):
        return
    named = dict(map(_library, libs))
    if None in named:
        draft.decide(task, "libs", "write each library as name: module")
        return
    if len(named) < len(libs):
        draft.decide(task, "libs", "two libraries have one name: write each as name: module")
        return
    draft.replace(task, "libs", named, note="`libs` is a mapping of name to module")
    if not named:
        draft.remove(task, "libs")


def _library(entry: Any) -> tuple[str | None, Any]:
    if isinstance(entry, str):
        module, _, alias = entry.partition(" as ")
        return (alias or module.rpartition(".")[2]).strip(), module.strip()
    if isinstance(entry, CommentedMap):
        module = entry.get("module", entry.get("import", entry.get("name")))
        name = entry.get("as", entry.get("name", module))
        if set(entry) <= {"module", "import", "name", "as"} and isinstance(module, str) and isinstance(name, str):
            return name.rpartition(".")[2], module
        if len(entry) == 1 and all(isinstance(one, str) for pair in entry.items() for one in pair):
            [(name, module)] = entry.items()
            return name, module
    return None, entry


def python_auth(draft: Draft, task: CommentedMap) -> None:
    """Removes `auth` of python, whose code gets its values as args."""
    if kind_of(task) != "python":
        return
    for key in [key for key in ("auth", "credential", "credentials") if key in task]:
        if not task[key]:
            draft.remove(task, key, heir=(task, "kind"), note=f"empty `{key}` of kind `python`")
            continue
        named = _names_in(task[key]) or "its values"
        use = 'hand over what the code needs, as args: { secret: "{{ keychain.<name> }}" }'
        draft.decide(task, "kind", f"python has no `{key}` ({named}): {use}")
        draft.remove(task, key, heir=(task, "kind"), note=f"kind `python` has no `{key}`")


def _names_in(value: Any) -> str:
    """The keys of an `auth`, and the names of credentials in it; other values may be secret."""
    if isinstance(value, CommentedSeq):
        return ", ".join(filter(None, map(_names_in, value)))
    if isinstance(value, CommentedMap):
        named = {key: inner if key in _OPEN and isinstance(inner, str) else "" for key, inner in value.items()}
        return ", ".join(f"{key} {shown(named[key]) or _names_in(inner)}".rstrip() for key, inner in value.items())
    return ""


def auth_reference(draft: Draft, task: CommentedMap) -> None:
    """Rewrites an `auth` that only locates its credential as the name of the credential."""
    auth = task.get("auth")
    if kind_of(task) in ("python", "duckdb") or not isinstance(auth, CommentedMap) or not auth:
        return
    if len(auth) == 1 and isinstance(inner := next(iter(auth.values())), CommentedMap) and inner:
        auth = inner
    name = auth.get("credential") or auth.get("key")
    if isinstance(name, str) and not auth.keys() - {*_OPEN} and auth.get("source") in (None, "credential", "keychain"):
        draft.note_change((task, "auth"), "`auth` is the name of a credential")
        task["auth"] = name


def duckdb_auth(draft: Draft, task: CommentedMap) -> None:
    """Rewrites `auth` of duckdb as `attach` for databases of Postgres; a person decides about others."""
    key = next((key for key in ("auth", "credentials", "credential") if key in task), None)
    if kind_of(task) != "duckdb" or key is None:
        return
    auth, line = task[key], line_of(task, key)
    statement = "\n".join(str(task[word]) for word in ("command", "commands", "query") if word in task)
    left: list[str] = []
    for alias, one in list(auth.items()) if isinstance(auth, CommentedMap) else [("", auth)]:
        tool = value_at(one, "tool") or value_at(one, "service") or value_at(one, "type")
        tables = sorted(set(re.findall(rf"(?<![\w.]){re.escape(str(alias))}\.((?:\w+\.)?\w+)", statement)))
        name = value_at(one, "key") or value_at(one, "credential")
        is_plain = isinstance(one, CommentedMap) and not one.keys() - {*_OPEN}
        is_plain = is_plain and value_at(one, "source") in (None, "credential", "keychain")
        if tool in ("postgres", "postgresql") and is_plain and isinstance(name, str) and tables:
            section(task, "attach", at=line)[alias] = to_ruamel({"auth": name, "tables": tables}, line)
            draft.note_change((task, key), "a Postgres database is read by `attach`, which copies its tables")
        else:
            left.append(f"{alias or 'auth'} ({_names_in(one) or 'its values'})")
    draft.remove(task, key, heir=(task, "kind"), note="`auth` of kind `duckdb`")
    if left:
        instead = "Read tables of Postgres by attach, objects of a bucket by kind `http` into `tables`"
        draft.decide(task, "kind", f"duckdb has no `auth`: {', '.join(left)}. {instead}")


def duckdb_reach(draft: Draft) -> None:
    """Leaves SQL of duckdb that reaches files, extensions or other databases to a person: it is refused at run time."""
    for task in draft.all_tasks() if draft.was_older else []:
        keys = [key for key in ("command", "commands", "query") if kind_of(task) == "duckdb" and key in task]
        for key in keys:
            found = _REACHES.search(shown(task[key]))
            if found is not None:
                message = f"`{found[0].strip()}`: SQL of duckdb reaches no files, extensions or databases"
                draft.decide(task, key, f"{message}: attach tables of Postgres, pass rows as `tables`")


def duckdb_tables(draft: Draft) -> None:
    """Leaves tables that one duckdb task makes and another reads to a person: each has a database of its own."""
    made: dict[str, str] = {}
    for task, step in list(draft.tasks()) if draft.was_older else []:
        if kind_of(task) != "duckdb":
            continue
        statement = " ".join(shown(task[key]) for key in ("command", "commands", "query") if key in task)
        own = {name.lower() for name in _MADE.findall(statement)}
        read = {name.lower() for name in _READ.findall(statement)} - own - set(mapping_at(task, "tables") or ())
        for name in sorted(read & made.keys()):
            use = f'select its rows there, and write tables: {{ {name}: "{{{{ {made[name]}.rows }}}}" }}'
            said = f"`{name}` is a table of `{made[name]}`, and each duckdb task has its own database: {use}"
            draft.decide(task, "kind", said)
        if step is not None:
            made |= dict.fromkeys(own, str(step.get("step")))


def postgres_pool(draft: Draft, task: CommentedMap) -> None:
    """Keeps the size and the timeout of a pool, and drops its other keys."""
    pool = task.get("pool")
    if kind_of(task) != "postgres" or not isinstance(pool, CommentedMap):
        return
    draft.rename_older(pool, _POOL, "`{}` of a pool is `{}`")
    for key in [key for key in pool if key not in _POOL_KEYS]:
        draft.drop(pool, key, "the worker keeps its connections itself", heir=(task, "pool"))
    draft.remove_empty(task, "pool")


def postgres_auth(draft: Draft) -> None:
    """Adds the name of a credential to postgres tasks without a database. A person stores the credential."""
    for task in draft.all_tasks() if draft.was_older else []:
        if kind_of(task) == "postgres" and not {"auth", "credential"} & task.keys():
            task.insert(list(task).index("kind") + 1, "auth", "postgres")
            draft.decide(task, "auth", "the task names no database: store the credential `postgres`, or name another")


def code_elsewhere(draft: Draft, task: CommentedMap) -> None:
    """Leaves code in a bucket, a file or a server to a person."""
    script = task.get("script")
    if isinstance(script, CommentedMap) and "script" not in draft.inputs_of(kind_of(task)):
        word = "code" if kind_of(task) == "python" else "command"
        draft.decide(task, "script", f"put the text of {script.get('uri', 'the script')} under `{word}`")
    for word in ("code", "command", "commands", "query"):
        if f"{word}_b64" in task:
            draft.decide(task, f"{word}_b64", f"write the decoded text under `{word}`")


def task_assert(draft: Draft, task: CommentedMap) -> None:
    """Rewrites `assert` as rules that fail the task."""
    given, line = task.get("assert"), line_of(task, "assert")
    if given is None or "assert" in draft.inputs_of(kind_of(task)):
        return
    conditions, expected = _asserted(given)
    if conditions is None:
        draft.decide(task, "assert", "write what must hold as a rule of the task's policy: then: { do: fail }")
        return
    if expected:
        message = f"`expects` of `assert` is dropped: reading {', '.join(expected)} without a value is an error anyway"
        draft.note_assumption((task, "assert"), message)
    draft.remove(task, "assert", heir=(task, "kind"), note="`assert` is a rule of the task's policy")
    if conditions:
        rules = rules_of(task, line)
        when = template(f"outcome.status == 'ok' and not ({all_of(*conditions)})")
        rules.insert(0, to_ruamel({"when": when, "then": {"do": "fail"}}, line, block=True))
        if len(rules) == 1:
            rules.append(to_ruamel({"when": template(ERROR), "then": {"do": "fail"}}, line, block=True))


def _asserted(given: Any) -> tuple[list[str] | None, list[str]]:
    """The conditions that must hold after a task, and the names that it expects; ``None`` if they cannot be read."""
    if isinstance(given, str | CommentedSeq):
        found = [expression_in(one) for one in ([given] if isinstance(given, str) else given)]
        return (None if None in found else [one for one in found if one]), []
    if not isinstance(given, CommentedMap) or set(given) - {"expects", "returns"}:
        return None, []
    names = {key: given.get(key) or CommentedSeq() for key in ("expects", "returns")}
    if not all(isinstance(listed, CommentedSeq) for listed in names.values()):
        return None, []
    if not all(isinstance(name, str) and name.isidentifier() for listed in names.values() for name in listed):
        return None, []
    return [f"outcome.result.{name} is defined" for name in names["returns"]], list(names["expects"])


FIRST_RULES: Final = (workbook_entries, *each(Draft.steps, iterator_step))
"""These run before the rules on the shape of steps and tasks."""
RULES: Final = (
    workbook_calls,
    placeholder_kinds,
    *each(Draft.all_tasks, python_libs, python_auth, auth_reference, duckdb_auth, postgres_pool),
    *each(Draft.all_tasks, code_elsewhere, task_assert),
)
LAST_RULES: Final = (secret_steps, *each(Draft.all_tasks, missing_kinds), duckdb_reach, duckdb_tables, postgres_auth)
