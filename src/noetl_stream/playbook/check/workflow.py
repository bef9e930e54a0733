"""Checks of the whole workflow: targets exist, writes are allowed, and everything has an effect (LANGUAGE §3, §5, §6,
§7, §12; formal specification §13).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import combinations, pairwise, takewhile
from typing import Final, TypeVar

from noetl_stream.playbook.check import bindings
from noetl_stream.playbook.check.bindings import Path, Visible
from noetl_stream.playbook.check.ending import check_ending, minds_absence, minds_absence_of
from noetl_stream.playbook.check.step_graph import MAX_JOINS, Arcs, arcs_of, reach, reversed_arcs
from noetl_stream.playbook.check.templates import ReadLocations, Templates
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.document import ParsedPlaybook
from noetl_stream.playbook.model.loop import READ_ONLY
from noetl_stream.playbook.model.policy import SHARED_EXAMPLE, ActionDraft, AdmitRuleDraft, PolicyDraft, always_holds
from noetl_stream.playbook.model.sections import is_null
from noetl_stream.playbook.model.step import MERGED_ARGS, ArcDraft, StepDraft
from noetl_stream.playbook.model.task import TaskDraft
from noetl_stream.playbook.model.workbook import Workbook
from noetl_stream.playbook.plan import Plan
from noetl_stream.playbook.suggestions import did_you_mean, list_names
from noetl_stream.playbook.vocabulary.hints import shown_value
from noetl_stream.playbook.vocabulary.names import is_generated, name_in_file
from noetl_stream.playbook.yaml.nodes import MappingKey, Node, Scalar, child, holds_template, texts_of

GuardedT = TypeVar("GuardedT", ActionDraft, AdmitRuleDraft, ArcDraft)

KEEP_RESULTS_OF_ERRORS: Final = frozenset({"http", "shell"})
"""The tool kinds whose failed tasks may have a result (LANGUAGE §2 *Results*)."""

_FAILED: Final = re.compile(r"\b(?:failed|error|failure|success|succeeded)\b")
_FOR_FAILURES: Final = "an arc for failures says so: when: \"{{ event.name == 'step.failed' }}\""
_MINDS_ERRORS: Final = re.compile(r"outcome\.(?:status|error)|\bdefault\b")
_ANY_ERROR: Final = re.compile(
    r"\{\{-?\s*(?:outcome\.status\s*(?:==\s*['\"]error['\"]|!=\s*['\"]ok['\"])|outcome\.error)\s*-?\}\}\Z"
)


def check_workflow(document: ParsedPlaybook, steps: list[StepDraft], problems: Problems) -> None:
    """Reports problems that involve more than one step."""
    names = [step.name for step in steps if step.name]
    known = set(names)
    runs_nothing = {step.name for step in steps if not step.tasks}
    _check_entry(document, names, problems)
    check_ending(document, steps, problems)
    pipelines = [pipeline for step in steps for pipeline in step.pipelines]
    for step in steps:
        for arc in step.arcs:
            if arc.step not in known:
                hint = did_you_mean(arc.step, names) or f"steps: {list_names(names)}"
                problems.error("unknown_step", f"unknown step `{arc.step}`", arc.target, hint)
        _warn_no_effect(step, problems)
        _warn_repeated_admission(step, problems)
        for arc in step.arcs:
            _warn_of_spec(arc, runs_nothing, problems)
        _check_in_flight(step, document, problems)
    _check_writes(pipelines, problems)
    for pipeline in pipelines:
        _check_jumps(pipeline, names, problems)
        _warn_unmatched(pipeline, problems)
        for task in pipeline.tasks:
            _warn_repeated(task, problems)
            _warn_null_on_error(task, problems)
    if not problems.has_errors:
        _warn_unreachable(document, steps, problems)
        _warn_not_joined(steps, problems)
    _check_joins(steps, problems)
    if document.workload_node is not None:
        # `workload` is never rendered (LANGUAGE §2 *What is rendered*).
        for text, _ in texts_of(document.workload_node):
            if holds_template(text):
                message = "`workload` is not rendered: the template stays as written"
                problems.warn("template_not_rendered", message, text, "put the template where the value is used")


def warn_of_dead_arcs(plan: Plan, steps: list[StepDraft], problems: Problems) -> None:
    """Warns of exclusive arcs with a repeated condition, and of arcs (but failure arcs) after one that always fires."""
    for step in steps:
        if step.router.routing == "exclusive" and not problems.has_errors:
            for arc, first in _repeated(step.arcs):
                message = f"this arc never fires: the arc on line {first.at.mark.line} has the same condition"
                problems.warn("no_effect", message, arc.at, "remove it, or write next: { spec: { mode: inclusive } }")
        certain = next((arc for arc in step.arcs if always_holds(arc.when)), None)
        if certain is None or step.router.routing == "inclusive" or problems.has_errors:
            continue
        after = step.arcs.index(certain) + 1
        message = f"this arc never fires: the arc on line {certain.at.mark.line} always does"
        hint = "to take both, write next: { spec: { mode: inclusive }, arcs: [ … ] }"
        if any(arc.when is not None for arc in step.arcs[after:]):
            hint = f"put the arc on line {certain.at.mark.line} last, or write next: {{ spec: {{ mode: inclusive }} }}"
        for arc, compiled in zip(step.arcs[after:], plan.steps[step.name].arcs[after:], strict=True):
            if not compiled.handles_failure:
                problems.warn("no_effect", message, arc.at, _FOR_FAILURES if _asks_for_failure(arc) else hint)


def _asks_for_failure(arc: ArcDraft) -> bool:
    condition = arc.when.plain() if arc.when is not None else None
    return isinstance(condition, str) and _FAILED.search(condition) is not None


_READ_OF: Final = re.compile(r"\b([A-Za-z_]\w*)\s*[.\[]")
MOST_COMPARED: Final = 10
"""The most results read by a task that are compared with each other."""


def warn_of_absent_results(
    document: ParsedPlaybook, plan: Plan, source: str, steps: list[StepDraft], problems: Problems
) -> None:
    """Warns of reads of results that are not there, in a workflow that is at one step at a time."""
    if problems.has_errors or any(step.forks for step in steps):
        return
    arcs = arcs_of(steps)
    back = reversed_arcs(arcs)
    _warn_of_later_results(plan, steps, arcs, problems)
    _warn_of_other_ways(steps, arcs, back, problems)
    if (entry := document.entry_among([step.name for step in steps])) is not None:
        _warn_of_ways_around(entry, source, steps, arcs, back, problems)


def _warn_of_later_results(plan: Plan, steps: list[StepDraft], arcs: Arcs, problems: Problems) -> None:
    """Warns of steps that read the result of a step that begins after them and never before."""
    for step in steps:
        read = (plan.steps[step.name].reads.steps or frozenset()) & arcs.keys() - {step.name}
        for other in sorted(read & reach(arcs[step.name], arcs) if read else ()):
            if step.name not in reach(arcs[other], arcs) and not minds_absence_of(step, other):
                message = f"`{step.name}` reads the result of `{other}`, which never runs before it"
                hint = f"let an arc lead from `{other}` to `{step.name}`, or write `default(…)`"
                problems.warn("absent_result", message, step.at, hint)


def _warn_of_other_ways(steps: list[StepDraft], arcs: Arcs, back: Arcs, problems: Problems) -> None:
    """Warns of tasks that read the results of two steps of which only one runs, on different ways to the same step."""
    for step in (one for one in steps if one.join is None and len(back.get(one.name, ())) > 1):
        for task in step.tasks:
            texts = [text for _, text in texts_of(task.inputs) if "{{" in text and " if " not in text]
            named = {name for text in texts for name in _READ_OF.findall(text)} & arcs.keys() - {step.name}
            read = sorted(named & reach([step.name], back) if len(named) > 1 else ())
            for one, other in combinations(read[:MOST_COMPARED], 2):
                if other in reach(arcs[one], arcs) or one in reach(arcs[other], arcs):
                    continue
                if minds_absence_of(step, one) or minds_absence_of(step, other):
                    continue
                message = (
                    f"only one of `{one}` and `{other}` runs before `{step.name}`, which reads the results of both"
                )
                hint = f"write what may be absent as `({other}.<key> | default(0))`, or one step for each way"
                problems.warn("absent_result", message, task.at, hint)


def _warn_of_ways_around(
    entry: str, source: str, steps: list[StepDraft], arcs: Arcs, back: Arcs, problems: Problems
) -> None:
    """Warns of reads of a step's result where the step does not run on one of the ways to the reader."""
    for step in (one for one in steps if one.join is None and len(set(back.get(one.name, ()))) > 1):
        if any(is_generated(task.name) for task in step.tasks) or any(rule.do in _LEAPS for rule in step.rules):
            continue  # not every task of it may run
        reads = [(scalar, name) for task in step.tasks for scalar, name in _reads_in(task) if name in arcs]
        for scalar, name in reads:
            around = {one: [to for to in targets if to != name] for one, targets in arcs.items()}
            behind = reach([name], arcs) if name not in (step.name, entry) else set(arcs)
            before = [one for one in back[step.name] if one not in behind and one in reach([entry], around)]
            if step.name in behind and before and not minds_absence(str(scalar.value)):
                message = f"`{name}` does not run on the way `{before[0]}` → `{step.name}`, and has no result there"
                hint = f"write `| default(…)` behind what is read of `{name}`, or let another step read it on that way"
                at = ReadLocations(source, scalar).find((name,))
                problems.warn("absent_result", message, at, hint)


