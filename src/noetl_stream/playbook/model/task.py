"""Tasks: the shapes of ``tool``, their names, kind, inputs and ``spec`` (LANGUAGE §3, §5; v10 §7)."""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingOf
from typing import Any, ClassVar, Final

import msgspec
from msgspec.structs import replace
from pydantic import BaseModel

from noetl_stream.playbook.diagnostics import MAX_DIAGNOSTICS, Location, Problems
from noetl_stream.playbook.kinds.inputs import check_against, spellings
from noetl_stream.playbook.kinds.spec import SUSPENDING_KINDS, Kinds, KindSpec
from noetl_stream.playbook.model.flow_control import LimitDraft, read_limit
from noetl_stream.playbook.model.layering import Layer, overlay, read_timeouts, split_timeouts
from noetl_stream.playbook.model.observability import read_tracing
from noetl_stream.playbook.model.policy import PolicyDraft, read_policy
from noetl_stream.playbook.model.sections import (
    Part,
    Schema,
    Section,
    correct_spelling,
    described,
    is_null,
    ref,
    report_lost_indentation,
    report_wrong_type,
    section,
    text_of,
)
from noetl_stream.playbook.plan import TablePlan, Timeouts
from noetl_stream.playbook.results.result_schema import KEYWORDS, ResultSchema, read_result_schema
from noetl_stream.playbook.results.result_table import read_result_table
from noetl_stream.playbook.suggestions import correct_word, did_you_mean, list_names
from noetl_stream.playbook.vocabulary import advice, hints, kind_advice
from noetl_stream.playbook.vocabulary.names import ROWS, check_name
from noetl_stream.playbook.yaml.nodes import (
    Mapping,
    MappingKey,
    Node,
    Scalar,
    Sequence,
    extend_pointer,
    holds_template,
    texts_of,
    written,
)

LANGUAGE_KEYS: Final = frozenset(["name", "kind", "spec"])
_SPEC_KEYS: Final = frozenset(["policy", "timeout", "result"])
_SCOPE_IN_CODE: Final = re.compile(
    r"\{\{[-\s]*(?:workload|ctx|iter|args|vars|steps|results|execution(?:_id)?|keychain|_prev)\b[^{}]*\}\}"
)


_ANY_SCHEMA: Final[Schema] = {
    "type": "object",
    "propertyNames": {"anyOf": [{"enum": sorted(KEYWORDS)}, {"pattern": "^x-"}]},
}


class ResultSpec(Section):
    title = "`spec.result`"
    example = "write result: { schema: { type: object, … } }"
    schema_rules: ClassVar[Schema] = {"anyOf": [{"required": ["schema"]}, {"required": ["table"]}]}

    schema_: Part = described(
        "A JSON Schema that the result must match, or the path of a registered one.",
        {"anyOf": [ref("NamedSchema"), _ANY_SCHEMA]},
        alias="schema",
    )
    table: Part = described("What the table of the result must be like.", section("ResultTable"))


class TaskDraft(msgspec.Struct, frozen=True):
    """A task as read. ``kind`` is ``None`` if unknown. ``inputs`` are rendered, ``verbatim`` nodes never are. ``knobs``
    and ``timeouts`` are the effective ones, merged over those of the outer scopes; ``timeout_templates`` are parts that
    are rendered. ``schema`` is that of its result, ``table`` the checks of the result's table.
    ``knobs_at`` and ``schema_at`` are their places.
    """

    name: str
    kind: KindSpec | None
    at: Location
    inputs: Mapping
    verbatim: MappingOf[str, Node] = {}
    knobs: MappingOf[str, Any] = {}
    timeouts: Timeouts = Timeouts()
    policy: PolicyDraft | None = None
    timeout_templates: Mapping | None = None
    origin: str = ""
    schema: ResultSchema | None = None
    schema_at: Node | None = None
    table: TablePlan | None = None
    limit: LimitDraft | None = None
    knobs_at: MappingOf[str, Node] = {}
    tracing: MappingOf[str, Node] = {}


