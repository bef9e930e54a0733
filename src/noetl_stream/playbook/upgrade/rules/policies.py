"""Rewrites task policies: `eval`, rules in older shapes, retries (LANGUAGE §5)."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from noetl_stream.playbook.upgrade.draft import (
    Draft,
    by_scope,
    each,
    kind_of,
    line_of,
    mapping_at,
    mappings,
    quote_like,
    section,
    shown,
    tasks_of,
    to_ruamel,
    value_at,
)
from noetl_stream.playbook.upgrade.expressions import (
    Path,
    Replaced,
    all_of,
    expression_in,
    has_template,
    negate,
    rename_to,
    template,
)
from noetl_stream.playbook.upgrade.rules.reads import rewrite_for_policy

WRITES: Final = ("set_ctx", "set_iter", "set_vars", "set_shared")
ERROR: Final = "outcome.status == 'error'"
_THEN: Final = ("do", "attempts", "backoff", "delay", "max_delay", "to", *WRITES, "set_prev", "set")
_SYNONYMS: Final = {
    "max_attempts": "attempts",
    "initial_delay": "delay",
    "delay_s": "delay",
    "delay_seconds": "delay",
    "interval": "delay",
    "max_delay_s": "max_delay",
}
_NOT_RESULTS: Final = (("results",), ("result_index",), ("current_index",))
"""The paths below a step's name that are not part of its result."""
_RETRIES: Final = ("retry", "retries", "max_retries")
_DIRECTIVES: Final = ("retry", "fail", "skip", "jump", "continue", "break")
_CONDITIONS: Final = ("when", "retry_when", "if", "expr", "on")


def task_eval(draft: Draft, task: CommentedMap) -> None:
    """Rewrites `eval` as rules of the task's policy."""
    rules = task.get("eval")
    if not isinstance(rules, CommentedSeq):
        return
    if thens_of(task):
        draft.decide(task, "eval", "the task has `eval` and a policy: write one list of rules")
        return
    policy = section(task, "spec", "policy", at=line_of(task, "eval"))
    draft.move(task, "eval", policy, "rules", note="`eval` is the list `spec.policy.rules`")
    for rule in mappings(rules):
        shape_rule(draft, rule)
    close_rules(rules, line_of(policy, "rules"))


def task_policy(draft: Draft, task: CommentedMap) -> None:
    """Rewrites `policy` or `rules` in the wrong place, a policy that is a list, and rules in older shapes."""
    for key in ("policy", "rules"):
        if key not in task or key in draft.inputs_of(kind_of(task)):
            continue
        path = ("spec", "policy") if key == "rules" else ("spec",)
        draft.nest(task, key, *path, note=f"`{key}` of a task stands under `spec`")
    spec = mapping_at(task, "spec")
    if spec is not None and isinstance(spec.get("rules"), CommentedSeq):
        draft.nest(spec, "rules", "policy", note="`rules` stand under `spec.policy`")
    if spec is not None and isinstance(spec.get("policy"), CommentedSeq):
        said = "the list of a policy stands under `rules`"
        draft.replace(spec, "policy", {"rules": spec["policy"]}, note=said, block=True)
    for rule in _rules_in(task):
        shape_rule(draft, rule)


def shape_rule(draft: Draft, rule: CommentedMap) -> None:
    """Shapes a rule as `when` and `then`, or `else` with `then` inside."""
    for key in ("expr", "if"):
        if key in rule and "when" not in rule:
            draft.rename(rule, key, "when", note=f"`{key}` of a rule is `when`")
    (_shape_else if "else" in rule else _nest_then)(draft, rule)
    then = mapping_at(rule.get("else", rule), "then")
    if then is not None:
        _shape_then(draft, then)


def _shape_else(draft: Draft, rule: CommentedMap) -> None:
    inner = rule["else"]
    if "then" in rule and not inner:
        then = draft.remove(rule, "then", heir=(rule, "else"))
        draft.replace(rule, "else", {"then": then}, note="`then` of `else` stands inside it", block=True)
    elif isinstance(inner, CommentedMap) and "then" not in inner and inner:
        draft.replace(rule, "else", {"then": inner}, note="`else` holds `then`", block=True)


