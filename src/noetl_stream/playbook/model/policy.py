"""Admission and task policies, and their rules (LANGUAGE §4 to §6; v10 §5)."""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingOf
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

import msgspec

from noetl_stream.model.events import SharedOperation
from noetl_stream.model.labels import label_fault
from noetl_stream.playbook.diagnostics import Location, Problems
from noetl_stream.playbook.model.layering import read_seconds
from noetl_stream.playbook.model.sections import (
    ANYTHING,
    SECONDS,
    Part,
    Placeholders,
    Required,
    Reserved,
    Schema,
    Section,
    correct_spelling,
    described,
    entries,
    is_empty,
    is_null,
    keys_of,
    ladder,
    mapping_of,
    mapping_with,
    number_or_template,
    or_empty,
    pairs,
    ref,
    report_wrong_type,
    section,
)
from noetl_stream.playbook.plan import Backoff, Directive, OnTimeout, Routing, WaitPlan
from noetl_stream.playbook.suggestions import list_names
from noetl_stream.playbook.vocabulary import advice
from noetl_stream.playbook.vocabulary.names import check_identifier
from noetl_stream.playbook.yaml.nodes import Mapping, MappingKey, Node, Scalar, Sequence, holds_template, kind_of

_TRUE: Final = re.compile(r"\{\{-?\s*[Tt]rue\s*-?\}\}\Z")
TOKEN_KEYS: Final = frozenset(["from_step", "cause"])
"""The keys of ``token`` that every token has."""

SHARED_EXAMPLE: Final = '{ op: add, value: "{{ … }}" }'

_TAKES: Final = {
    **dict.fromkeys(("add", "min", "max"), "a number"),
    **dict.fromkeys(("extend", "union"), "a list"),
    "merge": "a mapping",
}


class Rule(Section):
    title = "a rule"
    rejected = advice.RULE

    when: Part = described("The condition.", ref("guard"))
    then: Annotated[Part, Required("{ when: …, then: { … } }")] = described("What is done.", ANYTHING)


class Else(Section):
    title = "`else`"
    rejected = advice.RULE

    then: Annotated[Part, Required(advice.ELSE_HINT)] = described(
        "What is done if no rule before it matched.", ANYTHING
    )


class Allow(Section):
    title = "`then` of an admission rule"
    example = "write then: { allow: true }"
    rejected = advice.CONTROL

    allow: Annotated[bool, Required("then: { allow: true }")] = described("Whether the token may enter.", default=True)
    token: Part = described("Metadata that the step reads as `token.<key>`.", mapping_of(ANYTHING))


def _directive_options(directive: str, options: list[str], needed: list[str]) -> list[Schema]:
    """Requires the keys ``needed`` with a directive, and forbids ``options`` with any other."""
    is_it: Schema = {"properties": {"do": {"const": directive}}, "required": ["do"]}
    others = {"not": {"anyOf": [{"required": [name]} for name in options]}}
    return [{"if": is_it, "then": {"required": needed}, "else": others}]


class Then(Section):
    title = "`then`"
    example = "write then: { do: continue | retry | jump | break | fail, … }"
    rejected = advice.THEN
    schema_rules: ClassVar[Schema] = {
        "allOf": [
            *_directive_options("retry", ["attempts", "backoff", "delay", "max_delay"], ["attempts"]),
            *_directive_options("jump", ["to"], ["to"]),
        ]
    }

    do: Annotated[Directive | None, Required("do: continue | retry | jump | break | fail")] = described(
        "`continue` with the next task, `retry`, `jump` to another, `break` (end well) or `fail`."
    )
    attempts: Part = described(
        "How many times the task runs in all, the first included.",
        number_or_template({"type": ["integer", "null"], "minimum": 1}),
    )
    backoff: Backoff | None = described("How the delay grows from attempt to attempt.")
    delay: Part = described("Seconds before the next attempt.", number_or_template({"type": "number", "minimum": 0}))
    max_delay: float | None = described("The longest delay, in seconds.", {"type": ["number", "null"], "minimum": 0})
    to: str | None = described("The task of this step to jump to.")
    set_ctx: Part = described("Sets keys of `ctx`, the state of the execution.", mapping_of(ANYTHING))
    set_iter: Part = described("Sets keys of `iter`, the scope of this iteration.", mapping_of(ANYTHING))
    set_vars: Part = described("Sets keys of `vars`, the scope of this step run.", mapping_of(ANYTHING))
    set_shared: Part = described(
        "Changes keys of `ctx` from parallel iterations, by operations that add up.", mapping_of(ref("SharedEntry"))
    )
    set_label: Part = described("Sets labels of the execution, by which it is found.", mapping_of(ANYTHING))