def read_task(
    node: Mapping, synthetic: str, kinds: Kinds, layer: Layer, problems: Problems, *, require_all: bool = True
) -> TaskDraft:
    """Reads a task that is not a construct, written without a label (:func:`unlabel`).

    Args:
        synthetic: The name of a task without one.
        layer: Defaults of the outer scopes.
        require_all: Whether a missing required input is an error.
    """
    node = _with_kind(node, kinds, problems)
    kind = _kind_of_task(node, kinds, problems)
    node = _without_with(node, kind, problems)
    node = move_spec_keys(node, kind, problems)
    name = name_of_task(node, synthetic, problems)
    at: Location = node.get("name") or node.get("kind") or node
    spec = _spec_of_task(node, kind, problems)
    policy = spec.get("policy")
    timeout, timeout_templates = split_timeouts(spec.get("timeout"))
    schema_at, table = _read_result(spec.get("result"), kind, node, problems)
    nothing = Mapping(node.mark, node.pointer)
    inputs, verbatim = _read_inputs(node, kind, at, problems, require_all) if kind else (nothing, {})
    knobs = _read_knobs(spec, kind, layer, at, problems) if kind else {}
    return TaskDraft(
        name=name,
        kind=kind,
        at=at,
        inputs=inputs,
        verbatim=verbatim,
        knobs={key: value.plain() for key, value in knobs.items()},
        timeouts=overlay(layer.timeouts, read_timeouts(timeout, problems)),
        timeout_templates=timeout_templates,
        policy=read_policy(policy, spec.keys["policy"], problems) if policy is not None else None,
        limit=read_limit(policy.get("limit"), problems) if isinstance(policy, Mapping) else None,
        tracing=read_tracing(policy.get("tracing"), problems) if isinstance(policy, Mapping) else {},
        schema=None if schema_at is None or is_null(schema_at) else read_result_schema(schema_at, problems),
        schema_at=schema_at,
        table=table,
        knobs_at=knobs,
    )


def makes_tables(kind: KindSpec) -> bool:
    """Whether tasks of the kind make a table of what they read, by ``into: table``."""
    return "table" in kind.result_keys and "into" in spellings(kind.inputs)


def read_rows(node: Mapping, kinds: Kinds, layer: Layer, problems: Problems) -> TaskDraft:
    """Reads the task that makes the rows of a loop, as a task with ``into: table``."""
    node = _with_kind(node, kinds, problems)
    named, into = node.get("kind"), node.get("into")
    kind = None if named is None else kinds.get(str(named.plain()))
    if kind is not None and not makes_tables(kind):
        message = f"a task of kind `{kind.kind}` makes no table of rows"
        hint = f"kinds that do: {list_names([name for name in sorted(kinds) if makes_tables(kinds[name])])}"
        problems.error("invalid_value", message, named or node, hint)
    elif into is not None and into.plain() not in (None, "table"):
        problems.error("invalid_value", "`into` is `table` where a loop reads the rows", into, "remove it")
    if kind is None or makes_tables(kind):
        key = node.keys.get("into") or MappingKey("into", node.mark, node.pointer)
        node = node.drop_keys({"into"}).with_value(("into",), key, Scalar("table", key.mark, key.pointer)) or node
    return read_task(node, ROWS, kinds, layer, problems)


def _read_result(
    node: Node | None, kind: KindSpec | None, task: Mapping, problems: Problems
) -> tuple[Node | None, TablePlan | None]:
    """Reads ``spec.result``: the place of the schema, and the checks of the table."""
    found = ResultSpec.from_node(node, problems)
    if isinstance(node, Mapping) and is_null(found.schema_) and is_null(found.table):
        problems.error("missing_key", f"{ResultSpec.title} needs `schema` or `table`", node, ResultSpec.example)
    table = None if is_null(found.table) else read_result_table(found.table, problems)
    if table is not None and kind is not None and (hint := _table_hint(kind, task)):
        problems.error("no_effect", "the result of this task has no table", found.table, hint)
    return found.schema_, table


def _table_hint(kind: KindSpec, task: Mapping) -> str:
    """The hint for a task whose result can never have a table; empty if it may have one."""
    if kind.kind in SUSPENDING_KINDS or (kind.result_keys and "table" not in kind.result_keys):
        return "check it in the task that makes the table: of kind `duckdb`, `http`, `postgres` or `python`"
    into = task.get("into")
    makes_one = "table" not in kind.result_keys or (into is not None and into.plain() != "file")
    return "" if makes_one else "make a table of its rows: write into: table beside `kind`"