_LEAPS: Final = frozenset(["jump", "break"])


def _reads_in(task: TaskDraft) -> Iterator[tuple[Scalar, str]]:
    """The steps of whose results the templates of a task read a key, each with its text."""
    for scalar, text in texts_of(task.inputs):
        if "{{" in text and " if " not in text and "{%" not in text:
            yield from ((scalar, name) for name in dict.fromkeys(_READ_OF.findall(text)))


def _check_entry(document: ParsedPlaybook, names: list[str], problems: Problems) -> None:
    entry, at = document.entry, document.entry_at
    if entry is not None and at is not None and entry not in names:
        problems.error("unknown_step", f"unknown step `{entry}`", at, did_you_mean(entry, names))


def _check_jumps(step: StepDraft, names: Collection[str], problems: Problems) -> None:
    tasks = [name for task in step.tasks if (name := name_in_file(task.name))]
    for rule in step.rules:
        if rule.to is not None and rule.to_node is not None and rule.do == "jump" and rule.to not in tasks:
            is_step = rule.to in names
            arc = f"{{ step: {rule.to}, when: \"{{{{ event.name == 'step.failed' }}}}\" }}"
            to_step = f"`{rule.to}` is a step: write do: fail, and in `next` the arc {arc}" if is_step else None
            hint = to_step or did_you_mean(rule.to, tasks) or f"tasks of this pipeline: {list_names(tasks)}"
            problems.error("unknown_task", f"unknown task `{rule.to}` in this pipeline", rule.to_node, hint)


