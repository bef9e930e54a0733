"""Flow control as read: limits by key of concurrent executions, step runs and task attempts, and their rates (LANGUAGE
§15); quotas of an execution (LANGUAGE §14 *Quotas*); the ``spec`` of arcs (LANGUAGE §7 *Keys and priority of arcs*).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import msgspec

from noetl_stream.model.events import QUOTAS, OnExceeded, OnLimit, Quotas, Rate
from noetl_stream.model.priorities import DEFAULT_PRIORITY, HIGHEST_PRIORITY, LOWEST_PRIORITY, PRIORITIES
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.layering import read_seconds
from noetl_stream.playbook.model.sections import (
    SECONDS,
    Part,
    Required,
    Schema,
    Section,
    described,
    is_empty,
    is_null,
    or_null,
    report_wrong_type,
    section,
)
from noetl_stream.playbook.suggestions import list_names
from noetl_stream.playbook.yaml.nodes import Mapping, Node, Scalar, child, holds_template

MOST_AT_ONCE: Final = 10_000
"""The most holders that a key may have."""

MOST_PER_S: Final = 10_000
LEAST_PER_S: Final = 0.00001
"""The lowest rate of a limit: about once a day."""

MOST_OF_A_QUOTA: Final = 10**15
"""The highest count that a quota may have."""

_EXAMPLE: Final = '{}: "{{{{ workload.customer }}}}"'
_KEY: Final = _EXAMPLE.format("key")
_CONCURRENCY: Final = f"concurrency: {{ {_KEY}, limit: 1, on_limit: queue }}"
_QUOTAS: Final = "quotas: { task_seconds: 600, on_exceeded: fail }"
_LIMIT: Final = f"limit: {{ {_KEY}, concurrency: 5, rate: {{ per_s: 10, burst: 20 }} }}"


PRIORITY: Final[Schema] = {"type": ["integer", "null"], "minimum": LOWEST_PRIORITY, "maximum": HIGHEST_PRIORITY}
KEY_TEXT: Final[Schema] = {"type": "string", "pattern": r"\S"}
_AT_ONCE: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": MOST_AT_ONCE}
_AMOUNT: Final[Schema] = or_null({"type": "integer", "minimum": 1, "maximum": MOST_OF_A_QUOTA})


class Concurrency(Section):
    title = "`concurrency`"
    example = f"write {_CONCURRENCY}"

    key: Annotated[Part, Required(_KEY)] = described(
        "Executions with the same key, of whatever playbook of the namespace, share its slots.", KEY_TEXT
    )
    limit: Annotated[Part, Required("limit: 1 for one at a time")] = described(
        "How many of them run at once.", _AT_ONCE
    )
    on_limit: OnLimit = described(
        "With no slot left: `queue` waits, `reject` fails, `discard` ends as cancelled, `cancel_running` "
        "cancels the oldest and takes its place.",
        default="queue",
    )


class KeyLimit(Section):
    title = "`limit`"
    example = f"write {_LIMIT}"
    schema_rules: ClassVar[Schema] = {"anyOf": [{"required": ["concurrency"]}, {"required": ["rate"]}]}

    key: Annotated[Part, Required(_KEY)] = described(
        "Step runs and tasks with the same key, of whatever playbook of the namespace, share its slots.", KEY_TEXT
    )
    concurrency: Part = described("How many of them run at once.", or_null(_AT_ONCE))
    rate: Part = described("How often one of them may begin.", section("LimitRate"))


class LimitRate(Section):
    title = "`rate`"
    example = "write rate: { per_s: 10, burst: 20 }"

    per_s: Annotated[Part, Required("per_s: 10, or 0.5 for one in two seconds")] = described(
        "How many may begin in a second, on average.", {"type": "number", "minimum": LEAST_PER_S, "maximum": MOST_PER_S}
    )
    burst: Part = described("How many may begin at once after a rest. Default: 1.", or_null(_AT_ONCE))


class ExecutionQuotas(Section):
    title = "`quotas`"
    example = f"write {_QUOTAS}"
    schema_rules: ClassVar[Schema] = {"anyOf": [{"required": [name]} for name in QUOTAS]}

    step_runs: Part = described("How often steps may run, all together.", _AMOUNT)
    task_runs: Part = described("How many attempts of tasks may run, all together.", _AMOUNT)
    task_seconds: Part = described("Seconds that all attempts of tasks may take together.", or_null(SECONDS))
    bytes: Part = described("Bytes of results, captured output and what rules set, all together.", _AMOUNT)
    on_exceeded: OnExceeded = described(
        "Beyond a quota: `fail` ends the execution, `warn` goes on with a warning, `suspend` pauses it.", default="fail"
    )


class LimitDraft(msgspec.Struct, frozen=True):
    """A limit as read; ``key`` is ``None`` if, after reporting, it has problems."""

    key: Node | None
    concurrency: int | None = None
    rate: Rate | None = None
    on_limit: OnLimit = "queue"


def read_concurrency(node: Node | None, problems: Problems) -> LimitDraft | None:
    """Reads ``executor.spec.policy.concurrency``, if present."""
    if is_null(node):
        return None
    section = Concurrency.from_node(node, problems)
    at_most = _read_whole_number(section.limit, "`limit`", problems)
    return LimitDraft(read_key(section.key, "`key`", problems), at_most, on_limit=section.on_limit)


def read_limit(node: Node | None, problems: Problems) -> LimitDraft | None:
    """Reads ``spec.policy.limit`` of a step or task, if present."""
    if node is None or is_null(node):
        return None
    section = KeyLimit.from_node(node, problems)
    at_most, rate = (
        _read_whole_number(section.concurrency, "`concurrency`", problems),
        _read_rate(section.rate, problems),
    )
    if isinstance(node, Mapping) and is_null(section.concurrency) and is_null(section.rate):
        message = "`limit` needs `concurrency`, `rate` or both: without them it limits nothing"
        problems.error("missing_key", message, node, _LIMIT)
    return LimitDraft(read_key(section.key, "`key`", problems), at_most, rate)


def read_quotas(node: Node | None, problems: Problems) -> Quotas | None:
    """Reads ``executor.spec.policy.quotas``, if present."""
    if node is None or is_empty(node):
        return None
    section = ExecutionQuotas.from_node(node, problems)
    if isinstance(node, Mapping) and all(is_null(getattr(section, name)) for name in QUOTAS):
        problems.error("missing_key", f"`quotas` needs one of {list_names(QUOTAS)}", node, _QUOTAS)
    return Quotas(
        step_runs=_read_whole_number(section.step_runs, "`step_runs`", problems, MOST_OF_A_QUOTA),
        task_runs=_read_whole_number(section.task_runs, "`task_runs`", problems, MOST_OF_A_QUOTA),
        task_seconds=read_seconds(section.task_seconds, "`task_seconds`", problems),
        bytes=_read_whole_number(section.bytes, "`bytes`", problems, MOST_OF_A_QUOTA),
        on_exceeded=section.on_exceeded,
    )


def read_key(node: Node | None, what: str, problems: Problems) -> Node | None:
    """Reads a key: text, mostly with a template, the same for all that share its limit."""
    if node is None or is_null(node):
        return None
    value = node.value if isinstance(node, Scalar) else None
    if not isinstance(value, str):
        once = "write dedupe: once, for one token in all, or a template, for one with each value"
        is_once = what == "`dedupe`" and value is True
        report_wrong_type(node, what, "text", problems, once if is_once else _EXAMPLE.format(what.strip("`")))
        return None
    if not value.strip():
        problems.error("invalid_value", f"{what} is empty", node, _EXAMPLE.format(what.strip("`")))
        return None
    return node


def _read_rate(node: Node | None, problems: Problems) -> Rate | None:
    if is_null(node):
        return None
    section = LimitRate.from_node(node, problems)
    at = section.per_s
    per_s = at.value if isinstance(at, Scalar) else None
    burst = _read_whole_number(section.burst, "`burst`", problems) or 1
    if at is None:
        return None
    if isinstance(per_s, bool) or not isinstance(per_s, int | float):
        report_wrong_type(
            at, "`per_s`", "a number", problems, _constant_hint(at, "per_s: 10, or 0.5 for one in two seconds")
        )
        return None
    if not LEAST_PER_S <= per_s <= MOST_PER_S:
        message = f"`per_s` must be from {LEAST_PER_S:f} to {MOST_PER_S}, not {per_s:g}"
        problems.error("invalid_value", message, at)
        return None
    return Rate(float(per_s), burst)


def _read_whole_number(node: Node | None, what: str, problems: Problems, most: int = MOST_AT_ONCE) -> int | None:
    """Reads a literal whole number of at least 1; ``None`` if absent or invalid."""
    if node is None or is_null(node):
        return None
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, bool) or not isinstance(value, int):
        report_wrong_type(node, what, "a whole number", problems, _constant_hint(node, "write a number such as 5"))
        return None
    if not 1 <= value <= most:
        problems.error("invalid_value", f"{what} must be from 1 to {most}, not {value}", node)
        return None
    return value


def _constant_hint(node: Node, otherwise: str) -> str:
    return "write a constant: only `key` takes a template" if holds_template(node) else otherwise


_SPEC: Final = 'spec: { dedupe: "{{ args.order }}" }'


class ArcSpec(Section):
    title = "an arc's `spec`"
    example = f"write {_SPEC}"

    dedupe: Part = described("A key: of the tokens with one key, the arc sends the first alone.", or_null(KEY_TEXT))
    priority: int | None = described("What waits in a pool of the step run comes from the highest: 0 to 9.", PRIORITY)
    partition: Part = described(
        "A key: of the step runs with one key, the next begins when the one before has ended.", or_null(KEY_TEXT)
    )


class RouterPolicy(ArcSpec):
    title = "`next.spec.policy`"


class ArcSpecDraft(msgspec.Struct, frozen=True):
    """The effects of an arc beyond its guard, as read."""

    dedupe: Node | None = None
    priority: int | None = None
    partition: Node | None = None

    @property
    def keys(self) -> dict[str, Node]:
        keys = {"dedupe": self.dedupe, "partition": self.partition}
        return {name: node for name, node in keys.items() if node is not None}

    @property
    def is_empty(self) -> bool:
        return not self.keys and self.priority is None

    def over(self, usual: ArcSpecDraft) -> ArcSpecDraft:
        """Completes this draft by the ``usual`` one, which holds for all arcs of the step."""
        return ArcSpecDraft(
            dedupe=self.dedupe or usual.dedupe,
            priority=usual.priority if self.priority is None else self.priority,
            partition=self.partition or usual.partition,
        )


def read_arc_spec(node: Node | None, model: type[ArcSpec], problems: Problems) -> ArcSpecDraft:
    """Reads the ``spec`` of an arc, or of all arcs of a step."""
    if is_empty(node):
        return ArcSpecDraft()
    spec = model.from_node(node, problems)
    check_priority(spec.priority, node, problems)
    keys = {name: read_key(getattr(spec, name), f"`{name}`", problems) for name in ("dedupe", "partition")}
    return ArcSpecDraft(priority=spec.priority, **keys)


def check_priority(priority: int | None, spec: Node | None, problems: Problems) -> None:
    """Reports an invalid priority in a ``spec``."""
    node = child(spec, "priority")
    if node is not None and priority is not None and priority not in PRIORITIES:
        hint = f"the highest is {HIGHEST_PRIORITY}, the lowest {LOWEST_PRIORITY}, the default {DEFAULT_PRIORITY}"
        problems.error("invalid_value", f"there is no priority {priority}", node, hint)