def _read_inputs(
    node: Mapping, kind: KindSpec, at: Location, problems: Problems, require_all: bool
) -> tuple[Mapping, MappingOf[str, Node]]:
    """Reads the inputs that are rendered before every run, and those that never are."""
    inputs = _without_misplaced(node.drop_keys(LANGUAGE_KEYS), advice.TASK, kind.inputs, problems)
    known = spellings(kind.inputs)
    verbatim = {key for key in inputs.keys if key in kind.verbatim or known.get(key) in kind.verbatim}
    check_against(
        inputs,
        kind.inputs,
        f"the inputs of kind `{kind.kind}`",
        problems,
        at=at,
        rendered=True,
        verbatim=verbatim,
        also_known=sorted(LANGUAGE_KEYS),
        hints={**advice.TASK_HINTS, **kind_advice.KIND_HINTS.get(kind.kind, {})},
        missing=kind_advice.MISSING_HINTS.get(kind.kind, {}),
        require_all=require_all,
    )
    if kind.combination_error and require_all:
        given = [known[key] for key, value in inputs.values.items() if key in known and not is_null(value)]
        if (error := kind.combination_error(given)) is not None:
            problems.error("invalid_value", error, at)
    for key, value in inputs.values.items():
        # A value rendered into SQL text is not quoted; a parameter is (LANGUAGE §12).
        if key in kind.statements and holds_template(value):
            name, shown = _first_read(value)
            hint = f"write `${name}` in its place, without quotes, and params: {{ {name}: {shown} }}"
            if (table := _TABLE.search(str(value.plain()))) is not None:
                hint = _as_table(table[1], kind)
            problems.warn("template_in_sql", f"`{key}` has a template in its SQL", value, hint)
        if key in kind.commands:
            _warn_of_command(key, value, problems)
        if key in verbatim and isinstance(value.plain(), str) and (found := _SCOPE_IN_CODE.search(value.plain())):
            message = f"`{key}` is not rendered: `{found.group()}` stays as written"
            problems.warn("template_not_rendered", message, value, _as_args(value.plain()))
    return inputs.drop_keys(verbatim), inputs.select_keys(verbatim).values


_READ: Final = re.compile(r"\{\{([^{}]*)\}\}")


def _first_read(node: Node) -> tuple[str, str]:
    """The first expression in a text, as YAML, and a name for it."""
    found = next((found for _, text in texts_of(node) if (found := _READ.search(text))), None)
    words = re.findall(r"[A-Za-z_]\w*", found[1].partition("|")[0]) if found else []
    expression = f"{{{{ {found[1].strip()} }}}}" if found and len(found[1]) <= 100 else "{{ … }}"
    return (words or ["name"])[-1], f'"{expression}"'


_ASSIGNED: Final = re.compile(r"(?:^[ \t]*([A-Za-z_]\w*)[ \t]*=[ \t]*)?[\"']?\{\{([^{}]*)\}\}", re.MULTILINE)
_TABLE: Final = re.compile(r"\{\{\s*ref\(\s*['\"](\w+)['\"]\s*\)\s*\}\}")
"""The syntax of a table in dbt."""


def _as_table(name: str, kind: KindSpec) -> str:
    """The hint for a table in the syntax of dbt."""
    passed = f', and tables: {{ {name}: "{{{{ {name}.data }}}}" }} for the result of a step'
    return f"in its place, write {name}{passed if 'tables' in spellings(kind.inputs) else ''}"


def _as_args(code: str) -> str:
    """The hint for code with templates: all of them as args, each by the variable that it is assigned to."""
    found: dict[str, str] = {}
    for variable, expression in _ASSIGNED.findall(code):
        words = re.findall(r"[A-Za-z_]\w*", expression.partition("|")[0])
        found.setdefault(variable or (words or ["name"])[-1], f'"{{{{ {expression.strip()} }}}}"')
    shown = ", ".join(f"{name}: {value}" for name, value in found.items())
    args = shown if len(shown) <= 200 else 'name: "{{ … }}"'
    return (
        f"pass in args: {{ {args} }}, and in the code write {', '.join(f'`{name}`' for name in found)} without braces"
    )