def _warn_unmatched(step: StepDraft, problems: Problems) -> None:
    for task in step.tasks:
        if task.policy and _error_may_pass(task.policy):
            message = f"an error of `{task.name}` that matches no rule is ignored"
            hint = "add { when: \"{{ outcome.status == 'error' }}\", then: { do: fail } }, or on_unmatched: fail"
            problems.warn("unmatched_error", message, task.policy.at, hint)


def _warn_repeated(task: TaskDraft, problems: Problems) -> None:
    """Warns of rules with the condition of an earlier rule that does not retry: they never match."""
    for rule, first in _repeated(task.policy.rules if task.policy else ()):
        if first.do != "retry" and not problems.has_errors:
            message = f"this rule never matches: the one on line {first.at.mark.line} has the same condition"
            problems.warn("no_effect", message, rule.at, "remove it, or correct its condition")


def _warn_repeated_admission(step: StepDraft, problems: Problems) -> None:
    """Warns of rules of an admission with the condition of an earlier one, which decides in exclusive mode."""
    admit = step.admit
    for rule, first in _repeated(admit.rules if admit is not None and admit.mode == "exclusive" else ()):
        assert rule.when is not None and first.when is not None
        if not problems.has_errors:
            message = f"this rule is never taken: the one on line {first.when.mark.line} has the same condition"
            problems.warn("no_effect", message, rule.when, "remove it, or correct its condition")


