"""The playbook document: root keys, metadata, executor, workload, keychain (LANGUAGE §1, §11; v10 §2.1)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from collections.abc import Mapping as MappingOf
from typing import Annotated, Any, Final, Literal

import msgspec
from pydantic import AfterValidator, Field

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.bundles import BUNDLE_PATTERN, bundle_name
from noetl_stream.model.events import Quotas
from noetl_stream.model.json.codec import encode
from noetl_stream.model.labels import label_fault
from noetl_stream.model.limits import Limits
from noetl_stream.model.placement import Placement
from noetl_stream.model.rights import MAX_PATH_CHARS, has_valid_segments
from noetl_stream.playbook.diagnostics import BareLocation, Position, Problems
from noetl_stream.playbook.kinds.inputs import check_against
from noetl_stream.playbook.kinds.keychain import installed_kinds, plain_text_secrets
from noetl_stream.playbook.model.ending import EndingDraft, read_executor_compensation, read_finally
from noetl_stream.playbook.model.flow_control import PRIORITY, LimitDraft, check_priority, read_concurrency, read_quotas
from noetl_stream.playbook.model.layering import Layer, read_layered, read_seconds, read_timeouts
from noetl_stream.playbook.model.observability import read_tracing
from noetl_stream.playbook.model.placement import read_placement
from noetl_stream.playbook.model.sections import (
    MAPPING,
    NULL,
    PLACED_INSTEAD,
    SECONDS,
    Part,
    Placeholders,
    Required,
    Reserved,
    Schema,
    Section,
    described,
    entries,
    is_null,
    keys_of,
    list_of,
    or_empty,
    or_null,
    pairs,
    ref,
    report_lost_indentation,
    report_wrong_type,
    section,
)
from noetl_stream.playbook.plan import FailureMode, KeychainPlan
from noetl_stream.playbook.suggestions import correct_word, did_you_mean, list_names
from noetl_stream.playbook.vocabulary import advice
from noetl_stream.playbook.vocabulary.names import check_identifier, report_duplicate
from noetl_stream.playbook.workload import WorkloadSchema, read_workload_schema
from noetl_stream.playbook.yaml.nodes import Mapping, Node, Scalar, Sequence, child, holds_template, written

API_VERSION: Final = "noetl.io/v2"
POOL: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
"""The pattern of pool names, which become part of a subject and of a consumer's name (DESIGN §1)."""

_KEYCHAIN_KEYS: Final = frozenset(["name", "kind"])
OTHER_KINDS: Final = {
    "Schema": "register it, and name it in a task: spec: { result: { schema: { path: … } } }",
    "PlaybookTest": "`noetl-stream playbook test` runs it",
    "Schedule": "`noetl-stream schedule preview` shows when it is due",
    "Trigger": "`noetl-stream trigger test` shows what it makes of an event",
}
"""Hints for documents of other kinds."""

_KEYCHAIN_EXAMPLE: Final = "write { name: …, kind: credential }"