def _nest_then(draft: Draft, rule: CommentedMap) -> None:
    loose = [key for key in _THEN if key in rule]
    if not loose:
        return
    draft.note_change((rule, loose[0]), "what a rule does stands under `then`")
    then = rule.get("then")
    if not isinstance(then, CommentedMap):
        rule["then"] = then = to_ruamel({}, line_of(rule, loose[0]), block=True)
    for key in loose:
        draft.move(rule, key, then)


def _shape_then(draft: Draft, then: CommentedMap) -> None:
    for word in _DIRECTIVES:
        if word in then and "do" not in then:
            options = then[word]
            draft.rename(then, word, "do", "break" if word == "skip" else word, note=f"`{word}` is a value of `do`")
            if isinstance(options, CommentedMap):
                then.update(options)
            elif options not in (None, True, ""):
                name = {"jump": "to", "retry": "attempts"}.get(word, "message")
                then[name] = options
    if then.get("do") == "fail" and "message" in then:
        draft.drop(then, "message", "a rule that fails has no message of its own")
    draft.rename_older(then, _SYNONYMS, "`{}` of a retry is `{}`")
    if type(then.get("backoff")) in (int, float) and "delay" not in then:
        draft.note_assumption((then, "backoff"), f"`backoff: {then['backoff']}` is the delay in seconds of every retry")
        draft.rename(then, "backoff", "delay")
        then["backoff"] = "fixed"
    if "backoff_multiplier" in then:
        _multiplier(draft, then)
    if "jitter" in then:
        draft.drop(then, "jitter", "every delay has up to 10 % of it")
    if isinstance(then.get("set"), CommentedMap):
        _shape_set(draft, then)
    if then and "do" not in then and set(then) <= {*WRITES}:
        draft.note_change((then, None), "a rule that only sets values goes on: `do: continue`")
        then.insert(0, "do", "continue")
    if then.get("do") == "retry" and "attempts" not in then:
        then["attempts"] = 3
        draft.note_assumption((then, "do"), "a retry without `attempts` makes 3 runs in all")


def _shape_set(draft: Draft, then: CommentedMap) -> None:
    """Rewrites `set`, alone or by scope."""
    values = then["set"]
    draft.note_change((then, "set"), "`set` is `set_ctx`, or the one of its scope")
    scopes = by_scope(values)
    twice = [scope for scope in scopes if f"set_{scope}" in then]
    if twice:
        draft.decide(then, "set", f"the rule has `set` and `set_{twice[0]}`: write one of them")
        return
    for scope, inner in scopes.items():
        then[f"set_{scope}"] = inner
    draft.remove(then, "set")


def _multiplier(draft: Draft, then: CommentedMap) -> None:
    factor = then["backoff_multiplier"]
    if "backoff" not in then:
        if factor not in (1, 2):
            said = f"delays double: `exponential` for a factor of {factor}"
            draft.note_assumption((then, "backoff_multiplier"), said)
        draft.note_change((then, "backoff_multiplier"), "`backoff_multiplier` is `backoff`")
        draft.rename(then, "backoff_multiplier", "backoff", "fixed" if factor == 1 else "exponential")
    else:
        draft.drop(then, "backoff_multiplier", "`backoff` says how delays grow")


def set_prev(draft: Draft, step: CommentedMap) -> None:
    """Rewrites `set_prev` as a key of `iter` that the next task reads for `_prev`."""
    pipeline = step.get("tool")
    tasks = mappings(pipeline) if isinstance(pipeline, CommentedSeq) else [pipeline]
    for index, task in enumerate(tasks):
        thens = [then for then in thens_of(task) if "set_prev" in then]
        if not thens:
            continue
        going_on = [then for then in thens_of(task) if then.get("do", "continue") == "continue"]
        name = f"{task.get('name', 'task')}_prev"
        if any("set_prev" not in then for then in going_on):
            draft.note_assumption((thens[0], "set_prev"), f"where no rule sets it, `iter.{name}` stays as it was")
        for then in thens:
            draft.note_change((then, "set_prev"), f"`set_prev` is `set_iter: {{ {name}: … }}`")
            section(then, "set_iter")[name] = draft.remove(then, "set_prev")
        if index + 1 < len(tasks):
            draft.rewrite(tasks[index + 1], rename_to("_prev", f"iter.{name}"))