MOST_COMMAND_CHARS: Final = 120
"""The longest command that a hint shows."""
_SHELL_SIGNS: Final = re.compile(r"[|&;<>$`*?()'\"\\\n~#]")
_TEMPLATE: Final = re.compile(r"\{\{-?+((?:[^}-]|-(?!\}\})|\}(?!\}))*+)-?\}\}")
_NAMES: Final = re.compile(r"[A-Za-z_]\w*")
_HARMLESS: Final = frozenset({"execution_id", "_attempt", "iter.index", "iter.count"})
_CONSTANT: Final = re.compile(r"""(['"])[^'"]*+(?:\1)?\Z""")
"""A string literal, complete or cut off at its braces."""
_HARMLESS_FILTERS: Final = frozenset({"int", "float", "length", "urlencode"})


def _warn_of_command(name: str, value: Node, problems: Problems) -> None:
    """Warns of a template in a shell command: its value is read as part of the program."""
    text = value.plain() if isinstance(value, Scalar) else None
    if not isinstance(text, str):
        return
    closed = text.rfind("}}") + 2  # where all are closed, each pair of braces is read once
    parts = _TEMPLATE.split(text[:closed])
    parts[-1] += text[closed:]
    reads = [part.strip() for part in parts[1::2]]
    if all(map(_is_harmless, reads)):
        return
    whole = "".join(f"\0{index // 2}\0" if index % 2 else part for index, part in enumerate(parts))
    words = [re.sub(r"\0(\d+)\0", lambda found: f"{{{{ {reads[int(found[1])]} }}}}", one) for one in whole.split()]
    listed = f"[ {', '.join(map(written, words))} ]"
    variable = (_NAMES.findall(reads[0].partition("|")[0]) or ["VALUE"])[-1].upper()
    hint = f'pass it in: env: {{ {variable}: "{{{{ {reads[0]} }}}}" }}, and in the text write "${variable}"'
    if not any(_SHELL_SIGNS.search(part) for part in parts[::2]) and len(listed) <= MOST_COMMAND_CHARS:
        hint = f"write {name}: {listed}, which no shell reads"
    message = f"`{name}` is read by a shell after it is rendered: a value with `;` or `$(…)` would run as well"
    problems.warn("template_in_shell", message, value, hint)


def _is_harmless(read: str) -> bool:
    """Whether an expression renders to text without characters that a shell interprets."""
    _, pipe, last = read.rpartition("|")
    return read in _HARMLESS or _CONSTANT.match(read) is not None or (bool(pipe) and last.strip() in _HARMLESS_FILTERS)


def unlabel(node: Mapping, problems: Problems) -> Mapping:
    """Rewrites ``{fetch: {kind: …}}`` as ``{name: fetch, kind: …}``; others stay unchanged (LANGUAGE §3 *Tasks*)."""
    node = _with_label(node, problems)
    label = label_of_task(node)
    if label is None:
        return node
    task = node.values[label.name]
    assert isinstance(task, Mapping)
    own = task.get("name")
    if own is not None and own.plain() != label.name:
        message = f"the task is called `{own.plain()}` here and `{label.name}` by its label"
        problems.error("conflicting_keys", message, task.keys["name"], "remove `name`, or write the same")
    name = Scalar(label.name, label.mark, extend_pointer(node.pointer, label.name))
    keys = {"name": MappingKey("name", label.mark, name.pointer)}
    rest = task.drop_keys({"name"})
    return replace(task, keys={**keys, **rest.keys}, values={"name": name, **rest.values})


def _with_label(node: Mapping, problems: Problems) -> Mapping:
    """Moves the keys of a task under its label, after reporting that they are beside it."""
    names = list(node.keys)
    if names[1:2] != ["kind"] or names[0] in LANGUAGE_KEYS or not is_null(node.values[names[0]]):
        return node
    label = names[0]
    report_lost_indentation(node.keys["kind"], f"`{label}`", f"indent it below `{label}`", problems)
    return replace(node.select_keys({label}), values={label: node.drop_keys({label})})


def label_of_task(node: Mapping) -> MappingKey | None:
    """The label of a labelled task: its only key, whose value is a mapping with ``kind`` (even misspelt)."""
    if len(node.keys) != 1:
        return None
    (label,), (value,) = node.keys.values(), node.values.values()
    is_task = isinstance(value, Mapping) and any(
        correct_word(name, ["kind", "type"]) for name in list(value.keys)[:MAX_DIAGNOSTICS]
    )
    return label if is_task else None