def _check_scalar(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise ValueError("must be a scalar")
    return value


Label = Annotated[Any, AfterValidator(_check_scalar)]


_TEXT: Final[Schema] = {"type": "string", "pattern": r"[^\s/]", "maxLength": MAX_PATH_CHARS}


class Root(Section):
    title = "the playbook"
    rejected = advice.ROOT

    apiVersion: Annotated[str | None, Required("apiVersion: noetl.io/v2")] = described(  # noqa: N815 - the key's name
        "The version of the language.", {"const": API_VERSION}
    )
    kind: Annotated[str | None, Required("kind: Playbook")] = described("What the document is.", {"const": "Playbook"})
    metadata: Annotated[Part, Required("metadata: { name: …, path: … }")] = described(
        "Its name, its place in the catalog, and what it is found by.", ref("Metadata")
    )
    keychain: Part = described(
        "Secrets that tasks may read as `keychain.<name>`.", or_null(list_of(ref("keychain_entry")))
    )
    executor: Part = described(
        "How the whole execution runs: entry step, result, timeouts, limits.", section("Executor")
    )
    workload: Part = described(
        "The input, with defaults; what an execution is started with is merged over it.", MAPPING
    )
    workflow: Annotated[Part, Required("workflow: [ { step: start, … } ]")] = described(
        "The steps.", list_of(ref("Step"), 1)
    )
    workbook: Part = described(
        "Tasks that steps use by name, with `kind: workbook`.",
        {"anyOf": [ref("WorkbookTasks"), list_of(ref("ListedEntry")), NULL]},
    )
    bundle: str | None = described(
        "The Python packages of the project, by digest. `noetl-stream deploy` writes it.",
        {"type": ["string", "null"], "pattern": f"^{BUNDLE_PATTERN}$"},
    )


class Metadata(Section):
    title = "`metadata`"
    rejected = advice.METADATA
    example = "write metadata: { name: …, path: … }"

    name: Annotated[str, Required()] = described("A name for people.", _TEXT, default="")
    path: Annotated[str, Required("path: folder/name, the playbook's place in the catalog")] = described(
        "The place in the catalog: names separated by slashes.", _TEXT, default=""
    )
    version: str | None = described(
        "A registered version never changes. Without one, each new text gets the next revision."
    )
    description: str | None = described("What it is for; shown in lists.")
    tags: list[str] | None = described("Words for people.")
    labels: dict[str, Label] | None = described(
        "Scalars by which playbooks and executions are found; templates over `workload` are rendered at the start.",
        {"type": ["object", "null"], "additionalProperties": {"type": ["string", "number", "boolean", "null"]}},
    )
    annotations: dict[str, Any] | None = described("Anything else; the engine does not read it.")


class Executor(Section):
    title = "`executor`"
    example = "write executor: { kind: distributed, spec: { … } }"
    rejected = advice.EXECUTOR

    kind: Literal["distributed"] | None = described("Always `distributed`.")
    spec: Part = described("How the whole execution runs.", section("ExecutorSpec"))


class ExecutorSpec(Section):
    title = "`executor.spec`"
    rejected = advice.EXECUTOR_SPEC

    pool: str = described(
        "The pool whose workers run the steps, unless a step names another.", ref("pool"), default="default"
    )
    priority: int | None = described(
        "What waits in a pool comes from the highest: 0 to 9. Default: 5, or that of the caller.",
        PRIORITY,
    )
    entry_step: str | None = described("The step that gets the first token. Default: `start`, else the first.")
    workload: Part = described(
        "A JSON Schema of the inputs: types, choices, bounds, and which of them are required.",
        or_null(ref("workload_schema")),
    )
    result: Part = described(
        "An expression for the result of the execution. Default: the result of the last successful step.",
        {"anyOf": [{"type": ["object", "array"]}, ref("holds_template")]},
    )
    timeout: Part = described("The timeouts of every task that has none of its own.", ref("timeout"))
    timeout_s: Part = described(
        "Seconds for the whole execution, from its start; time paused does not count.", or_null(SECONDS)
    )
    policy: Part = described("Failures, results and limits of the execution.", section("ExecutorPolicy"))
    profile: Annotated[Any, Reserved()] = None
    placement: Part = described(
        "The labels of the pool whose workers run the steps, unless a step has its own.",
        or_empty(ref("PlacementLabels")),
    )
    resources: Part = described("What each worker of that pool must have at least.", or_empty(ref("Resources")))


class ExecutorPolicy(Placeholders):
    title = "`executor.spec.policy`"
    rejected = advice.EXECUTOR_POLICY

    mode: Annotated[Any, Reserved(("exclusive",))] = None
    defaults: Part = described("What tasks have unless they say otherwise.", section("PolicyDefaults"))
    failure: Part = described(
        "What the failure of a step that no arc takes does to the execution.", section("PolicyFailure")
    )
    compensation: Part = described("When what steps have done is undone.", or_empty(ref("ExecutorCompensation")))
    finally_: Part = described(
        "The step that runs at every end of the execution.", or_empty({"type": "string"}), alias="finally"
    )
    results: Part = described("Where results are kept.", section("PolicyResults"))
    quotas: Part = described("How much an execution may use.", or_empty(ref("ExecutionQuotas")))
    limits: Part = described("Limits of this playbook; it may only lower the operator's.", ref("limits"))
    concurrency: Part = described("How many executions with the same key run at once.", section("Concurrency"))
    tracing: Part = described("Attributes of the spans of executions.", or_empty(ref("SpanAttributes")))


class PolicyDefaults(Section):
    title = "`policy.defaults`"

    timeouts: Part = described("Timeouts of every task.", ref("timeout"))
    resources: Annotated[Any, Reserved(instead=PLACED_INSTEAD)] = None


class PolicyResults(Section):
    title = "`policy.results`"

    reference_first: bool = described("Keep results above 1 KiB in the object store, by reference.", default=False)


class PolicyFailure(Section):
    title = "`policy.failure`"
    rejected = advice.EXECUTOR_FAILURE
    example = "write failure: { mode: fail_fast } or { mode: best_effort }"

    mode: FailureMode | None = described(
        "`fail_fast` ends the execution at once; `best_effort` lets the other branches end first."
    )


class KeychainEntry(Section):
    """The keys of every entry. Its other keys belong to the kind."""

    title = "an entry of `keychain`"

    name: Annotated[str, Required(_KEYCHAIN_EXAMPLE), Field(min_length=1)] = ""
    kind: Annotated[str, Required(_KEYCHAIN_EXAMPLE), Field(min_length=1)] = ""


class ParsedPlaybook(msgspec.Struct, frozen=True):
    """A playbook document as read. Parts read elsewhere are kept as nodes; ``entry`` is ``entry_step``, if given.
    ``label_nodes`` are the labels with a template. ``names_pool``: ``pool`` is not the default.
    """

    name: str
    path: str
    version: str | None
    labels: MappingOf[str, Any]
    label_nodes: MappingOf[str, Node]
    pool: str
    priority: int | None
    entry: str | None
    entry_at: Node | None
    result: Node | None
    layer: Layer
    timeout_s: float | None
    failure_mode: FailureMode
    reference_first: bool
    limits: Limits
    keychain: MappingOf[str, KeychainPlan]
    workload: MappingOf[str, Any]
    workload_node: Node | None
    workload_schema: WorkloadSchema | None
    workflow: Node | None
    workbook: Node | None
    concurrency: LimitDraft | None = None
    ending: EndingDraft = EndingDraft()
    quotas: Quotas | None = None
    placement: Placement | None = None
    names_pool: bool = False
    tracing: MappingOf[str, Node] = {}
    bundle: str = ""

    @property
    def inputs(self) -> Iterable[str]:
        """The keys of ``workload`` that the playbook declares."""
        return [*self.workload, *(self.workload_schema.properties if self.workload_schema is not None else ())]

    def entry_among(self, names: Collection[str]) -> str | None:
        """The step that receives the first token: ``entry_step``, else ``start``, else the first (LANGUAGE §1)."""
        return self.entry or ("start" if "start" in names else next(iter(names), None))


def check_tool(root: Node, problems: Problems) -> bool:
    """Whether a document is for this tool; reports one whose keys show that it is for another."""
    if not isinstance(root, Mapping) or "workflow" in root.keys:
        return True
    version = child(root, "apiVersion")
    is_argo = version is not None and str(version.plain()).startswith("argoproj.io/")
    tools = {"an Argo workflow": ("apiVersion",)} if is_argo else advice.OTHER_TOOLS
    for tool, words in tools.items():
        key = next((root.keys[word] for word in words if word in root.keys), None)
        if key is not None:
            message = f"this is {tool}, not a playbook, as its `{key.name}` shows"
            page = advice.PAGES_ABOUT_TOOLS.get(tool)
            read = f"; `noetl-stream docs {page}` compares both" if page else ""
            problems.error("unknown_key", message, key, advice.OTHER_HINT + read)
            return False
    return True


def read_document(root: Node, knobs: Collection[str], operator: Limits, problems: Problems) -> ParsedPlaybook:
    """Reads all parts of a playbook except its steps and workbook.

    Args:
        knobs: The ``spec`` keys of the installed kinds.
        operator: The operator's limits, which a playbook may lower.
    """
    root = Root.recover(_with_indentation(root, problems), problems)
    top = Root.from_node(root, problems, at=BareLocation(Position(1, 1)))
    check_kind(root, "Playbook", problems)
    metadata = read_metadata(top.metadata, problems)
    executor = Executor.from_node(top.executor, problems)
    executor_spec, spec, layer = read_layered(executor.spec, ExecutorSpec, knobs, problems)
    policy = ExecutorPolicy.from_node(spec.policy, problems)
    defaults = PolicyDefaults.from_node(policy.defaults, problems)
    limits = _limits(policy.limits, operator, problems)
    check_pool(spec.pool, executor_spec, problems)
    if top.bundle and bundle_name(top.bundle) is None:
        message, hint = f"{top.bundle!r:.80} names no bundle", "leave it out: `noetl-stream deploy` writes it"
        problems.error("invalid_value", message, child(root, "bundle") or root, hint)
    check_priority(spec.priority, executor_spec, problems)
    _check_result(spec.result, problems)
    workload = read_workload(top.workload, limits, problems)
    return ParsedPlaybook(
        name=metadata.name,
        path=metadata.path.removeprefix("/"),
        version=metadata.version,
        labels=metadata.labels or {},
        label_nodes=_templates_in(child(top.metadata, "labels")),
        pool=spec.pool,
        priority=spec.priority,
        entry=spec.entry_step,
        entry_at=child(executor_spec, "entry_step"),
        result=spec.result,
        layer=layer.merge_over(Layer(read_timeouts(defaults.timeouts, problems))),
        timeout_s=read_seconds(spec.timeout_s, "`timeout_s`", problems),
        failure_mode=PolicyFailure.from_node(policy.failure, problems).mode or "fail_fast",
        reference_first=PolicyResults.from_node(policy.results, problems).reference_first,
        limits=limits,
        keychain=_read_keychain(top.keychain, problems),
        workload=workload,
        workload_node=top.workload,
        workload_schema=read_workload_schema(spec.workload, top.workload, workload, problems),
        workflow=top.workflow,
        workbook=top.workbook,
        concurrency=read_concurrency(policy.concurrency, problems),
        tracing=read_tracing(policy.tracing, problems),
        ending=EndingDraft(
            read_executor_compensation(policy.compensation, problems),
            policy.compensation,
            read_finally(policy.finally_, problems),
            policy.finally_,
        ),
        quotas=read_quotas(policy.quotas, problems),
        placement=read_placement(spec.placement, spec.resources, problems),
        names_pool=not is_null(child(executor_spec, "pool")),
        bundle=top.bundle or "",
    )


def _templates_in(node: Node | None) -> MappingOf[str, Node]:
    """The values of a mapping that hold a template."""
    values = node.values if isinstance(node, Mapping) else {}
    return {name: value for name, value in values.items() if holds_template(value)}


def _with_indentation(root: Node, problems: Problems) -> Node:
    """The root without the keys of a step whose lines have lost their indentation, after reporting the first."""
    names = list(root.keys) if isinstance(root, Mapping) else []
    behind = names[names.index("workflow") + 1 :] if "workflow" in names else []
    found = next((name for name in behind if name in advice.KEYS_OF_STEPS), None)
    if found is None or not isinstance(root, Mapping):
        return root
    first = root.keys[found]
    lost = {name for name in behind[behind.index(found) :] if not correct_word(name, keys_of(Root))}
    hint = f"indent this line and those below it: `{first.name}` goes below the `step` of its `- step: …`"
    report_lost_indentation(first, "a step", hint, problems)
    # Further findings in the file would be noise.
    problems.retract("yaml_duplicate_key", root.keys["workflow"].mark)
    steps = root.values["workflow"]
    for step in steps.items[-1:] if isinstance(steps, Sequence) else ():
        problems.mark_unreadable((child(step, "step") or step).pointer)
    return root.drop_keys(lost)


def kind_in(root: Node) -> Any:
    """The ``kind`` of a document; ``None`` if it has none."""
    kind = child(root, "kind")
    return kind.plain() if kind is not None else None


def check_kind(root: Node, wanted: str, problems: Problems) -> None:
    """Reports another ``apiVersion`` or ``kind`` than ``wanted``."""
    version, kind = child(root, "apiVersion"), child(root, "kind")
    if isinstance(version, Scalar) and isinstance(version.value, str) and version.value != API_VERSION:
        hint = "write `apiVersion: noetl.io/v2`; `noetl-stream playbook upgrade` rewrites older dialects"
        message = f"`apiVersion` must be `{API_VERSION}`, not `{version.value}`"
        problems.error("invalid_value", message, version, hint)
    if isinstance(kind, Scalar) and isinstance(kind.value, str) and kind.value != wanted:
        near = OTHER_KINDS.get(kind.value) or did_you_mean(kind.value, [wanted])
        problems.error("invalid_value", f"`kind` must be `{wanted}`, not `{kind.value}`", kind, near)


def read_metadata(node: Node | None, problems: Problems) -> Metadata:
    """Reads the name and address of a document in the catalog."""
    node, metadata = Metadata.read_whole(node, problems)
    for name in ("name", "path"):
        value = child(node, name)
        if isinstance(value, Scalar) and isinstance(value.value, str) and not value.value.strip().strip("/"):
            problems.error("invalid_value", f"`metadata.{name}` is empty", value)
        elif name == "path" and value is not None and not has_valid_segments(metadata.path.removeprefix("/")):
            hint = "write names separated by single slashes: team/reports"
            problems.error("invalid_value", "`metadata.path` has an empty, `.` or `..` part", value, hint)
    return metadata


def check_address(root: Node, problems: Problems) -> None:
    """Reports a name or path that is too long. Not called for running playbooks, which may predate the bound."""
    for name in ("name", "path"):
        value = child(child(root, "metadata"), name)
        if isinstance(value, Scalar) and isinstance(value.value, str) and len(value.value) > MAX_PATH_CHARS:
            text = f"`metadata.{name}` has {len(value.value)} characters; the limit is {MAX_PATH_CHARS}"
            problems.error("invalid_value", text, value)


def _check_result(node: Node | None, problems: Problems) -> None:
    """Requires an expression as result, or a mapping or list that contains one: a bare word is a forgotten template."""
    if isinstance(node, Scalar) and not holds_template(node):
        spelling = str(node.value).strip()
        hint = f'write result: "{{{{ {spelling} }}}}"' if isinstance(node.value, str) else None
        report_wrong_type(node, "`result`", "an {{ expression }}", problems, hint)


def check_pool(pool: str | None, spec: Node | None, problems: Problems) -> None:
    """Reports an invalid name of a pool in a ``spec``."""
    node = child(spec, "pool")
    if node is not None and pool is not None and not POOL.match(pool):
        hint = "use 1 to 64 letters, digits, `_` and `-`"
        problems.error("invalid_name", f"invalid pool name `{pool}`", node, hint)


def _limits(node: Node | None, operator: Limits, problems: Problems) -> Limits:
    """The operator's limits as lowered by the playbook; only the operator can raise one (LANGUAGE §14)."""
    wanted = {key.name: (key, value) for key, value in pairs(node, "`policy.limits`", problems)}
    lowered = operator.lower_to({name: value.plain() for name, (_, value) in wanted.items()})
    for problem in lowered.problems:
        key, value = wanted[problem.name]
        at = key if problem.code == "unknown_key" else value
        problems.error(problem.code, problem.message, at, problem.hint)
    return lowered.limits


def read_workload(node: Node | None, limits: Limits, problems: Problems) -> MappingOf[str, Any]:
    """Reads the values of a ``workload``; none, after reporting, if too large or not a mapping."""
    if node is None or is_null(node):
        return {}
    if not isinstance(node, Mapping):
        report_wrong_type(node, "`workload`", "a mapping", problems)
        return {}
    workload: dict[str, Any] = node.plain()
    try:
        size = len(encode(workload))
    except PayloadRefused as error:
        problems.error("invalid_value", f"`workload` cannot be stored: {error.message}", node)
        return {}
    if size > limits.max_workload_bytes:
        most = limits.max_workload_bytes
        message = f"`workload` has {size:,} bytes of JSON; the limit is {most:,} (limits.max_workload_bytes)"
        problems.error("limit_exceeded", message, node, "keep the data in a store and refer to it from the workload")
    return workload


def read_labels(node: Node | None, problems: Problems) -> dict[str, Any]:
    """Reads the ``labels`` that a schedule or trigger adds; none, after reporting, if they exceed their bounds."""
    if node is None or is_null(node):
        return {}
    if not isinstance(node, Mapping):
        report_wrong_type(node, "`labels`", "a mapping", problems)
        return {}
    labels: dict[str, Any] = node.plain()
    templates = [name for name, value in node.values.items() if isinstance(value, Scalar) and holds_template(value)]
    if fault := label_fault({**labels, **dict.fromkeys(templates)}):
        problems.error("invalid_value", fault, node)
    return labels


def _read_keychain(node: Node | None, problems: Problems) -> MappingOf[str, KeychainPlan]:
    """Reads the entries of the keychain by name, including those with problems."""
    found: dict[str, KeychainPlan] = {}
    if isinstance(node, Mapping) and node.keys:
        node = _as_list(node, problems)
    for item in (
        [] if is_null(node) else entries(node, "`keychain`", problems, f"{_KEYCHAIN_EXAMPLE} as an item of a list")
    ):
        if not isinstance(item, Mapping):
            report_wrong_type(item, KeychainEntry.title, "a mapping", problems, _KEYCHAIN_EXAMPLE)
            continue
        item = KeychainEntry.recover(_without_value(item, problems), problems)
        entry = KeychainEntry.from_node(item.select_keys(_KEYCHAIN_KEYS), problems)
        if entry.name:
            at = item.values["name"]
            check_identifier(entry.name, "a keychain entry's name", at, problems)
            if entry.name in found:
                first, rule = found[entry.name].line, "names must be unique in the keychain"
                report_duplicate(f"keychain entry `{entry.name}`", first, at, rule, problems)
        settings = item.drop_keys(_KEYCHAIN_KEYS)
        if entry.kind:
            _check_settings(settings, entry, item.values["kind"], problems)
        found.setdefault(entry.name, KeychainPlan(entry.name, entry.kind, settings.plain(), item.mark.line))
    return found


_VALUES: Final = frozenset(["value", "secret", "token", "password", "api_key", "key"])


def _without_value(item: Mapping, problems: Problems) -> Mapping:
    """Drops the plain secret from an entry of the keychain, after reporting it."""
    held = [name for name in item.keys if name in _VALUES]
    named = item.get("name")
    if not held or named is None or "kind" in item.keys:
        return item
    message = f"`{held[0]}` is in plain text here: an entry of `keychain` only names a secret"
    store = f"noetl-stream credential set {named.plain()}"
    hint = f"leave it out, as in {{ name: {named.plain()}, kind: credential }}, and store it once: {store}"
    problems.error("plain_secret", message, item.keys[held[0]], hint)
    kind = Scalar("credential", named.mark, item.pointer)
    return item.drop_keys(set(held)).with_value(("kind",), item.keys["name"], kind) or item


def _as_list(node: Mapping, problems: Problems) -> Sequence:
    """The entries of a keychain that is a mapping of names, after reporting it."""
    own = {
        name: part if isinstance(part, Mapping) else Mapping(part.mark, part.pointer)
        for name, part in node.values.items()
    }
    plain = [{"name": name, **(part.plain() or {"kind": "credential"})} for name, part in own.items()]
    hint = f"write keychain: {written(plain)}"
    problems.error("wrong_type", "`keychain` must be a list, not a mapping", node, hint)
    items: list[Node] = []
    for name, part in own.items():
        key = node.keys[name]
        named = part.with_value(("name",), key, Scalar(name, key.mark, key.pointer)) or part
        items.append(
            named
            if part.keys
            else named.with_value(("kind",), key, Scalar("credential", key.mark, key.pointer)) or named
        )
    return Sequence(items, node.mark, node.pointer)


def _check_settings(settings: Mapping, entry: KeychainEntry, at: Node, problems: Problems) -> None:
    installed = installed_kinds()
    model = installed.settings.get(entry.kind)
    if model is None:
        kinds = installed.settings
        hint = did_you_mean(entry.kind, kinds) or f"installed kinds: {list_names(sorted(kinds))}; plugins can add more"
        message = installed.unusable.get(entry.kind, f"unknown keychain kind `{entry.kind}`")
        problems.error("unknown_kind", message, at, hint)
        return
    check_against(settings, model, f"the settings of kind `{entry.kind}`", problems, at=at)
    for name in plain_text_secrets(settings.plain()):
        if isinstance(settings.values[name], Scalar):
            message = f"`{name}` is in plain text and will be stored with the playbook"
            hint = "store it as a credential and name it with `credential`"
            problems.warn("plain_secret", message, settings.keys[name], hint)
