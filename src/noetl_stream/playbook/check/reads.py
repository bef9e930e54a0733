"""Compiles templates and checks their reads against the declarations of the playbook (LANGUAGE §2, §5, §7), those of
results also against the schemas of the tasks (LANGUAGE §10 *spec.result.schema*).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, get_args

import msgspec

from noetl_stream.model.events import StartedBy, StartedByKind
from noetl_stream.model.outcome import ErrorInfo, Meta
from noetl_stream.playbook.check.bindings import ADMISSION, ARC, Declarations, IterNames, Path, Visible, written_keys
from noetl_stream.playbook.check.calls import UNREGISTERED_SCHEMA
from noetl_stream.playbook.check.ending import minds_absence
from noetl_stream.playbook.check.results import LISTED, ResultReads, path_in
from noetl_stream.playbook.check.templates import ReadLocations, TemplateRead, Templates
from noetl_stream.playbook.check.texts import Texts
from noetl_stream.playbook.codes import Code
from noetl_stream.playbook.diagnostics import Location, Problems
from noetl_stream.playbook.kinds.spec import Kinds, KindSpec
from noetl_stream.playbook.model.policy import TOKEN_KEYS
from noetl_stream.playbook.model.task import TaskDraft
from noetl_stream.playbook.plan import Reads
from noetl_stream.playbook.suggestions import did_you_mean, list_names, nearest
from noetl_stream.playbook.yaml.nodes import Node, Scalar, texts_of
from noetl_stream.template import Guard, Template
from noetl_stream.template.runtime.attribute_access import kind_of
from noetl_stream.template.runtime.scope import HELPER_FIELDS

_ENDS: Final = frozenset(["failed", "error", "success", "succeeded", "ok", "state", "outcome"])
"""Keys by which people ask a result for the status of its step."""
_OF_RESULTS: Final = {
    **dict.fromkeys(("body", "json", "text", "content", "response", "payload", "value", "output", "outputs"), "data"),
    **dict.fromkeys(("status_code", "statusCode", "code", "http_status"), "status"),
    **dict.fromkeys(("records", "result", "results", "items", "values", "fetchall"), "rows"),
    **dict.fromkeys(("rowcount", "rowCount", "count", "affected", "num_rows", "length"), "row_count"),
    **dict.fromkeys(("exitcode", "exitCode", "returncode", "return_code", "rc"), "exit_code"),
    **dict.fromkeys(("out", "logs", "log"), "stdout"),
}
"""Keys of results in other tools, by the keys with the same meaning here."""
_INDEXED: Final = re.compile(
    r"(?<![\w.\]])([A-Za-z_]\w*(?:\.\w+)*)\s*(?:\[\s*-?\d+\s*\]|\|\s*(?:first|last|length|count|map|selectattr)\b)"
    r"|\bin\s+([A-Za-z_]\w*(?:\.\w+)*)\s*-?%\}"
)
"""A path whose items are read by number."""
FIRST_FAILED_STATUS: Final = 400
_NO: Final = frozenset(["off", "no", "false", "n", "0"])
_FAILED: Final = frozenset(["error", "failed", "failure"])


OUTCOME_KEYS: Final = frozenset(["status", "result", "error", "meta"])
EVENT_KEYS: Final = frozenset(["name", "step", "status", "result", "error", "loop"])
EXECUTION_KEYS: Final = frozenset(["due", "started", "origin"])
ENDED_KEYS: Final = frozenset(["status", "error"])
"""Keys of ``execution`` in the step of ``finally`` alone (LANGUAGE §9)."""

FAILURE_KEYS: Final = frozenset(["name", "status", "error"])
"""Keys of ``event`` whose use marks an arc as handling failures (LANGUAGE §7)."""

BLOCK_FIELDS: Final = {
    "error": [field.name for field in msgspec.structs.fields(ErrorInfo)],
    "meta": [field.name for field in msgspec.structs.fields(Meta)],
    "loop": ["count", "ok", "failed", "skipped", "failed_leaves"],
    "origin": [field.name for field in msgspec.structs.fields(StartedBy)],
    **HELPER_FIELDS,
}
"""All fields of the blocks of ``outcome``, ``event`` and ``execution``."""

_DECLARE: Final = (
    "declare it: keychain: [ {{ name: {0}, kind: credential }} ], and store it once: noetl-stream credential set {0}; "
    "or read it in an earlier `kind: secrets` task"
)

_WAIT: Final = (
    "to wait for a patch from outside, write wait: { timeout_s: 3600 } in the step's `admit`, or in the `next.spec` of "
    "the step before"
)

_CARRIED: Final = ("workload", "ctx", "steps")


class Expressions:
    """Compiles templates and guards, and checks their reads.

    Attributes:
        read_execution: Whether any of them has read ``execution``.
    """

    def __init__(
        self,
        templates: Templates,
        declared: Declarations,
        kinds: Kinds,
        problems: Problems,
        registered: Mapping[str, Any] | None = None,
    ) -> None:
        self._templates = templates
        self._declared = declared
        self._problems = problems
        self._ctx: list[tuple[TemplateRead, bool]] = []
        self._awaited: set[str] = set()
        self.read_execution = False
        self._registered = registered
        self._results = ResultReads(declared.steps, registered or {})
        self._texts = Texts(templates.source, declared, self._results, problems)
        self._helpers = {spec.helper for spec in kinds.values() if spec.helper} | HELPER_FIELDS.keys()

    def value(self, node: Node, visible: Visible, kind: KindSpec | None = None, *, on_server: bool = False) -> Template:
        """Compiles the value of ``node`` as a template; an empty one, after reporting, if it has problems.

        Args:
            kind: The kind of the task that the value belongs to.
            on_server: Whether the server renders it, which allows only expressions (LANGUAGE §2).
        """
        template = self._templates.template(node, visible, on_server=on_server)
        places = self._templates.places(node)
        self._check(template.paths, places, visible, kind)
        texts = list(texts_of(node))
        self._warn_of_items_of_results(texts, places, visible)
        self._texts.check(texts, visible)
        self._note_ctx(template.paths, places)
        return template

    def guard(self, node: Node | None, visible: Visible, kind: KindSpec | None = None) -> Guard | None:
        """Compiles a condition; ``None`` if it is omitted or, after reporting, has problems."""
        guard = None if node is None else self._templates.guard(node, visible)
        if node is not None and guard is not None:
            places = self._templates.places(node)
            self._check(guard.paths, places, visible, kind)
            self._check_comparisons(guard, places, visible)
            self._warn_of_truth(guard, places)
            decides = visible.namespaces in (ADMISSION, ARC, ARC | {"token"})
            self._note_ctx(guard.paths, places, decides=decides, waits=visible.waits)
        return guard

    def is_refused(self, node: Node) -> bool:
        """Whether the form of a value was already reported as an error."""
        return self._problems.has_error_at(node.pointer, "wrong_type")

    def warn_never_set(self) -> None:
        """Warns of keys of ``ctx`` that no rule sets or waits for, after all templates: those in guards of an admission
        or an arc, and elsewhere those that are close to an existing name (LANGUAGE §4).
        """
        known = sorted({*self._declared.ctx, *self._awaited, *self._templates.unbound})
        for read, decides in self._ctx:
            if self._problems.is_truncated:
                return
            key = read.path[1]
            near = None if key in known else nearest(key, known)
            if key not in known and (decides or near):
                hint = f"did you mean `ctx.{near}`?" if near else _WAIT
                self._problems.warn("never_set", f"nothing in this playbook sets `ctx.{key}`", read.location, hint)

    def _note_ctx(
        self, paths: Iterable[Path], places: ReadLocations, *, decides: bool = False, waits: bool = False
    ) -> None:
        found = {path[:2] for path in paths if path[0] == "ctx" and len(path) > 1}
        self._awaited |= {key for _, key in found} if waits else set()
        self._ctx += ((TemplateRead(path, places), decides) for path in sorted(found))

    def _check(self, paths: Iterable[Path], places: ReadLocations, visible: Visible, kind: KindSpec | None) -> None:
        """Reports reads of names that can never have a value."""
        for read in (TemplateRead(path, places) for path in sorted(paths)):
            match read.path:
                case ("steps", _, *_):
                    self._check_known(read, self._declared.steps, "unknown_step", "unknown step `{}`")
                case ("results", _, *_):
                    self._check_known(read, visible.results, "unknown_task", "unknown task `{}` in this step")
                case ("event", _, *_):
                    self._check_block(read, EVENT_KEYS, ("error", "loop"))
                case ("token", _, *_):
                    self._check_block(read, TOKEN_KEYS.union(visible.token), ())
                case ("execution", *keys):
                    self.read_execution = True
                    if keys[:1] in (["due"], ["started"]) and len(keys) > 1:
                        message = f"`execution.{keys[0]}` is text and has no `{keys[1]}`"
                        hint = "filters read it, such as `date_format('%Y')`"
                        self._problems.error("unknown_name", message, read.location, hint)
                    elif keys:
                        known = EXECUTION_KEYS | ENDED_KEYS if visible.knows_end else EXECUTION_KEYS
                        self._check_block(read, known, ("origin", "error"))
                case ("outcome", key, *_) if kind is not None:
                    self._check_outcome(read, key, kind)
                case ("iter", *keys):
                    self._check_iter(read, keys, visible.iter)
                case ("keychain",):
                    message = "`keychain` must be read by entry"
                    self._problems.error("keychain_whole", message, read.location, "write keychain.<entry>")
                case ("keychain", _, *_):
                    message = "the keychain has no entry `{}`"
                    else_hint = _DECLARE.format(read.path[1])
                    if read.location.pointer.endswith(("/auth", "/credential")):
                        else_hint = f"write auth: {read.path[1]}; `auth` has the name of a stored credential"
                    self._check_known(read, visible.keychain, "unknown_name", message, else_hint=else_hint)
                case ("workload", key, *_) if key not in self._declared.workload:
                    self._report_undeclared(read, key)
                case ("args", key, *_) if visible.step and key not in self._declared.args_of(visible.step):
                    self._warn_not_given(read, key, visible.step)
                case ("vars", key, *_) if key not in visible.vars:
                    self._warn_not_set(read, "vars", key, visible.vars)
                case _:
                    pass
            self._check_result(read, visible)
            self._warn_of_pair(read, visible)

    def _warn_of_pair(self, read: TemplateRead, visible: Visible) -> None:
        """Warns of a key of an item when a loop runs over a mapping: its items are pairs of key and value."""
        around = self._declared.steps.get(visible.step)
        match read.path:
            case ("iter", name, key, *_) if around is not None and key not in ("key", "value"):
                level = next((level for level in around.levels if level.iterator == name), None)
                path = path_in(level.items, visible) if level is not None else None
                if path and path[0] == "workload" and isinstance(self._declared.defaults.get("".join(path[1:])), dict):
                    message = f"a loop over a mapping gives `key` and `value`: `{name}` has no `{key}`"
                    hint = f"write `iter.{name}.value.{key}`"
                    self._problems.warn("unknown_result_key", message, read.location, hint)

    def _warn_of_items_of_results(
        self, texts: list[tuple[Scalar, str]], places: ReadLocations, visible: Visible
    ) -> None:
        """Warns of items of a whole result, which is a mapping."""
        for found in (found for _, text in texts if "{{" in text for found in _INDEXED.finditer(text)):
            path = tuple((found[1] or found[2]).split("."))
            self._warn_of_mapping(path, places.find(path), visible)

    def _warn_of_mapping(self, path: Path, at: Location, visible: Visible, *, whole: bool = False) -> None:
        bound = (*visible.bindings.get(path[0], path[:1]), *path[1:])
        read = self._results.whole(bound, visible)
        known = read.task.kind.result_keys if read is not None and read.task.kind is not None else frozenset()
        word = next((word for word in LISTED if word in known), None)
        if read is not None and read.task.kind is not None and word is not None:
            message = f"a result of kind `{read.task.kind.kind}` is a mapping, and no list"
            shown = f"{'.'.join(path)}.{word}"
            self._problems.warn(
                "unknown_result_key", message, at, f"write {{{{ {shown} }}}}" if whole else f"write `{shown}`"
            )

    def warn_of_items(self, items: Template, node: Node, workload: Mapping[str, Any], visible: Visible) -> None:
        """Warns of a loop over something other than a list: a key of the workload by its default, or a whole result."""
        if items.path:
            path = tuple(str(part) for part in items.path)
            is_bare = len(path) > 1 and path[0] == "steps" and visible.bindings.get(path[1]) == path[:2]
            self._warn_of_mapping(path[1:] if is_bare else path, node, visible, whole=True)
        match items.path:
            case ("workload", str() as key) if workload.get(key) is not None:
                value = workload[key]
                message = f"a loop needs a list, and the default of `workload.{key}` is {kind_of(value)}"
                hint = "give it a list or a mapping"
                if isinstance(value, str) and "," in value:
                    parted = "', '" if ", " in value else "','"
                    hint = f'write in: "{{{{ workload.{key}.split({parted}) }}}}"'
                if not isinstance(value, list | dict):
                    self._problems.warn("invalid_value", message, node, hint)

    def check_schema(self, task: TaskDraft) -> None:
        """Warns of a schema that is not registered, if the catalog was asked."""
        schema, at = task.schema, task.schema_at
        if schema is None or at is None or self._registered is None or not schema.address:
            return
        if schema.address not in self._registered:
            message = f"no schema `{schema.address}` is registered"
            self._problems.warn(UNREGISTERED_SCHEMA, message, at, "register it: noetl-stream playbook register FILE")

    def _check_result(self, read: TemplateRead, visible: Visible) -> None:
        foreign = self._results.foreign_key(read.path, visible)
        if foreign is not None and foreign.task.kind is not None:
            kind = foreign.task.kind
            near = _OF_RESULTS.get(foreign.keys[0], foreign.keys[0])
            if near not in kind.result_keys and "data" in kind.result_keys and near in ("rows", "data"):
                near = "data"
            word = near if near in kind.result_keys else nearest(near, sorted(kind.result_keys))
            whose = ".".join(read.path[: len(read.path) - len(foreign.keys)])
            has = f"it has {list_names(sorted(kind.result_keys))}"
            hint = f"write `{whose.removeprefix('steps.')}.{word}`; {has}" if word else has
            if foreign.keys[0] in _ENDS and "event" in visible.namespaces:
                hint = "how a step has ended, an arc reads: when: \"{{ event.name == 'step.failed' }}\""
            hint = self._task_within(read.path, visible) or hint
            message = f"a result of kind `{kind.kind}` has no `{foreign.keys[0]}`"
            self._problems.warn("unknown_result_key", message, read.location, hint)
            return
        if (own := self._task_within(read.path, visible)) is not None and read.path[1] == visible.step:
            message = f"`{visible.step}` has no result before its tasks have ended"
            self._problems.warn("absent_result", message, read.location, own)
            return
        if (listed := self._results.key_of_list(read.path)) is not None:
            name, key = listed
            message = f"the result of `{name}` is the list of its iterations' results, and has no `{key}`"
            hint = (
                f"write `{name}`" if key in ("results", "data") else f"write `{name} | map(attribute='{key}') | list`"
            )
            self._problems.warn("unknown_result_key", message, read.location, f"{hint}, or `{name}[0]` for the first")
            return
        if self._results.is_length_of_data(read.path, visible) or self._is_length_of_list(read.path):
            shown = ".".join(read.path).removeprefix("steps.")
            message = f"`{shown}` reads a key of that name: a list and a text have none"
            hint = f"write `{shown.rpartition('.')[0]} | length`"
            self._problems.warn("unknown_result_key", message, read.location, hint)
            return
        found = self._results.unknown(read.path, visible)
        if found is None:
            return
        result, (depth, declared) = found
        inside = f" in `{result.key_text(depth)}`" if depth else ""
        message = f"the schema of task `{result.task.name}`'s result has no `{result.keys[depth]}`{inside}"
        known = f"it has {list_names(declared)}" if declared else "it is not a mapping"
        hint = did_you_mean(result.keys[depth], declared) or known
        self._problems.warn("unknown_result_key", message, read.location, hint)

    def _task_within(self, path: Path, visible: Visible) -> str | None:
        """The hint for a task that is read as a key of its step's result."""
        step = self._declared.steps.get(path[1]) if path[0] == "steps" and len(path) > 2 else None
        if step is None or path[2] not in {task.name for task in step.tasks}:
            return None
        is_own = step.name == visible.step and "results" in visible.namespaces
        return f"write `{path[2]}`" if is_own else f"write `{step.name}.results.{path[2]}`"

    def _is_length_of_list(self, path: Path) -> bool:
        """Whether a path asks a list of the workload for its length in the syntax of other languages."""
        value = self._declared.defaults.get(path[1]) if path[0] == "workload" and len(path) == 3 else None
        return path[-1] in ("length", "size", "count") and isinstance(value, list)

    def _warn_of_truth(self, guard: Guard, places: ReadLocations) -> None:
        """Warns of a guard on text of the workload that is true although it says ``false`` or ``no``."""
        for path, literal in guard.tested:
            match path:
                case ("workload", str() as key) if (
                    literal is True and str(self._declared.defaults.get(key)).lower() in _NO
                ):
                    word = self._declared.defaults[key]
                    if isinstance(word, str):
                        message = f"`workload.{key}` is the text `{word}`, and text that is not empty is true"
                        self._problems.warn(
                            "invalid_value", message, places.find(path), f"in `workload`, write {key}: false"
                        )

    def _check_comparisons(self, guard: Guard, places: ReadLocations, visible: Visible) -> None:
        """Reports comparisons with a literal that can never be true (LANGUAGE §2)."""
        end = "loop.done" if visible.iter.iterators else "step.done"
        names: tuple[str, ...] = (end, "step.failed", *(["next.timed_out"] if visible.waits else []))
        statuses: tuple[str, ...] = ("success", "error")
        if visible.emitted_on:
            of = {"started": "step.started", "completed": end, "failed": "step.failed"}
            names = tuple(name for boundary, name in of.items() if boundary in visible.emitted_on)
            statuses = tuple(dict.fromkeys("error" if name == "step.failed" else "success" for name in names))
        possible: dict[Path, tuple[str, ...]] = {
            ("event", "name"): names,
            ("event", "status"): statuses,
            ("outcome", "status"): ("ok", "error"),
            ("execution", "origin", "kind"): get_args(StartedByKind),
        }
        for path, literal in guard.tested:
            self._warn_of_status(path, literal, guard, places, visible)
        for path, literal in guard.comparisons:
            self._warn_of_number(path, literal, places, visible)
            if path[:3] == ("steps", visible.step, "outcome") and visible.namespaces == ARC and literal in _FAILED:
                message = "this arc is not taken after a failure: only one that asks `event` is"
                hint = "write when: \"{{ event.name == 'step.failed' }}\""
                self._problems.warn("failure_not_routed", message, places.find(path), hint)
            words = possible.get(path)
            if words and literal not in words:
                near = next((word for word in words if literal.lower() in word), None)
                near = end if literal == "step.done" else near
                hint = f"write `{near}`" if near else f"write one of {list_names(words)}"
                if near == "loop.done" and visible.step:
                    hint = f"write `loop.done`, since `{visible.step}` loops"
                message = f"`{'.'.join(path)}` is never `{literal}` here"
                self._problems.error("impossible_comparison", message, places.find(path), hint)

    def _warn_of_status(
        self, path: Path, literal: str | float, guard: Guard, places: ReadLocations, visible: Visible
    ) -> None:
        """Warns of a number compared with a word, and of an arc that asks for the status of a failed answer."""
        if isinstance(literal, str | bool):
            return
        if path in (("outcome", "status"), ("event", "status"), ("event", "name")):
            own = "outcome.http.status" if path[0] == "outcome" else "event.result.status"
            message = f"`{'.'.join(path)}` is a word, and never {literal}"
            hint = f"write `{own}` for the status of an HTTP answer"
            self._problems.warn("impossible_comparison", message, places.find(path), hint)
            return
        read = self._results.number(path, visible) if visible.namespaces == ARC else None
        handles = any(len(one) > 1 and one[:1] == ("event",) and one[1] in FAILURE_KEYS for one in guard.paths)
        asks = path[:2] == ("event", "result") or path[:2] == ("steps", visible.step)
        if read is None or not asks or handles or read.keys != ("status",) or literal < FIRST_FAILED_STATUS:
            return
        if read.task.policy is None or all(rule.do in ("fail", "retry") for rule in read.task.policy.rules):
            fails = f"an answer with status {literal} fails `{visible.step}`"
            message = f"{fails}, and this arc is not taken after a failure"
            hint = f"write {{{{ event.status == 'error' and event.error.code == '{literal:g}' }}}}"
            self._problems.warn("failure_not_routed", message, places.find(path), hint)

    def _warn_of_number(self, path: Path, literal: str, places: ReadLocations, visible: Visible) -> None:
        """Warns of a number of a result that is compared with text."""
        read = self._results.number(path, visible)
        if read is None:
            return
        shown = ".".join(path).removeprefix("steps.")
        what = "the HTTP status, a number" if read.keys == ("status",) else "a number"
        hint = f"write {literal} without quotes"
        if not literal.isdigit():
            of_body = f"{shown.rpartition('.')[0]}.data.{read.keys[0]}"
            hint = f"write `{of_body}` for the answer's own" if read.keys == ("status",) else "write a number"
        message = f"`{shown}` is {what}, and never the text `{literal}`"
        self._problems.warn("impossible_comparison", message, places.find(path), hint)

    def _check_known(
        self,
        read: TemplateRead,
        known: Collection[str],
        code: Code,
        message: str,
        depth: int = 1,
        else_hint: str | None = None,
    ) -> bool:
        name = read.path[depth]
        if name in known:
            return True
        if read.path[:2] == ("token", "args"):
            else_hint = f"write `{'.'.join(read.path[1:])}`"
        hint = did_you_mean(name, known) or else_hint or (f"known: {list_names(sorted(known))}" if known else None)
        self._problems.error(code, message.format(name), read.location, hint)
        return False

    def _report_undeclared(self, read: TemplateRead, key: str) -> None:
        """Reports a key that the workload cannot have; for an open workload, warns of one close to a declared one."""
        known = self._declared.workload
        if self._declared.is_closed:
            self._check_known(
                read, known, "unknown_name", "`workload` has no `{}`, and its schema allows no other keys"
            )
        elif near := nearest(key, known):
            message = f"this playbook's workload declares no `{key}`"
            self._problems.warn("never_set", message, read.location, f"did you mean `workload.{near}`?")

    def _check_block(self, read: TemplateRead, known: Collection[str], closed: Collection[str]) -> None:
        """Checks the keys of a namespace, and the fields of its ``closed`` blocks."""
        namespace, key, *more = read.path
        message = f"`{namespace}` has no `{{}}`"
        if self._check_known(read, known, "unknown_name", message) and key in closed and more:
            self._check_known(read, BLOCK_FIELDS[key], "unknown_name", f"`{namespace}.{key}` has no `{{}}`", depth=2)

    def _check_outcome(self, read: TemplateRead, key: str, kind: KindSpec) -> None:
        if key in self._helpers and key != kind.helper:
            own = f"use `outcome.{kind.helper}`" if kind.helper else "use `outcome.result` or `outcome.error`"
            message = f"a task of kind `{kind.kind}` has no `outcome.{key}`"
            self._problems.error("foreign_helper", message, read.location, own)
            return
        helper = [kind.helper] if kind.helper else []
        closed = {"error", "meta", *helper} & BLOCK_FIELDS.keys()
        self._check_block(read, OUTCOME_KEYS | {*helper}, closed)

    def _check_iter(self, read: TemplateRead, keys: list[str], names: IterNames) -> None:
        """Checks a read of ``iter.parent…``, level by level. Only the pipeline's own ``iter`` has keys set by rules."""
        depth = 0
        while keys[depth : depth + 1] == ["parent"] and depth + 1 < len(names.iterators):
            depth += 1
        known = names.names_at(depth)
        if len(keys) == depth or (key := keys[depth]) in known:
            return
        place = ".".join(("iter", *["parent"] * depth))
        other = names.bare.get(key)
        if key == "parent" and names.iterators:
            message = f"`{place}` has no `parent`: it is the outermost level"
            self._problems.error("unknown_name", message, read.location)
        elif depth == 0 and not names.is_fixed and other is None:
            self._warn_not_set(read, "iter", key, known)
        else:
            hint = f"write `{'.'.join(other)}`" if other else did_you_mean(key, known) or f"known: {list_names(known)}"
            self._problems.error("unknown_name", f"`{place}` has no `{key}`", read.location, hint)

    def _warn_not_given(self, read: TemplateRead, key: str, step: str) -> None:
        """Warns of an arg that no arc to the step gives."""
        given = self._declared.args_of(step)
        leading = [one.name for one in self._declared.steps.values() for arc in one.arcs if arc.step == step]
        if (
            self._problems.has_errors
            or minds_absence(read.text)
            or (not leading and step != next(iter(self._declared.steps), ""))
        ):
            return  # or the step is not reached
        near = did_you_mean(f"args.{key}", [f"args.{name}" for name in given])
        arc = f"{{ step: {step}, args: {{ {key}: … }} }}"
        hint = near or (f"on the arc of `{leading[0]}`, write {arc}" if leading else f"write `workload.{key}`")
        message = f"no arc to `{step}` gives `args.{key}`" if leading else f"no arc leads to `{step}`: it has no args"
        self._problems.warn("never_set", message, read.location, hint)

    def _kept_elsewhere(self, namespace: str, key: str) -> str | None:
        """The hint for a key that belongs to another step."""
        for step in self._declared.steps.values():
            if namespace == "vars" and key in written_keys(step, "vars"):
                return f"step `{step.name}` sets it for itself alone: write set_ctx there, and `ctx.{key}` here"
            if namespace == "iter" and any(level.iterator == key for level in step.levels):
                return f"it is there in the loop of `{step.name}` alone: the list of its results is `{step.name}`"
        return None

    def _warn_not_set(self, read: TemplateRead, namespace: str, key: str, known: Collection[str]) -> None:
        near = did_you_mean(key, known)
        hint = near or self._kept_elsewhere(namespace, key) or f"set it with `set_{namespace}` in a task's policy"
        self._problems.warn("never_set", f"nothing in this step sets `{namespace}.{key}`", read.location, hint)


def union_of(reads: Iterable[tuple[str, str | None]], opaque: Collection[str]) -> Reads:
    """The parts of the scope that a step's commands must carry. Any key of an ``opaque`` namespace may be read."""
    keys: dict[str, set[str]] = {name: set() for name in _CARRIED}
    entire, read_execution = set(opaque), False
    for namespace, key in reads:
        read_execution |= namespace == "execution"
        if namespace in keys:
            if key is None:
                entire.add(namespace)
            else:
                keys[namespace].add(key)

    def keys_of_namespace(name: str) -> frozenset[str] | None:
        return None if name in entire else frozenset(keys[name])

    return Reads(
        workload=keys_of_namespace("workload"),
        ctx=keys_of_namespace("ctx"),
        steps=keys_of_namespace("steps"),
        execution="template" if read_execution else "code" if "execution" in opaque else "",
    )