class TaskPolicy(Placeholders):
    title = "a task's policy"
    rejected = advice.POLICY
    schema_rules: ClassVar[Schema] = {
        "anyOf": [
            {"required": ["rules"]},
            *(
                {**mapping_with(name, {"type": "object"}), "not": {"required": ["on_unmatched"]}}
                for name in ("limit", "tracing")
            ),
        ]
    }

    mode: Annotated[Any, Reserved(("exclusive",))] = None
    on_unmatched: Literal["continue", "fail"] = described(
        "What happens when no rule matches: `continue` or `fail`.", default="continue"
    )
    rules: Part = described("What follows the task: the first rule whose `when` holds.", ladder("Rule", ref("Then")))
    limit: Part = described("How many attempts of this task, and how often, with the same key.", section("KeyLimit"))
    tracing: Part = described("Attributes of the spans of its attempts.", or_empty(ref("SpanAttributes")))


class Admit(Section):
    title = "`admit`"
    example = "write admit: { rules: [ { when: …, then: { allow: true } } ] }"

    mode: Routing | None = described(
        "`exclusive`: the first rule whose `when` holds decides. `inclusive`: all that hold, and none may refuse."
    )
    rules: Annotated[Part, Required("rules: [ { when: …, then: { allow: true } } ]")] = described(
        "The rules that decide; if none holds, the token is held.", ladder("Rule", ref("Allow"))
    )
    wait: Part = described("Keeps the execution alive while the token is held, for so long.", section("AdmitWait"))


class AdmitWait(Section):
    title = "`admit.wait`"
    example = "write wait: { timeout_s: 3600, on_timeout: fail }"

    timeout_s: Annotated[Part, Required("wait: { timeout_s: 3600, on_timeout: fail }")] = described(
        "Seconds until it stops waiting.", SECONDS
    )
    on_timeout: OnTimeout = described("`fail` fails the step, `discard` drops the token.", default="fail")


class NextWait(AdmitWait):
    title = "`next.spec.wait`"

    on_timeout: OnTimeout = described("`fail` fails the execution, `discard` ends the branch.", default="fail")


def _shared_value_schema(kind: str, operations: list[str]) -> Schema:
    """The JSON Schema of the value of these operations, unless it is a template."""
    is_one: Schema = {"properties": {"op": {"enum": operations}}, "required": ["op"]}
    value = {"anyOf": [{"type": kind}, {"allOf": [{"type": "string"}, ref("holds_template")]}]}
    return {"if": is_one, "then": {"properties": {"value": value}}}


class SharedEntry(Section):
    title = "a key of `set_shared`"
    rejected = advice.SHARED
    schema_rules: ClassVar[Schema] = {
        "if": {"properties": {"op": {"const": "count"}}, "required": ["op"]},
        "then": {"not": {"required": ["value"]}},
        "else": {"required": ["value"]},
        "allOf": [
            _shared_value_schema("number", ["add", "min", "max"]),
            _shared_value_schema("array", ["extend", "union"]),
            _shared_value_schema("object", ["merge"]),
        ],
    }

    op: Annotated[SharedOperation | None, Required(f"write one of {list_names(get_args(SharedOperation))}")] = (
        described("How the value changes the key.")
    )
    value: Part = described("The value; `count` takes none.", ANYTHING)


class RuleDraft(msgspec.Struct, frozen=True):
    """One entry of ``rules``; ``when`` is ``None`` for ``else``."""

    when: Node | None
    then: Node | None
    at: Node


class AdmitRuleDraft(msgspec.Struct, frozen=True):
    """A rule of an admission as read; ``token`` is the metadata that it adds."""

    when: Node | None
    allow: bool
    token: Mapping | None = None


class AdmitDraft(msgspec.Struct, frozen=True):
    """An admission as read."""

    rules: list[AdmitRuleDraft]
    wait: WaitPlan | None
    mode: Routing = "exclusive"

    @property
    def token_keys(self) -> list[str]:
        """The keys of the metadata that rules add to the token."""
        return [key for rule in self.rules if rule.token for key in rule.token.keys]


Write = tuple[MappingKey, Node]


class SharedDraft(msgspec.Struct, frozen=True):
    """A contribution to one key; ``value`` is ``None`` for ``count``."""

    key: MappingKey
    op: SharedOperation
    value: Node | None


