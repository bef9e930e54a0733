"""The playbook document: root keys, metadata, executor, workload (LANGUAGE §1)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.codec import encode
from noetl_stream.model.limits import Limits
from noetl_stream.playbook.compile.layering import Layer, read_layered
from noetl_stream.playbook.diagnostics import BareLocation, Position, Problems, did_you_mean
from noetl_stream.playbook.model.keychain import read_keychain
from noetl_stream.playbook.model.sections import (
    Part,
    Placeholders,
    RejectedKey,
    Required,
    Reserved,
    Section,
    pairs,
    read_section,
)
from noetl_stream.playbook.model.timeouts import read_seconds, read_timeouts
from noetl_stream.playbook.plan import FailureMode, KeychainPlan
from noetl_stream.playbook.vocabulary import misplaced
from noetl_stream.playbook.yaml.nodes import Mapping, Node, Scalar, holds_template, kind_of

API_VERSION: Final = "noetl.io/v2"
POOL: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
"""Pool names. They become part of a subject and of a consumer's name (DESIGN §1)."""

_ROOT_VARS: Final = RejectedKey(
    "a playbook has no root `vars`",
    "put inputs under `workload`; set state with `set_ctx`, `set_iter` or `set_vars` in a task's policy rule",
    "root_vars",
)
_STEPS: Final = RejectedKey("`steps` is the old name of `workflow`", "write workflow: [ { step: start, … } ]")