def task_writes(draft: Draft, task: CommentedMap) -> None:
    """Moves `set_ctx` and its like on a task into its policy."""
    for word in (*WRITES, "set"):
        if isinstance(task.get(word), CommentedMap) and word not in draft.inputs_of(kind_of(task)):
            values = draft.remove(task, word, note=f"`{word}` of a task belongs in its policy")
            for scope, inner in by_scope(values).items() if word == "set" else [(word[4:], values)]:
                write_after(draft, task, f"set_{scope}", inner)


def retries(draft: Draft) -> None:
    """Rewrites `retry` of a step, a task or its `spec` as a rule of the task's policy."""
    for step in draft.steps():
        for holder, key in _retry_holders(step):
            value = draft.remove(holder, key, note="`retry` belongs to each task's policy")
            tasks = [task for task, owner in draft.tasks() if owner is step]
            for task in tasks:
                _add_retry(draft, task, value, (holder, key))
    for task in draft.all_tasks():
        spec = mapping_at(task, "spec")
        for owner in (task, spec):
            word = next((word for word in _RETRIES if owner is not None and word in owner), None)
            if owner is None or word is None or word in draft.inputs_of(kind_of(task)) | draft.knobs_of(kind_of(task)):
                continue
            line = line_of(owner, word)
            value = draft.remove(owner, word, note=f"`{word}` is a rule of the task's policy")
            given = value if word == "retry" else to_ruamel({"max_retries": value}, line)
            _add_retry(draft, task, given, (owner, None), line)
        draft.remove_empty(task, "spec")


def _retry_holders(step: CommentedMap) -> list[tuple[CommentedMap, str]]:
    holders = (step, mapping_at(step, "spec"), mapping_at(step, "loop", "spec"))
    return [(holder, "retry") for holder in holders if holder is not None and "retry" in holder]


def _add_retry(draft: Draft, task: CommentedMap, value: Any, at: tuple[Any, Any], line: int = 0) -> None:
    """Inserts the retry rule, or one for each entry of a list, before all other rules."""
    found = [retry_rule(draft, task, one, at, line) for one in (value if isinstance(value, CommentedSeq) else [value])]
    rules = rules_of(task, line)
    for rule in reversed(found):
        if rule is not None:
            rules.insert(0, rule)
    close_rules(rules, line)


def retry_rule(draft: Draft, task: CommentedMap, value: Any, at: tuple[Any, Any], line: int) -> CommentedMap | None:
    """Makes the rule for a `retry`; ``None`` if it is switched off."""
    options = dict(value) if isinstance(value, CommentedMap) else {"attempts": value}
    inner = options.pop("then", None)
    options.update(inner if isinstance(inner, CommentedMap) else {})
    if options.get("enabled") is False or options.get("attempts") is False:
        return None
    conditions = [ERROR]
    for key in _CONDITIONS:
        condition = expression_in(options.pop(key, None))
        if condition is not None:
            conditions.append(rewrite_for_policy(condition, kind_of(task)))
    stop = expression_in(options.pop("stop_when", None))
    if stop is not None:
        conditions.append(negate(rewrite_for_policy(stop, kind_of(task))))
    if any("outcome.status" in one for one in conditions[1:]):
        del conditions[0]
    then = to_ruamel({"do": "retry"}, line)
    for key in ("enabled", "do"):
        options.pop(key, None)
    if options.get("attempts") is True:
        options["attempts"] = 3
    again = options.pop("max_retries", None)
    if again is not None:
        options.setdefault("attempts", again + 1 if type(again) is int else again)
    then.update(options)
    _shape_then(draft, then)
    for key in [key for key in then if key not in _THEN]:
        why = "a retry has no such option in a policy"
        draft.note_assumption(at, f"`{key}: {shown(then.pop(key))}` is dropped: {why}")
    rule: CommentedMap = to_ruamel({"when": template(all_of(*conditions)), "then": then}, line, block=True)
    return rule