def _repeated(guarded: Iterable[GuardedT]) -> Iterator[tuple[GuardedT, GuardedT]]:
    """Yields each rule or arc with the condition of an earlier one, and the first of them."""
    seen: dict[str, GuardedT] = {}
    for one in guarded:
        condition = None if one.when is None or always_holds(one.when) else one.when.plain()
        if isinstance(condition, str):
            first = seen.setdefault(" ".join(condition.split()), one)
            if first is not one:
                yield one, first


def _warn_null_on_error(task: TaskDraft, problems: Problems) -> None:
    """Warns of unconditional rules that write the result of a task, which a failed one does not have."""
    if task.policy is None or task.kind is None or task.kind.kind in KEEP_RESULTS_OF_ERRORS:
        return
    for rule in takewhile(lambda rule: not _takes_errors(rule), task.policy.rules):
        if always_holds(rule.when) and rule.do != "fail":
            for node, text in (found for value in _values_written(rule) for found in texts_of(value)):
                if "outcome.result" in text and not _MINDS_ERRORS.search(text):
                    message = f"an error of `{task.name}` comes here too, has no result, and writes null"
                    hint = "before it, add { when: \"{{ outcome.status == 'error' }}\", then: { do: fail } }"
                    problems.warn("null_on_error", message, node, hint)


def _values_written(rule: ActionDraft) -> Iterator[Node]:
    yield from (value for writes in rule.writes.values() for _, value in writes)
    yield from (one.value for one in rule.shared if one.value is not None)


def _takes_errors(rule: ActionDraft) -> bool:
    return rule.when is not None and _ANY_ERROR.match(str(rule.when.plain()).strip()) is not None


def _error_may_pass(policy: PolicyDraft) -> bool:
    is_taken = any(always_holds(rule.when) or _takes_errors(rule) for rule in policy.rules)
    return policy.on_unmatched != "fail" and policy.is_complete and not is_taken


def _warn_no_effect(step: StepDraft, problems: Problems) -> None:
    for node in _tolerated_in_vain(step):
        message = "`tolerated` has no effect: no level of a loop that it is about is best_effort"
        problems.warn("no_effect", message, node, "write failure: { mode: best_effort, tolerated: … }")
    if step.timeout_s is not None and not step.tasks:
        message = "`lifecycle.timeout_s` has no effect on a step without `tool`"
        problems.warn("no_effect", message, step.at, "remove it, or use `deadline_s`")


def _warn_of_spec(arc: ArcDraft, runs_nothing: Collection[str], problems: Problems) -> None:
    """Warns of settings of runs in an arc's ``spec`` for a step that runs nothing."""
    for word in ("priority", "partition"):
        node = child(child(arc.at, "spec"), word)
        if node is not None and not is_null(node) and arc.step in runs_nothing:
            message = f"`{word}` has no effect: step `{arc.step}` without `tool` runs nothing"
            problems.warn("no_effect", message, node, "put it on the arcs to the step that does the work")


def _tolerated_in_vain(step: StepDraft) -> Iterator[Node]:
    """Yields each ``failure.tolerated`` of levels that all stop at the first failure."""
    is_used = False
    for level in step.levels:
        is_best_effort = (level.failure.mode or step.failure.mode) == "best_effort"
        if level.failure.tolerated_at is None:
            is_used |= is_best_effort
        elif not is_best_effort:
            yield level.failure.tolerated_at
    if step.failure.tolerated_at is not None and not is_used:
        yield step.failure.tolerated_at