def _scalar(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise ValueError("must be a scalar")
    return value


Label = Annotated[Any, AfterValidator(_scalar)]


class Root(Section):
    title = "the playbook"
    rejected: ClassVar[MappingOf[str, RejectedKey]] = {"vars": _ROOT_VARS, "steps": _STEPS}

    apiVersion: Annotated[str | None, Required("apiVersion: noetl.io/v2")] = None  # noqa: N815 - the key's name
    kind: Annotated[str | None, Required("kind: Playbook")] = None
    metadata: Annotated[Part, Required("metadata: { name: …, path: … }")] = None
    keychain: Part = None
    executor: Part = None
    workload: Part = None
    workflow: Annotated[Part, Required("workflow: [ { step: start, … } ]")] = None
    workbook: Part = None


class Metadata(Section):
    title = "`metadata`"
    example = "write metadata: { name: …, path: … }"

    name: Annotated[str, Required()] = ""
    path: Annotated[str, Required("path: folder/name, the playbook's place in the catalog")] = ""
    version: str | None = None
    description: str | None = None
    tags: list[str] | None = None
    labels: dict[str, Label] | None = None
    annotations: dict[str, Any] | None = None


class Executor(Section):
    title = "`executor`"
    example = "write executor: { kind: distributed, spec: { … } }"
    rejected: ClassVar[MappingOf[str, RejectedKey]] = misplaced.EXECUTOR

    kind: Literal["distributed"] | None = None
    spec: Part = None


class ExecutorSpec(Section):
    title = "`executor.spec`"
    rejected: ClassVar[MappingOf[str, RejectedKey]] = misplaced.EXECUTOR_SPEC

    pool: str = "default"
    entry_step: str | None = None
    result: Part = None
    timeout: Part = None
    timeout_s: Part = None
    policy: Part = None
    profile: Annotated[Any, Reserved()] = None
    placement: Annotated[Any, Reserved()] = None
    resources: Annotated[Any, Reserved()] = None


class ExecutorPolicy(Placeholders):
    title = "`executor.spec.policy`"
    rejected: ClassVar[MappingOf[str, RejectedKey]] = misplaced.EXECUTOR_POLICY

    mode: Annotated[Any, Reserved(("exclusive",))] = None
    defaults: Part = None
    failure: Part = None
    results: Part = None
    limits: Part = None


class PolicyDefaults(Section):
    title = "`policy.defaults`"

    timeouts: Part = None
    resources: Annotated[Any, Reserved()] = None


class PolicyResults(Section):
    title = "`policy.results`"

    reference_first: bool = False


class PolicyFailure(Section):
    title = "`policy.failure`"
    example = "write failure: { mode: fail_fast } or { mode: best_effort }"

    mode: FailureMode | None = None


@dataclass(frozen=True, slots=True)
class ParsedPlaybook:
    """The document as read. Parts read elsewhere are kept as nodes; ``entry`` is ``entry_step``, if given."""

    name: str
    path: str
    version: str | None
    labels: MappingOf[str, Any]
    pool: str
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
    workflow: Node | None
    workbook: Node | None

    def entry_among(self, names: Sequence[str]) -> str | None:
        """The step that receives the first token: ``entry_step``, else ``start``, else the first (LANGUAGE §1)."""
        return self.entry or ("start" if "start" in names else next(iter(names), None))


def read_document(root: Node, knobs: Collection[str], operator: Limits, problems: Problems) -> ParsedPlaybook:
    """Reads everything in a playbook except its steps and workbook.

    Args:
        knobs: The ``spec`` keys of the installed kinds.
        operator: The operator's limits, which a playbook may lower.
    """
    top = read_section(root, Root, problems, at=BareLocation(Position(1, 1)))
    if isinstance(root, Mapping):
        _check_version(root, top, problems)
    metadata = _metadata(top.metadata, problems)
    executor = read_section(top.executor, Executor, problems)
    spec, layer = read_layered(executor.spec, ExecutorSpec, knobs, problems)
    policy = read_section(spec.policy, ExecutorPolicy, problems)
    defaults = read_section(policy.defaults, PolicyDefaults, problems)
    limits = _limits(policy.limits, operator, problems)
    _check_result(spec.result, problems)
    return ParsedPlaybook(
        name=metadata.name,
        path=metadata.path.removeprefix("/"),
        version=metadata.version,
        labels=metadata.labels or {},
        pool=_pool(spec.pool, executor.spec, problems),
        entry=spec.entry_step,
        entry_at=executor.spec.get("entry_step") if isinstance(executor.spec, Mapping) else None,
        result=spec.result,
        layer=layer.over(Layer(read_timeouts(defaults.timeouts, problems))),
        timeout_s=read_seconds(spec.timeout_s, "`timeout_s`", problems),
        failure_mode=read_section(policy.failure, PolicyFailure, problems).mode or "fail_fast",
        reference_first=read_section(policy.results, PolicyResults, problems).reference_first,
        limits=limits,
        keychain=read_keychain(top.keychain, problems),
        workload=_workload(top.workload, limits, problems),
        workload_node=top.workload,
        workflow=top.workflow,
        workbook=top.workbook,
    )


def _check_version(root: Mapping, top: Root, problems: Problems) -> None:
    version, kind = root.get("apiVersion"), root.get("kind")
    if version is not None and top.apiVersion is not None and top.apiVersion != API_VERSION:
        hint = "write `apiVersion: noetl.io/v2`; playbooks of older dialects must be rewritten"
        problems.error("invalid_value", f"`apiVersion` must be `{API_VERSION}`, not `{top.apiVersion}`", version, hint)
    if kind is not None and top.kind is not None and top.kind != "Playbook":
        near = did_you_mean(top.kind, ["Playbook"])
        problems.error("invalid_value", f"`kind` must be `Playbook`, not `{top.kind}`", kind, near)


def _metadata(node: Node | None, problems: Problems) -> Metadata:
    metadata = read_section(node, Metadata, problems)
    for name in ("name", "path"):
        value = node.get(name) if isinstance(node, Mapping) else None
        if isinstance(value, Scalar) and isinstance(value.value, str) and not value.value.strip().strip("/"):
            problems.error("invalid_value", f"`metadata.{name}` is empty", value)
    return metadata


def _pool(pool: str, spec: Node | None, problems: Problems) -> str:
    node = spec.get("pool") if isinstance(spec, Mapping) else None
    if node is not None:
        check_pool(pool, node, problems)
    return pool


def _check_result(node: Node | None, problems: Problems) -> None:
    """Requires an expression, or a mapping or list that holds one: a bare word is a forgotten template."""
    if isinstance(node, Scalar) and not holds_template(node):
        spelling = str(node.value).strip()
        hint = f'write result: "{{{{ {spelling} }}}}"' if isinstance(node.value, str) else None
        problems.error("wrong_type", f"`result` must be an {{{{ expression }}}}, not {kind_of(node)}", node, hint)


def check_pool(pool: str, at: Node, problems: Problems) -> None:
    """Reports an invalid pool name."""
    if not POOL.match(pool):
        hint = "use 1 to 64 letters, digits, `_` and `-`"
        problems.error("invalid_name", f"invalid pool name `{pool}`", at, hint)


def _limits(node: Node | None, operator: Limits, problems: Problems) -> Limits:
    """The operator's limits as lowered by the playbook; only the operator can raise one (LANGUAGE §14)."""
    wanted = {key.name: (key, value) for key, value in pairs(node, "`policy.limits`", problems)}
    lowered = operator.lowered({name: value.plain() for name, (_, value) in wanted.items()})
    for problem in lowered.problems:
        key, value = wanted[problem.name]
        at = key if problem.code == "unknown_key" else value
        problems.error(problem.code, problem.message, at, problem.hint)
    return lowered.limits


def _workload(node: Node | None, limits: Limits, problems: Problems) -> MappingOf[str, Any]:
    if node is None or (isinstance(node, Scalar) and node.value is None):
        return {}
    if not isinstance(node, Mapping):
        problems.error("wrong_type", f"`workload` must be a mapping, not {kind_of(node)}", node)
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
