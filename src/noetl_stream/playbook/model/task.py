"""Tasks: the shapes of ``tool``, their names, kind, inputs and ``spec`` (LANGUAGE §3, §5; v10 §7)."""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field

from noetl_stream.playbook.diagnostics import Location, Problems, did_you_mean, listed
from noetl_stream.playbook.kinds.inputs import check_against, spellings
from noetl_stream.playbook.kinds.spec import Kinds, KindSpec
from noetl_stream.playbook.model.layering import Layer, overlay, read_timeouts
from noetl_stream.playbook.model.policy import PolicyDraft, read_policy
from noetl_stream.playbook.model.sections import Part, Required, Section, is_null, mistyped, read_section, text_of
from noetl_stream.playbook.plan import Timeouts
from noetl_stream.playbook.results.schema import ResultSchema, read_result_schema
from noetl_stream.playbook.vocabulary import advice
from noetl_stream.playbook.vocabulary.names import check_name
from noetl_stream.playbook.yaml.nodes import Mapping, Node, holds_template

LANGUAGE_KEYS: Final = frozenset(["name", "kind", "spec"])
_SPEC_KEYS: Final = frozenset(["policy", "timeout", "result"])
_SCOPE_IN_CODE: Final = re.compile(
    r"\{\{[-\s]*(?:workload|ctx|iter|args|vars|steps|results|execution_id|keychain|_prev)\b[^{}]*\}\}"
)


class ResultSpec(Section):
    title = "`spec.result`"
    example = "write result: { schema: { type: object, … } }"

    schema_: Annotated[Part, Required()] = Field(None, alias="schema")


@dataclass(frozen=True, slots=True)
class TaskDraft:
    """A task as read. ``kind`` is ``None`` if unknown. ``inputs`` are rendered, ``verbatim`` nodes never are.
    ``knobs`` and ``timeouts`` are the effective ones, merged over those of the outer scopes. ``schema`` is that of its
    result, ``schema_at`` where it stands."""

    name: str
    kind: KindSpec | None
    at: Location
    inputs: Mapping
    verbatim: MappingOf[str, Node]
    knobs: MappingOf[str, Any]
    timeouts: Timeouts
    policy: PolicyDraft | None
    origin: str = ""
    schema: ResultSchema | None = None
    schema_at: Node | None = None


def read_task(
    node: Mapping, synthetic: str, kinds: Kinds, layer: Layer, problems: Problems, *, require_all: bool = True
) -> TaskDraft:
    """Reads a task that is not a construct.

    Args:
        synthetic: The name of a task without one.
        layer: Defaults of the outer scopes.
        require_all: Whether a missing required input is an error.
    """
    kind = _kind_of_task(node, kinds, problems)
    name = name_of_task(node, _label_of(node) or synthetic, problems)
    at: Location = node.get("name") or node.get("kind") or node
    spec = _spec_of_task(node, problems)
    policy = spec.get("policy")
    schema_at = read_section(spec.get("result"), ResultSpec, problems).schema_
    nothing = Mapping(node.mark, node.pointer)
    inputs, verbatim = _read_inputs(node, kind, at, problems, require_all) if kind else (nothing, {})
    return TaskDraft(
        name=name,
        kind=kind,
        at=at,
        inputs=inputs,
        verbatim=verbatim,
        knobs=_read_knobs(spec, kind, layer, at, problems) if kind else {},
        timeouts=overlay(layer.timeouts, read_timeouts(spec.get("timeout"), problems)),
        policy=read_policy(policy, spec.keys["policy"], problems) if policy is not None else None,
        schema=None if is_null(schema_at) else read_result_schema(schema_at, problems),
        schema_at=schema_at,
    )