def _without_with(node: Mapping, kind: KindSpec | None, problems: Problems) -> Mapping:
    """Moves the inputs of a task out of ``with``, after reporting it."""
    given = node.get("with")
    if kind is None or not isinstance(given, Mapping) or given.keys.keys() & node.keys.keys():
        return node
    if "with" in spellings(kind.inputs) or _is_free(kind.inputs):
        return node
    shown = hints.shown_value(given.plain()).removeprefix("{ ").removesuffix(" }")
    hint = f"beside `kind`, write {shown}" if shown != "…" else advice.TASK["with"].hint
    problems.error("legacy_syntax", "a task has no `with`", node.keys["with"], hint)
    rest = node.drop_keys({"with"})
    return replace(rest, keys={**rest.keys, **given.keys}, values={**rest.values, **given.values})


def _kind_named_in(kind: str, kinds: Kinds) -> str | None:
    """The kind that the class or plugin of another tool names, such as ``io.kestra.plugin.scripts.python.Script``."""
    words = reversed(re.split(r"\W+", kind.lower())) if "." in kind else ()
    return next((word for word in words if word in kinds), None)


def _with_kind(node: Mapping, kinds: Kinds, problems: Problems) -> Mapping:
    """Moves the kind of a task to ``kind``, after reporting its key."""
    older = node.get("type") if "kind" not in node.keys else None
    part = _kind_named_in(str(older.plain()), kinds) if isinstance(older, Scalar) else None
    if part is not None and isinstance(older, Scalar):
        message = advice.TASK["type"].message
        problems.error("legacy_syntax", message, node.keys["type"], f"write kind: {part}")
        return node.drop_keys({"type"}).with_value(("kind",), node.keys["type"], replace(older, value=part)) or node
    if older is not None:
        advice.TASK["type"].report(node.keys["type"], node, problems)
        return node.move("type", ("kind",)) or node
    return correct_spelling(node, ["kind"], advice.TASK, "a task", problems)


def move_spec_keys(node: Mapping, kind: KindSpec | None, problems: Problems) -> Mapping:
    """Moves the keys of a task that belong under ``spec`` there, after reporting those misplaced beside ``kind``."""
    inputs = spellings(kind.inputs) if kind else {}
    if kind and not _is_free(kind.inputs):
        node = correct_spelling(node, LANGUAGE_KEYS, {**inputs, **kind.beside, **advice.TASK}, "a task", problems)
    for name, target in kind.beside.items() if kind else ():
        if name in node.keys:
            moved = node.move(name, ("spec", target))
            if moved is None:
                message = f"`{name}` and `spec.{target}` are the same key"
                problems.error("conflicting_keys", message, node.keys[name], "remove one")
            node = moved or node.drop_keys({name})
    if "eval" not in inputs:
        node = with_rules_of_eval(node)
    for name in [name for name in node.keys if name in advice.TASK and name not in inputs]:
        place = advice.TASK[name].place
        if len(place) > 1 and node.values[name].plain() and (moved := node.move(name, place)):
            advice.TASK[name].report(node.keys[name], node, problems)
            node = moved
    return node if kind is None else _with_knobs_in_spec(node, kind, problems)


def _with_knobs_in_spec(node: Mapping, kind: KindSpec, problems: Problems) -> Mapping:
    """Moves the kind's knobs that are beside ``kind`` to ``spec``, after reporting them."""
    if _is_free(kind.inputs):
        return node
    knobs = spellings(kind.knobs).keys() - spellings(kind.inputs).keys() - LANGUAGE_KEYS - advice.TASK.keys()
    for name in [name for name in node.keys if name in knobs]:
        advice.knob(name).report(node.keys[name], node, problems)
        node = node.move(name, ("spec", name)) or node.drop_keys({name})
    return node


def with_rules_of_eval(node: Mapping) -> Mapping:
    """Converts the ``eval`` of a task or step to rules. Their older form has one problem, the ``eval``."""
    older = node.get("eval")
    if not isinstance(older, Sequence):
        return node
    rules: list[Node] = []
    for rule in older.items:
        if isinstance(rule, Mapping):
            action = rule.get("else")
            rule = _with_then(rule)
            if isinstance(action, Mapping):
                rule = replace(rule, values={**rule.values, "else": _with_then(action)})
        rules.append(rule)
    return replace(node, values={**node.values, "eval": replace(older, items=rules)})