def _check_in_flight(step: StepDraft, document: ParsedPlaybook, problems: Problems) -> None:
    most = document.limits.max_in_flight
    for level in step.levels:
        node = level.max_in_flight
        if isinstance(node, Scalar) and isinstance(node.value, int) and node.value > most:
            message = f"`max_in_flight` is {node.value}; the limit is {most} (limits.max_in_flight)"
            problems.error("limit_exceeded", message, node, f"write {most} or less")


def _check_joins(steps: list[StepDraft], problems: Problems) -> None:
    joins = {step.name: step.join for step in steps if step.join}
    for index, join in enumerate(joins.values()):
        if index == MAX_JOINS:
            message = f"more than {MAX_JOINS} steps with `join` (max_joins)"
            problems.error("limit_exceeded", message, join.at, "move part of the workflow to another playbook")
    for arc in (arc for step in steps for arc in step.arcs if arc.step in joins):
        for name, key in arc.args.keys.items() if arc.args else ():
            if name in MERGED_ARGS:
                message = f"`{name}` is reserved for the args that the join of `{arc.step}` merges"
                problems.error("reserved_name", message, key, "use another name")


def _warn_unreachable(document: ParsedPlaybook, steps: list[StepDraft], problems: Problems) -> None:
    names = [step.name for step in steps]
    entry = document.entry_among(names)
    if entry is None or entry not in names:
        return
    reached = reach([entry], arcs_of(steps)) | {document.ending.finally_step}
    arcs = arcs_of(steps)
    led_to = {target for step in steps for target in arcs[step.name] if target != step.name}
    for before, step in pairwise(steps):
        if step.name and step.name not in reached and step.name not in led_to:
            message = f"step `{step.name}` cannot be reached from the entry step `{entry}`: no arc leads to it"
            hint = f"steps follow arcs, not their order: in step `{before.name}`, write "
            more = f"add {{ step: {step.name} }} to its arcs" if before.arcs else ""
            skipped = [one.step for one in before.arcs if one.when is None and one.step in arcs[step.name]]
            if skipped and before.router.routing != "inclusive":
                more = f"write {{ step: {step.name} }} in place of {{ step: {skipped[0]} }}"
            arc = f"next: {{ arcs: [ {{ step: {step.name} }} ] }}"
            hint = hint.removesuffix("write ") + more if more else hint + arc
            problems.warn("unreachable_step", message, step.at, hint)
        elif step.name and step.name not in reached:
            message = f"step `{step.name}` cannot be reached from the entry step `{entry}`"
            problems.warn("unreachable_step", message, step.at, "add an arc, or remove the step")


def _warn_not_joined(steps: list[StepDraft], problems: Problems) -> None:
    """Warns of steps that run once for each of two branches which always begin together."""
    arcs = arcs_of(steps)
    for step in (one for one in steps if one.router.routing == "inclusive"):
        sure = list(dict.fromkeys(arc.step for arc in step.arcs if always_holds(arc.when) and arc.step in arcs))
        reached = {branch: reach([branch], arcs) for branch in sure} if len(sure) > 1 else {}
        for other in (one for one in steps if reached and not one.join and one.name not in sure):
            before = [name for name, targets in arcs.items() if other.name in targets and name != step.name]
            sides = [[branch for branch in sure if name in reached[branch]] for name in before]
            alone = list(dict.fromkeys(side[0] for side in sides if len(side) == 1))
            if len(alone) > 1:
                message = f"`{other.name}` runs once for each branch of `{step.name}`: {list_names(alone)} lead to it"
                hint = "to run it once, after all of them, write spec: { join: all } in it"
                problems.warn("not_joined", message, other.at, hint)


def _check_writes(steps: list[StepDraft], problems: Problems) -> None:
    """Reports keys of ``ctx`` and ``iter`` that rules must not write."""
    writers = keys_set(steps)
    for step in steps:
        _check_read_only(step, problems)
        _check_parallel(step, problems)
        _check_both_ways(step, writers, problems)