class ActionDraft(msgspec.Struct, frozen=True):
    """A task rule as read. ``writes`` are by namespace: ``ctx``, ``iter``, ``vars``; those of
    ``label`` are labels of the execution. ``shared`` goes to ``ctx``.
    """

    when: Node | None
    at: Location
    do: Directive
    attempts: Node | None = None
    backoff: Backoff = "none"
    delay: Node | None = None
    max_delay_s: float = 300.0
    to: str | None = None
    to_node: Node | None = None
    writes: MappingOf[str, list[Write]] = msgspec.field(default_factory=dict)
    shared: list[SharedDraft] = msgspec.field(default_factory=list)


class PolicyDraft(msgspec.Struct, frozen=True):
    """A task's policy as read. ``is_complete``: every rule could be read."""

    rules: list[ActionDraft]
    on_unmatched: Literal["continue", "fail"]
    at: Location
    is_complete: bool


def read_admit(node: Node | None, problems: Problems) -> AdmitDraft | None:
    """Reads ``step.spec.policy.admit``, if present."""
    if is_null(node):
        return None
    admit = Admit.from_node(node, problems)
    mode = admit.mode or "exclusive"
    drafts = [_read_admit_rule(rule, problems) for rule in read_rules(admit.rules, problems, mode=mode)]
    admits_all = bool(drafts) and drafts[-1].when is None and all(rule.allow for rule in drafts)
    if admits_all and admit.wait is not None:
        hint = "remove it, or add a rule that denies: only denied tokens wait"
        problems.warn("no_effect", "`wait` has no effect: the rules admit every token", admit.wait, hint)
    if mode == "inclusive":
        _warn_set_twice(drafts, problems)
    return AdmitDraft(drafts, read_wait(admit.wait, AdmitWait, problems), mode)


def _read_admit_rule(rule: RuleDraft, problems: Problems) -> AdmitRuleDraft:
    allow = Allow.from_node(rule.then, problems)
    written = [] if is_null(allow.token) else pairs(allow.token, "`token`", problems)
    for key, _ in written:
        if key.name in TOKEN_KEYS:
            message = f"`token.{key.name}` says where the token came from"
            problems.error("reserved_name", message, key, "use another name")
        else:
            check_identifier(key.name, "a key of `token`", key, problems)
    if written and not allow.allow:
        message = "`token` has no effect beside `allow: false`: the token does not enter"
        problems.error("no_effect", message, written[0][0], "remove it, or put it in a rule that allows")
    return AdmitRuleDraft(rule.when, allow.allow, allow.token if isinstance(allow.token, Mapping) else None)


def _warn_set_twice(rules: list[AdmitRuleDraft], problems: Problems) -> None:
    """Warns of keys of the token that several rules set which may both be taken."""
    seen: dict[str, MappingKey] = {}
    for key in (key for rule in rules if rule.when is not None and rule.token for key in rule.token.keys.values()):
        first = seen.setdefault(key.name, key)
        if first is not key:
            message = (
                f"`token.{key.name}` is also set by the rule on line {first.mark.line}: where both hold, this wins"
            )
            hint = "use another name; or `else`, which is taken only if no other rule holds"
            problems.warn("competing_writes", message, key, hint)


def read_wait(node: Node | None, model: type[AdmitWait], problems: Problems) -> WaitPlan | None:
    """Reads the wait of an admission or a ``next``, if any; its time is 0 if, after reporting, it has problems."""
    if is_null(node):
        return None
    wait = model.from_node(node, problems)
    return WaitPlan(read_seconds(wait.timeout_s, "`timeout_s`", problems) or 0.0, wait.on_timeout)


def read_policy(node: Node, at: MappingKey, problems: Problems) -> PolicyDraft | None:
    """Reads the rules of a task's policy; ``None`` if it is not a mapping, or only has a ``limit`` or ``tracing``."""
    if not isinstance(node, Mapping):
        message = f"a task's policy must be a mapping with `rules`, not {kind_of(node)}"
        is_ladder = isinstance(node, Sequence) and not is_empty(node)
        hint = "put the key `rules` before the list: policy: { rules: [ … ] }" if is_ladder else advice.POLICY_HINT
        problems.error("policy_shape", message, node, hint)
        return None
    node = TaskPolicy.recover(node, problems)
    stands_alone = not is_null(node.get("limit")) or not is_empty(node.get("tracing"))
    if is_null(node.get("rules")) and stands_alone and "on_unmatched" not in node.keys:
        TaskPolicy.from_node(node, problems)
        return None
    if is_null(node.get("rules")):
        problems.error("policy_shape", "a task's policy needs `rules`", at, advice.POLICY_HINT)
    policy = TaskPolicy.from_node(node, problems)
    listed = [] if is_null(policy.rules) else read_rules(policy.rules, problems)
    rules = [action for rule in listed if (action := _read_action(rule, problems))]
    is_complete = isinstance(policy.rules, Sequence) and len(rules) == len(policy.rules.items)
    is_explicit = "on_unmatched" in node.keys and node.values["on_unmatched"].plain() == policy.on_unmatched
    if is_explicit and any(always_holds(rule.when) for rule in rules):
        message = "`on_unmatched` has no effect: a rule matches every outcome"
        problems.warn("no_effect", message, node.keys["on_unmatched"], "remove it, or the rule that always matches")
    return PolicyDraft(rules, policy.on_unmatched, at, is_complete)