def thens_of(task: Any) -> list[CommentedMap]:
    """The `then` of each rule of a task."""
    return [then for rule in _rules_in(task) if (then := mapping_at(rule.get("else", rule), "then")) is not None]


def _rules_in(task: Any) -> list[CommentedMap]:
    return mappings(value_at(task, "spec", "policy", "rules"))


def rules_of(task: CommentedMap, line: int = 0) -> CommentedSeq:
    """The list of a task's rules, made where it is missing."""
    policy = section(task, "spec", "policy", at=line)
    if not isinstance(policy.get("rules"), CommentedSeq):
        policy["rules"] = CommentedSeq()
        policy.fa.set_block_style()
    rules: CommentedSeq = policy["rules"]
    return rules


def close_rules(rules: CommentedSeq, line: int = 0) -> None:
    """Lets an error that no rule concerns fail the task, as it did before there were rules."""
    last = rules[-1] if rules else None
    if isinstance(last, CommentedMap) and "else" in last:
        return
    whens = [expression_in(rule.get("when")) for rule in mappings(rules) if _ends(rule)]
    if ERROR not in whens and "true" not in [str(rule.get("when")).lower() for rule in mappings(rules)]:
        rules.append(to_ruamel({"when": template(ERROR), "then": {"do": "fail"}}, line, block=True))


def _ends(rule: CommentedMap) -> bool:
    then = mapping_at(rule, "then")
    return then is not None and then.get("do") != "retry"


def write_after(draft: Draft, task: CommentedMap, word: str, values: CommentedMap, line: int = 0) -> None:
    """Sets values whenever a task has succeeded. Its own result is read as `outcome.result` there."""
    kind, name = kind_of(task), task.get("name")

    def rewrite(path: Path) -> Replaced:
        return (1, "outcome.result") if name is not None and path[0] == name else None

    draft.rewrite(values, rewrite)
    for key, value in values.items():
        if has_template(value) and (expression := expression_in(value)) is not None:
            values[key] = quote_like(value, template(rewrite_for_policy(expression, kind)))
    if not thens_of(task):
        rules_of(task, line).append(to_ruamel({"when": template(ERROR), "then": {"do": "fail"}}, line, block=True))
    rules = rules_of(task)
    for rule in mappings(rules):
        then = mapping_at(rule.get("else", rule), "then")
        goes_on = then is not None and then.get("do", "continue") in ("continue", "break", "jump")
        if then is not None and goes_on and ERROR not in str(rule.get("when")):
            section(then, word).update(deepcopy(values))
    if not any("else" in rule for rule in mappings(rules)):
        then = to_ruamel({"do": "continue", word: values}, line, block=True)
        rules.append(to_ruamel({"else": {"then": then}}, line, block=True))


def own_results(draft: Draft) -> None:
    """Rewrites a step's own result in the policy of its task: the result exists only after the policy has run."""
    for step in draft.steps() if draft.was_older else []:
        name, tasks = str(step.get("step")), list(tasks_of(step.get("tool")))
        task = next(
            (one for one in tasks if one.get("name") == draft.results.get(name, "")), tasks[-1] if tasks else None
        )
        taken = {str(one.get("name")) for one in tasks} | {str(value_at(step, "loop", "iterator"))}

        def rewrite(path: Path, name: str = name, taken: set[str] = taken) -> Replaced:
            at = 2 if path[:2] == ("steps", name) else 1
            is_own = at == 2 or (path[0] == name and name not in taken)
            return (at, "outcome.result") if is_own and path[at : at + 1] not in _NOT_RESULTS else None

        if task is not None and draft.rewrite(mapping_at(task, "spec", "policy"), rewrite):
            draft.note_assumption((task, "spec"), f"`{name}` in its own policy is this run's result: `outcome.result`")


SHAPE_RULES: Final = each(Draft.all_tasks, task_eval, task_policy)
"""These run before the rules that add to a policy."""
RULES: Final = (*each(Draft.steps, set_prev), *each(Draft.all_tasks, task_writes), retries, own_results)