def _with_then(rule: Mapping) -> Mapping:
    for name in [name for name in rule.keys if name in advice.RULE]:
        rule = rule.move(name, advice.RULE[name].place) or rule
    return rule


def _kind_of_task(node: Mapping, kinds: Kinds, problems: Problems) -> KindSpec | None:
    if (value := node.get("kind")) is None:
        problems.error("missing_key", "a task needs `kind`", node, _kind_hint(node, kinds))
        return None
    kind = text_of(value, "`kind`", problems)
    if kind is None:
        return None
    if kind in kinds:
        if kinds[kind].off:
            hint = "allow the kind on the workers, or use another"
            problems.warn("kind_off", f"the operator has switched off tasks of kind `{kind}`", value, hint)
        return kinds[kind]
    plugin = advice.PLUGINS.get(kind)
    near = f"install the plugin `{plugin}`" if plugin else did_you_mean(kind, kinds)
    use = kind_advice.MISSING_KINDS.get(kind)
    part = _kind_named_in(kind, kinds)
    named = f"write kind: {part}" if part else None
    listed = f"installed kinds: {list_names(sorted(kinds))}; plugins can add more"
    hint = f"use {use}" if use else named or near or listed
    problems.error("unknown_kind", f"no tool of kind `{kind}` is installed", value, hint)
    part = part or ("shell" if use == "`shell`" and "shell" in kinds else None)
    return kinds[part] if part else None


_KINDS_BY_KEY: Final = {
    **dict.fromkeys(("url", "method", "headers"), "http"),
    "code": "python",
    "path": "playbook",
    **dict.fromkeys(("for_s", "until", "signal"), "wait"),
}
"""The kinds that have a key which no other kind has."""


def _kind_hint(node: Mapping, kinds: Kinds) -> str:
    """The hint for a task without ``kind``: the kind that its label or keys name."""
    labels = [name for name in node.keys if name in kinds]
    if labels and isinstance(node.values[labels[0]], Mapping):
        inner = {"kind": labels[0], **node.values[labels[0]].plain()}
        return f"write {hints.shown_value(inner)}"
    kind = next((kind for key, kind in _KINDS_BY_KEY.items() if key in node.keys), None)
    whole = hints.shown_value({"kind": kind, **node.plain()})
    if kind:
        return f"write {whole}" if whole != "…" else f"beside its inputs, write kind: {kind}"
    return "a task that does nothing is { kind: noop }"


def name_of_task(node: Mapping, synthetic: str, problems: Problems) -> str:
    """The name of a task or construct: its own, or the synthetic one."""
    value = node.get("name")
    name = text_of(value, "a task's `name`", problems)
    if name is not None and value is not None and check_name(name, "a task's name", value, problems):
        return name
    return synthetic


def _is_free(model: type[BaseModel]) -> bool:
    return model.model_config.get("extra") == "allow"


def _spec_of_task(node: Mapping, kind: KindSpec | None, problems: Problems) -> Mapping:
    spec = node.get("spec")
    if isinstance(spec, Mapping):
        known = None if kind is None or _is_free(kind.knobs) else {**spellings(kind.knobs), **advice.TASK_SPEC}
        return spec if known is None else correct_spelling(spec, _SPEC_KEYS, known, "a task's `spec`", problems)
    if spec is not None and not is_null(spec):
        report_wrong_type(spec, "`spec`", "a mapping", problems)
    return Mapping(node.mark, node.pointer)


def _read_knobs(spec: Mapping, kind: KindSpec, layer: Layer, at: Location, problems: Problems) -> MappingOf[str, Node]:
    """Reads the kind's own keys of ``spec``, including those of the outer scopes."""
    own = _without_misplaced(spec.drop_keys(_SPEC_KEYS), advice.TASK_SPEC, kind.knobs, problems)
    knobs = layer.knobs_for(kind, own)
    title = f"the `spec` keys of kind `{kind.kind}`"
    check_against(knobs, kind.knobs, title, problems, at=at, also_known=sorted(_SPEC_KEYS))
    return knobs.values


def _without_misplaced(
    node: Mapping, rejected: MappingOf[str, hints.RejectedKey], model: type[BaseModel], problems: Problems
) -> Mapping:
    misplaced = (node.keys.keys() & rejected.keys()) - spellings(model).keys()
    for name in misplaced:
        rejected[name].report(node.keys[name], node, problems)
    return node.drop_keys(misplaced)