def read_rules(
    node: Node | None, problems: Problems, what: str = "`rules`", model: type[Rule] = Rule, mode: Routing = "exclusive"
) -> list[RuleDraft]:
    """Reads a list of rules with ``when`` and ``then``, and at most one ``else``, which must be last.

    Args:
        what: The list's name in messages.
        model: The model of one rule.
        mode: Whether the first that holds is taken, or each.
    """
    drafts: list[RuleDraft] = []
    else_seen: MappingKey | None = None
    if isinstance(node, Sequence) and not node.items:
        problems.error("invalid_value", f"{what} is empty", node, "{ when: …, then: … }")
    for item in entries(node, what, problems):
        if not isinstance(item, Mapping):
            report_wrong_type(item, model.title, "a mapping", problems)
            continue
        item = correct_spelling(item, ["else"], keys_of(model), model.title, problems)
        otherwise = item.keys.get("else")
        if otherwise is None and else_seen is not None:
            problems.error("else_not_last", f"{model.title} after `else` can never match", item, "put `else` last")
        if otherwise is not None:
            if else_seen is not None:
                problems.error("else_twice", f"duplicate `else`, first on line {else_seen.mark.line}", otherwise)
            else_seen = otherwise
            drafts.append(_read_else(item, otherwise, problems))
            continue
        item, rule = model.read_whole(item, problems)
        if rule.when is None:
            message = f"{model.title} needs `when` or `else`"
            problems.error("missing_key", message, item, "{ when: …, then: … }")
            continue
        drafts.append(RuleDraft(rule.when, rule.then, item))
    if mode == "exclusive":
        _warn_never_reached(drafts, model.title, problems)
    return drafts


def always_holds(when: Node | None) -> bool:
    """Whether a condition is omitted or literally true."""
    value = True if when is None else when.plain()
    return value is True or (isinstance(value, str) and _TRUE.match(value.strip()) is not None)


def _warn_never_reached(drafts: list[RuleDraft], title: str, problems: Problems) -> None:
    """Warns of rules after ``when: true``: they never match, except after a retry once its attempts are used up."""
    certain = next((rule for rule in drafts if rule.when and always_holds(rule.when) and not _retries(rule)), None)
    if certain is None:
        return
    for rule in drafts[drafts.index(certain) + 1 :]:
        message = f"{title} here has no effect: the one on line {certain.at.mark.line} always matches"
        problems.warn("no_effect", message, rule.at, "put the rule that always matches last, as `else`")


def _retries(rule: RuleDraft) -> bool:
    do = rule.then.get("do") if isinstance(rule.then, Mapping) else None
    return do is not None and do.plain() == "retry"


def _read_else(item: Mapping, key: MappingKey, problems: Problems) -> RuleDraft:
    inner = item.values["else"]
    for name, other in item.keys.items():
        if name == "then":
            problems.error("else_without_then", "`then` belongs inside `else`", other, advice.ELSE_HINT)
        elif name != "else":
            problems.error("unknown_key", f"unknown key `{name}` next to `else`", other, advice.ELSE_HINT)
    if "then" in item.keys:
        return RuleDraft(None, item.values["then"], item)
    if not isinstance(inner, Mapping) or "then" not in inner.keys:
        problems.error("else_without_then", "`else` needs `then`", key, advice.ELSE_HINT)
        has_action = isinstance(inner, Mapping) and "do" in inner.keys
        return RuleDraft(None, inner if has_action else None, item)
    return RuleDraft(None, Else.from_node(inner, problems).then, item)