def _check_read_only(step: StepDraft, problems: Problems) -> None:
    read_only = READ_ONLY | {level.iterator for level in step.levels}
    for key in _keys_written(step, "iter") if step.levels else ():
        if key.name in read_only:
            problems.error("read_only", f"`iter.{key.name}` is set by the loop", key, "use another name")


def _check_parallel(step: StepDraft, problems: Problems) -> None:
    parallel = next((level for level in step.levels if level.mode == "parallel"), None)
    if parallel is None:
        return
    where = "a parallel loop" if parallel is step.loop else "a loop with a parallel level"
    overwrite = f"in {where}: iterations would overwrite each other"
    for key in _keys_written(step, "ctx"):
        message = f"`set_ctx` of `{key.name}` {overwrite}"
        value = next((node for rule in step.rules for one, node in rule.writes.get("ctx", ()) if one is key), None)
        shown = "…" if value is None else shown_value(value.plain())
        op = "add" if value is not None and isinstance(value.plain(), int | float) else "append"
        shared = f"set_shared: {{ {key.name}: {{ op: {op}, value: {shown} }} }}"
        hint = f"in place of set_ctx, write {shared}, or set_iter for a value per iteration"
        problems.error("set_ctx_in_parallel_loop", message, key, hint)
    for key in _keys_written(step, "vars"):
        message = f"`set_vars` of `{key.name}` {overwrite}"
        hint = f"use set_iter, or share it in ctx with set_shared: {{ {key.name}: {SHARED_EXAMPLE} }}"
        problems.error("set_vars_in_parallel_loop", message, key, hint)


Writers = Mapping[str, Mapping[str, MappingKey]]
"""The keys of ``ctx`` that rules set, by name and step, in file order."""


def keys_set(steps: Iterable[StepDraft]) -> Writers:
    """The keys of ``ctx`` that rules set."""
    writers: dict[str, dict[str, MappingKey]] = {}
    for step in steps:
        for key in _keys_written(step, "ctx"):
            writers.setdefault(key.name, {}).setdefault(step.name, key)
    return writers


def _check_both_ways(step: StepDraft, writers: Writers, problems: Problems) -> None:
    """Reports a key that has reducers and is also set: its value would depend on the order."""
    for key in (shared.key for rule in step.rules for shared in rule.shared):
        if key.name in writers:
            line = next(iter(writers[key.name].values())).mark.line
            message = f"`{key.name}` is set with `set_shared` here and with `set_ctx` on line {line}"
            problems.error("conflicting_keys", message, key, "rename one, or use set_shared in both places")


def _keys_written(step: StepDraft, namespace: str) -> Iterator[MappingKey]:
    return (key for rule in step.rules for key, _ in rule.writes.get(namespace, ()))


class _AnyName(Mapping[str, Path]):
    """Bindings that accept every bare name."""

    def __getitem__(self, name: str) -> Path:
        return ("workload", name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _visible(namespaces: frozenset[str]) -> Visible:
    return Visible(namespaces, bindings=_AnyName(), shadowed={}, elsewhere={})


_INPUTS: Final = _visible(bindings.INPUTS)
_POLICY: Final = _visible(bindings.POLICY)


def check_unused(workbook: Workbook, templates: Templates, problems: Problems) -> None:
    """Warns of workbook entries that no task runs, and reports problems in their templates.

    No step binds their bare names, so any name is accepted.
    """
    for name, entry in workbook.unused_entries().items():
        problems.warn("unused_entry", f"no task runs workbook entry `{name}`", entry.at, "remove it")
        if entry.draft is not None:
            templates.template(entry.draft.inputs, _INPUTS)
            _check_policy(entry.draft.policy, templates)


def _check_policy(policy: PolicyDraft | None, templates: Templates) -> None:
    for rule in policy.rules if policy else ():
        if rule.when is not None:
            templates.guard(rule.when, _POLICY)
        written = [value for writes in rule.writes.values() for _, value in writes]
        for node in (rule.delay, *written, *(shared.value for shared in rule.shared)):
            if node is not None:
                templates.template(node, _POLICY)