def _read_inputs(
    node: Mapping, kind: KindSpec, at: Location, problems: Problems, require_all: bool
) -> tuple[Mapping, MappingOf[str, Node]]:
    """The inputs that are rendered before every run, and those that never are."""
    inputs = _without_misplaced(node.without(LANGUAGE_KEYS), advice.TASK, kind.inputs, problems)
    known = spellings(kind.inputs)
    verbatim = {key for key in inputs.keys if key in kind.verbatim or known.get(key) in kind.verbatim}
    title = f"the inputs of kind `{kind.kind}`"
    check_against(
        inputs, kind.inputs, title, problems, at=at, rendered=True, verbatim=verbatim, require_all=require_all
    )
    if kind.combination_error and require_all:
        given = [known[key] for key, value in inputs.values.items() if key in known and not is_null(value)]
        if (error := kind.combination_error(given)) is not None:
            problems.error("invalid_value", error, at)
    for key, value in inputs.values.items():
        # A value rendered into SQL text is not quoted; a parameter is (LANGUAGE §12).
        if key in kind.statements and holds_template(value):
            hint = "write `$name` instead and pass the value in `params`"
            problems.warn("template_in_sql", f"`{key}` has a template in its SQL", value, hint)
        if key in verbatim and isinstance(value.plain(), str) and (found := _SCOPE_IN_CODE.search(value.plain())):
            message = f"`{key}` is not rendered: `{found.group()}` stays as written"
            problems.warn("template_not_rendered", message, value, "pass the value in `args`")
    return inputs.without(verbatim), inputs.only(verbatim).values


def _kind_of_task(node: Mapping, kinds: Kinds, problems: Problems) -> KindSpec | None:
    value = node.get("kind")
    if value is None:
        if (label := _label_of(node)) is not None:
            hint = f"write - {{ name: {label}, kind: …, … }}"
            problems.error("label_keyed_task", "a task cannot be keyed by its name", node.keys[label], hint)
        elif "type" in node.keys:
            advice.TASK["type"].report(node.keys["type"], problems)
        else:
            problems.error("missing_key", "a task needs `kind`", node, "write { kind: noop }, for example")
        return None
    kind = text_of(value, "`kind`", problems)
    if kind is None:
        return None
    if kind in kinds:
        if kinds[kind].off:
            hint = "allow the kind on the workers, or use another"
            problems.warn("kind_off", f"the operator has switched off tasks of kind `{kind}`", value, hint)
        return kinds[kind]
    near = did_you_mean(kind, kinds)
    hint = near or f"installed kinds: {listed(sorted(kinds))}; plugins can add more"
    problems.error("unknown_kind", f"no tool of kind `{kind}` is installed", value, hint)
    return None


def _label_of(node: Mapping) -> str | None:
    """The name of a task in the older form ``{ name: { kind: …, … } }``."""
    for name, value in node.values.items():
        if isinstance(value, Mapping) and "kind" not in node.keys and ("kind" in value.keys or len(node.keys) == 1):
            return name
    return None


def name_of_task(node: Mapping, synthetic: str, problems: Problems) -> str:
    """The name of a task or construct: its own, or the synthetic one."""
    value = node.get("name")
    name = text_of(value, "a task's `name`", problems)
    if name is not None and value is not None and check_name(name, "a task's name", value, problems):
        return name
    return synthetic


def _spec_of_task(node: Mapping, problems: Problems) -> Mapping:
    spec = node.get("spec")
    if isinstance(spec, Mapping):
        return spec
    if spec is not None and not is_null(spec):
        mistyped(spec, "`spec`", "a mapping", problems)
    return Mapping(node.mark, node.pointer)


def _read_knobs(spec: Mapping, kind: KindSpec, layer: Layer, at: Location, problems: Problems) -> MappingOf[str, Any]:
    """The kind's own keys, including those of the outer scopes."""
    own = _without_misplaced(spec.without(_SPEC_KEYS), advice.TASK_SPEC, kind.knobs, problems)
    knobs = layer.knobs_for(kind, own)
    title = f"the `spec` keys of kind `{kind.kind}`"
    check_against(knobs, kind.knobs, title, problems, at=at, also_known=sorted(_SPEC_KEYS))
    return {name: value.plain() for name, value in knobs.values.items()}


def _without_misplaced(
    node: Mapping, rejected: MappingOf[str, advice.RejectedKey], model: type[BaseModel], problems: Problems
) -> Mapping:
    misplaced = (node.keys.keys() & rejected.keys()) - spellings(model).keys()
    for name in misplaced:
        rejected[name].report(node.keys[name], problems)
    return node.without(misplaced)