def _read_action(rule: RuleDraft, problems: Problems) -> ActionDraft | None:
    if rule.then is None:
        return None
    node, then = Then.read_whole(rule.then, problems)
    if not isinstance(node, Mapping):
        return None
    _check_action(then, node, problems)
    writes = {name: _read_writes(getattr(then, f"set_{name}"), name, problems) for name in ("ctx", "iter", "vars")}
    writes["label"] = _read_labels(then.set_label, problems)
    return ActionDraft(
        when=rule.when,
        at=rule.at,
        do=then.do or "continue",
        attempts=None if is_null(then.attempts) else then.attempts,
        backoff=then.backoff or "none",
        delay=then.delay,
        max_delay_s=300.0 if then.max_delay is None else float(then.max_delay),
        to=then.to,
        to_node=node.get("to"),
        writes=writes,
        shared=_read_shared(then.set_shared, problems),
    )


def _check_action(then: Then, node: Mapping, problems: Problems) -> None:
    """Checks the options of a directive and their ranges."""
    if then.do == "retry" and "attempts" not in node.keys:
        hint = "write attempts: 5, for five runs in all"
        problems.error("missing_key", "`do: retry` needs `attempts`", node, hint)
    if then.do == "jump" and "to" not in node.keys:
        problems.error("missing_key", "`do: jump` needs `to`", node, "to: <a task of this pipeline>")
    owners = {"to": "jump", "attempts": "retry", "backoff": "retry", "delay": "retry", "max_delay": "retry"}
    for name, owner in owners.items():
        if name in node.keys and then.do is not None and then.do != owner:
            message = f"`{name}` has no effect with `do: {then.do}`"
            problems.error("no_effect", message, node.keys[name], f"remove it, or write do: {owner}")
    if not is_null(then.attempts):
        check_number(then.attempts, "`attempts`", 1, problems, whole=True)
        is_one = isinstance(then.attempts, Scalar) and type(then.attempts.value) is int and then.attempts.value == 1
        if then.do == "retry" and is_one:
            hint = "write attempts: 2 or more: it counts all runs, including the first"
            problems.warn("no_effect", "`attempts: 1` never retries", node.values["attempts"], hint)
    if then.max_delay is not None and then.max_delay < 0:
        problems.error("invalid_value", "`max_delay` must be at least 0 seconds", node.values["max_delay"])
    check_number(then.delay, "`delay`", 0, problems)


def check_number(node: Node | None, what: str, least: int, problems: Problems, *, whole: bool = False) -> None:
    """Reports a value that is neither a template nor a number, or whole number, of at least ``least``."""
    if node is None:
        return
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, str) and "{{" in value:
        return
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        report_wrong_type(node, what, f"a {'whole ' * whole}number or a {{{{ template }}}}", problems)
    elif value < least:
        problems.error("invalid_value", f"{what} must be at least {least}", node)


def _read_writes(node: Node | None, namespace: str, problems: Problems) -> list[Write]:
    """Reads the keys and values of ``set_ctx``, ``set_iter``, ``set_vars`` or ``set_shared`` with valid names."""
    what = f"`set_{namespace}`"
    written = pairs(node, what, problems)
    return [(key, value) for key, value in written if check_identifier(key.name, f"a key of {what}", key, problems)]


def _read_labels(node: Node | None, problems: Problems) -> list[Write]:
    """Reads the names and values of ``set_label``, with the names that labels of a playbook may have."""
    written = pairs(node, "`set_label`", problems)
    for key, value in written:
        is_template = isinstance(value, Scalar) and holds_template(value)
        if fault := label_fault({key.name: None if is_template else value.plain()}):
            problems.error("invalid_value", fault, key)
    return written


def _read_shared(node: Node | None, problems: Problems) -> list[SharedDraft]:
    drafts = []
    for key, entry in _read_writes(node, "shared", problems):
        if not isinstance(entry, Mapping):
            what = f"`{key.name}` of `set_shared`"
            report_wrong_type(entry, what, "a mapping with `op`", problems, f"write {key.name}: {SHARED_EXAMPLE}")
            continue
        entry = SharedEntry.recover(entry, problems)
        shared = SharedEntry.from_node(entry, problems)
        if shared.op is not None:
            _check_value(shared.op, entry, problems)
            drafts.append(SharedDraft(key, shared.op, shared.value))
    return drafts


def _check_value(op: SharedOperation, entry: Mapping, problems: Problems) -> None:
    value = entry.get("value")
    if op == "count":
        if value is not None:
            message = "`op: count` takes no `value`"
            problems.error("no_effect", message, entry.keys["value"], "remove it, or write op: add")
    elif value is None:
        problems.error("missing_key", f"`op: {op}` needs a `value`", entry, f"write {{ op: {op}, value: … }}")
    elif op in _TAKES and kind_of(value) != _TAKES[op] and not (isinstance(value, Scalar) and holds_template(value)):
        problems.error("wrong_type", f"`op: {op}` takes {_TAKES[op]}, not {kind_of(value)}", value)
