"""Rewrites `case`: a task's policy for entries about a call, arcs for entries about the end (LANGUAGE §5, §7).

A step of that dialect has one tool. Its pipeline becomes: a first task that sets what the step begins with, the tool
with a rule for each entry about its calls, a task for each sink, and one that returns the step's result.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

import msgspec
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from noetl_stream.playbook.model.loop import READ_ONLY
from noetl_stream.playbook.upgrade.draft import (
    Draft,
    by_scope,
    each,
    kind_of,
    line_of,
    quote_like,
    section,
    shown,
    tasks_of,
    texts_in,
    to_ruamel,
    value_at,
)
from noetl_stream.playbook.upgrade.expressions import (
    Path,
    Replaced,
    all_of,
    expression_in,
    group,
    has_template,
    paths_in,
    template,
)
from noetl_stream.playbook.upgrade.rules.case_entries import (
    OF_A_CALL,
    Entry,
    Unreadable,
    pages_as_case,
    read_entry,
    targets_of,
)
from noetl_stream.playbook.upgrade.rules.policies import ERROR, close_rules, retry_rule, rules_of
from noetl_stream.playbook.upgrade.rules.reads import rewrite_for_arc, rewrite_for_policy
from noetl_stream.playbook.upgrade.rules.steps import MAX_BRANCHES, GuardedTargets, ladder, make_router, pipeline_of
from noetl_stream.playbook.upgrade.rules.tasks import reads_result, result_task, sink_task


def task_case(draft: Draft, step: CommentedMap) -> None:
    """Moves `case` of a step's only task to the step."""
    tasks = list(tasks_of(step.get("tool")))
    for task in tasks:
        if "case" in task and "case" not in step:
            if len(tasks) == 1:
                draft.move(task, "case", step, note="`case` of the only task is that of the step")
            else:
                draft.decide(task, "case", "write rules in the policies of the tasks")


def step_case(draft: Draft, step: CommentedMap) -> None:
    """Rewrites `case` of a step."""
    case = step.get("case")
    if not isinstance(case, CommentedSeq):
        return
    entries: list[Entry] = []
    for index, node in enumerate(case):
        try:
            entry = read_entry(node)
        except Unreadable as error:
            draft.decide(case, index, str(error))
            continue
        if entry.lost:
            draft.decide(case, index, entry.lost)
            continue
        entry.said.extend(filter(None, draft.comments.remark_at(case, index).before))
        entries.append(entry)
    problem = _refusal(step, entries) if len(entries) == len(case) else None
    if problem is not None:
        draft.decide(step, "case", problem)
    elif len(entries) == len(case):
        draft.note_change((step, "case"), "`case` is policy rules for each call, and arcs for the end")
        _Lowering(draft, step, entries).run()


def _refusal(step: CommentedMap, entries: list[Entry]) -> str | None:
    """The reason why entries of `case` cannot be rewritten; ``None`` if they can."""
    if len(entries) > MAX_BRANCHES:
        return f"more than {MAX_BRANCHES} entries: write the rules and the arcs"
    is_parallel = value_at(step, "loop", "spec", "mode") == "parallel"
    words = set().union(*(entry.words for entry in entries)) if entries else set()
    if is_parallel and words & {"collect", "set"}:
        return "iterations at once cannot write one list: write `set_shared` in the policy of the task"
    if "tool" not in step and words - {"next", "set"}:
        return "a step without `tool` only routes: write these actions in a task"
    if step.get("loop") is not None and any(
        entry.phase == "exit" and entry.words & {"sink", "save", "set", "collect"} for entry in entries
    ):
        return "what follows the whole loop is a step of its own: move these actions to one after it"
    guards = [entry for entry in entries if entry.is_guard]
    if guards and step.get("loop") is not None:
        return "a condition before a loop: write it on the arcs to this step, or in `spec.policy.admit`"
    if sum(len(entry.all_of("result")) for entry in entries) > 1:
        return "more than one entry returns a result: write them in one task, with a condition"
    if len(list(tasks_of(step.get("tool")))) > 1 and words - {"next", "set"}:
        return "which task these actions are about: write them in its policy"
    return None


class _Lowering(msgspec.Struct):
    """Rewrites the `case` of one step.

    Attributes:
        scopes: The scopes of the names that the entries set: `ctx` if other steps read them, else `vars`.
        begin: The values that are set before the first call, by scope.
        inputs: The keys of `iter` that hold inputs which further calls change, by their places in the task.
    """

    draft: Draft
    step: CommentedMap
    entries: list[Entry]
    scopes: dict[str, str] = msgspec.field(default_factory=dict)
    begin: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    inputs: dict[tuple[str, ...], str] = msgspec.field(default_factory=dict)
    sinks: list[CommentedMap] = msgspec.field(default_factory=list)

    def run(self) -> None:
        name = str(self.step.get("step"))
        line = line_of(self.step, "case")
        self._find_scopes()
        self.draft.remove(self.step, "case")
        if "tool" not in self.step and any("set" in entry.words for entry in self.entries):
            self.step.insert(list(self.step).index("step") + 1, "tool", to_ruamel({"kind": "noop"}, line, block=True))
        task = next(iter(tasks_of(self.step.get("tool"))), None)
        returned: Any = None
        if task is not None:
            self._fill_begin(task)
            returned = self._result()
            self._add_rules(task, returned is not None, line)
            if self.begin or self.sinks or returned is not None or any(entry.is_guard for entry in self.entries):
                self._add_tasks(task, returned, name, line)
        self._route(task, line)
        self.draft.rewrite_parts(self.step, ("tool", "loop", "next"), self._state)

    # --- names --------------------------------------------------------------------------------------------------------

    def _find_scopes(self) -> None:
        names = {str(value.get("into")) for entry in self.entries for value in entry.all_of("collect")}
        for values in self._sets(self.entries):
            names |= set(map(str, values))
        others = [step for step in self.draft.steps() if step is not self.step]
        for name in sorted(names):
            is_read = any(_reads(other, name) for other in others) and not _passes(self.entries, name)
            self.scopes[name] = "ctx" if is_read else "vars"

    def _sets(self, entries: list[Entry]) -> list[CommentedMap]:
        found = [value for entry in entries for word in ("set", "vars") for value in entry.all_of(word)]
        return [inner for value in found if isinstance(value, CommentedMap) for inner in by_scope(value).values()]

    def _state(self, path: Path) -> Replaced:
        at = 1 if path[0] in ("ctx", "context") else 0
        name = path[at] if at < len(path) else None
        if name not in self.scopes:
            return None
        return at + 1, f"{self.scopes[str(name)]}.{name}"

    def _write(self, into: dict[str, dict[str, Any]], name: str, value: Any) -> None:
        into.setdefault(f"set_{self.scopes[name]}", {})[name] = value

    # --- the pipeline -------------------------------------------------------------------------------------------------

    def _fill_begin(self, task: CommentedMap) -> None:
        for values in self._sets([entry for entry in self.entries if entry.phase == "enter" and not entry.is_guard]):
            for name, value in values.items():
                self._write(self.begin, str(name), value)
        changed = [path for path, value in self._inputs_of_calls() if value != value_at(task, *path)]
        taken = {*READ_ONLY, str(value_at(self.step, "loop", "iterator"))}
        for path in dict.fromkeys(changed):
            is_plain = path[-1] not in taken and all(other[-1] != path[-1] for other in changed if other != path)
            self.inputs[path] = name = path[-1] if is_plain else "_".join(("next", *path))
            holder = section(task, *path[:-1])
            self.begin.setdefault("set_iter", {})[name] = holder.get(path[-1])
            holder[path[-1]] = to_ruamel(template(f"iter.{name}"))

    def _inputs_of_calls(self) -> list[tuple[tuple[str, ...], Any]]:
        return [leaf for entry in self.entries for call in entry.all_of("call") for leaf in _leaves(call)]

    def _result(self) -> Any:
        found = [value for entry in self.entries for value in entry.all_of("result")]
        if not found:
            return None
        if "loop" in self.step:
            message = "the result of a loop is the list of the results of its iterations"
            self.draft.note_assumption((self.step, "step"), f"{message}; `result` was {shown(found[0])}")
            return None
        value = found[0]
        if isinstance(value, CommentedMap) and "from" in value:
            value = value["from"]
            return value if has_template(value) else template(str(value))
        return value

    def _add_rules(self, task: CommentedMap, has_result: bool, line: int) -> None:
        name = str(task.get("name") or f"{self.step.get('step')}_task")
        rules = CommentedSeq()
        for entry in self.entries:
            for rule in self._rules_of(entry, task, name, has_result) if entry.phase != "enter" else []:
                same = next((one for one in rules if one.get("when") == rule.get("when")), None)
                if same is None or same["then"].get("do") == "retry":
                    rules.append(rule)
                    self.draft.comments.remark_at(rules, len(rules) - 1).before += entry.said
                elif not self._merge(same["then"], rule["then"]):
                    message = f"the entry of line {entry.line} acts as well as the one before with its condition"
                    self.draft.decide(self.step, "step", f"{message}: write both in one rule")
        if len(rules) > 1:
            said = "the first rule that matches decides; `case` ran each that matched"
            self.draft.note_assumption((self.step, "step"), said)
        if not rules:
            return
        own = rules_of(task, line)
        for position, rule in enumerate(rules):
            own.insert(position, rule)
        close_rules(own, line)
        if (self.sinks or has_result) and not any("else" in rule for rule in own):
            own.append(to_ruamel({"else": {"then": {"do": "break"}}}, line, block=True))

    def _merge(self, into: CommentedMap, other: CommentedMap) -> bool:
        """Merges the writes of a rule into one with its condition. Returns whether they go together."""
        others = {key: value for key, value in other.items() if key != "do"}
        if other.get("do") != "break" or into.get("do") == "fail":
            return False
        if any(into.get(key, {}).keys() & values.keys() for key, values in others.items()):
            return False
        for key, values in others.items():
            section(into, key).update(values)
        return True

    def _rules_of(self, entry: Entry, task: CommentedMap, name: str, has_result: bool) -> list[Any]:
        if not entry.words - {"next"}:
            return []
        kind = kind_of(task)
        conditions = [rewrite_for_policy(part, kind) for part in entry.conditions]
        if entry.phase == "failed":
            conditions.insert(0, ERROR)
        elif not any("outcome.status" in part for part in conditions) and not entry.words & {"retry", "fail"}:
            conditions.insert(0, "outcome.status == 'ok'")
        when = template(all_of(*conditions)) if conditions else True
        for options in entry.all_of("retry"):
            rule = retry_rule(self.draft, task, options, (self.step, "step"), entry.line)
            if rule is not None and conditions:
                rule["when"] = to_ruamel(when)
            return [] if rule is None else [rule]
        for given in entry.all_of("fail"):
            self._say_message(given)
            return [self._rule(when, {"do": "fail"}, entry.line)]
        writes = self._writes(entry, kind)
        final: dict[str, Any] = {"do": "break"}
        if "call" in entry.words:
            final = {"do": "jump", "to": name}
        elif "result" in entry.words and has_result:
            final = {"do": "jump", "to": f"{self.step.get('step')}_result"}
        sinks = self._sinks_of(entry, name, kind, final)
        if sinks:
            final = {"do": "jump", "to": sinks[0]["name"]}
        return [self._rule(when, {**final, **writes}, entry.line)]

    def _rule(self, when: Any, then: dict[str, Any], line: int) -> CommentedMap:
        rule = {"else": {"then": then}} if when is True and "fail" not in then else {"when": when, "then": then}
        return to_ruamel(rule, line, block=True)  # type: ignore[no-any-return]

    def _writes(self, entry: Entry, kind: str) -> dict[str, dict[str, Any]]:
        writes: dict[str, dict[str, Any]] = {}
        for collect in entry.all_of("collect"):
            name, given = str(collect.get("into")), str(collect.get("from", "response"))
            source = rewrite_for_policy(expression_in(given) or given, kind)
            so_far = f"({self.scopes[name]}.{name} | default([]))"
            mode = collect.get("mode", "append")
            value = {"append": f"{so_far} + [{source}]", "extend": f"{so_far} + {group(source)}"}.get(mode, source)
            self._write(writes, name, template(value))
        for values in self._sets([entry]):
            for key, value in values.items():
                self._write(writes, str(key), _value_in_policy(value, kind))
        for call in entry.all_of("call"):
            for path, value in _leaves(call):
                if path in self.inputs:
                    writes.setdefault("set_iter", {})[self.inputs[path]] = _value_in_policy(value, kind)
        return writes

    def _sinks_of(self, entry: Entry, name: str, kind: str, final: dict[str, Any]) -> list[CommentedMap]:
        found: list[CommentedMap] = []
        for value in [*entry.all_of("sink"), *entry.all_of("save")]:
            number = len(self.sinks) + len(found) + 1
            label = f"{self.step.get('step')}_sink" + (f"_{number}" if number > 1 else "")
            task = sink_task(value, label, entry.line)
            if task is None:
                self.draft.decide(self.step, "step", "write a task that stores what `sink` stored: kind, auth, command")
                continue
            reads_result(self.draft, task, name, kind)
            found.append(task)
        for position, task in enumerate(found):
            then = final if position + 1 == len(found) else {"do": "jump", "to": found[position + 1]["name"]}
            rules = rules_of(task, entry.line)
            rules.append(to_ruamel({"when": template(ERROR), "then": {"do": "fail"}}, entry.line, block=True))
            rules.append(to_ruamel({"else": {"then": then}}, entry.line, block=True))
        self.sinks += found
        return found

    def _add_tasks(self, task: CommentedMap, returned: Any, name: str, line: int) -> None:
        pipeline = pipeline_of(self.draft, self.step)
        first = [self._begin_task(line)] if self.begin else []
        first += [self._guard_task(entry, number) for number, entry in enumerate(self._guards(), start=1)]
        for position, added in enumerate(first):
            pipeline.insert(position, added)
        for sink in self.sinks:
            pipeline.append(sink)
        if returned is not None:
            kind, main = kind_of(task), str(task.get("name"))
            last = result_task(returned, line, f"{name}_result")
            reads_result(self.draft, last, main, kind)
            pipeline.append(last)
        elif self.sinks and "loop" not in self.step:
            self.draft.results[name] = str(task.get("name"))

    def _begin_task(self, line: int) -> CommentedMap:
        """The first task. Values for the whole step are set by the first iteration only."""
        each = {word: values for word, values in self.begin.items() if word == "set_iter"}
        rules: list[Any] = []
        if "loop" in self.step and len(each) < len(self.begin):
            rules.append({"when": "{{ iter.index == 0 }}", "then": {"do": "continue", **self.begin}})
            rules.append({"else": {"then": {"do": "continue", **deepcopy(each)}}})
        else:
            rules.append({"else": {"then": {"do": "continue", **self.begin}}})
        begin = {"name": "begin", "kind": "noop", "spec": {"policy": {"rules": rules}}}
        return to_ruamel(begin, line, block=True)  # type: ignore[no-any-return]

    def _guards(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.is_guard and entry.all_of("skip") != [False]]

    def _guard_task(self, entry: Entry, number: int) -> CommentedMap:
        """A task before the tool for an entry that leaves it out, fails, or sets values on a condition."""
        writes = self._writes(entry, "noop")
        do = "break" if "skip" in entry.words else "fail" if "fail" in entry.words else "continue"
        for said in (*entry.all_of("skip"), *entry.all_of("fail")):
            self._say_message(said)
        if do == "break":
            message = "a step that is skipped ends well with the result {}, and its arcs are taken"
            self.draft.note_assumption((self.step, "step"), message)
        when: Any = template(all_of(*entry.conditions)) if entry.conditions else True
        rules: list[Any] = [{"when": when, "then": {"do": do, **writes}}]
        if entry.conditions:
            rules.append({"else": {"then": {"do": "continue"}}})
        name = "enter" if number == 1 else f"enter_{number}"
        task = {"name": name, "kind": "noop", "spec": {"policy": {"rules": rules}}}
        return to_ruamel(task, entry.line, block=True)  # type: ignore[no-any-return]

    def _say_message(self, given: Any) -> None:
        message = next(iter(given.values()), None) if isinstance(given, dict) else given
        if isinstance(message, str):
            said = f"a rule that ends a step has no message of its own; it was: {message}"
            self.draft.note_assumption((self.step, "step"), said)

    # --- the arcs -----------------------------------------------------------------------------------------------------

    def _route(self, task: CommentedMap | None, line: int) -> None:
        kind = kind_of(task)
        result = "event.result"
        if task is not None and (self.sinks or any("result" in entry.words for entry in self.entries)):
            result = f"steps.{self.step.get('step')}.results.{task.get('name')}"
        branches: list[GuardedTargets] = []
        said: list[list[str]] = []
        for entry in self.entries:
            for value in entry.all_of("next"):
                targets = targets_of(value, entry.line)
                for target in targets:
                    self._rewrite_target(target, kind, result)
                branches.append(GuardedTargets(self._guard(entry, kind, result), targets))
                said.append([] if task is not None and entry.words - {"next"} else entry.said)
        if not branches:
            return
        if task is not None and any(
            branch.when is None and entry.phase == "exit"
            for branch, entry in zip(branches, [one for one in self.entries if one.all_of("next")], strict=False)
        ):
            message = "an arc without `when` is for a step that went well, not for one that failed"
            self.draft.note_assumption((self.step, "step"), message)
        if self.step.get("next"):
            router = make_router(self.draft, self.step)
            arcs = [arc for arc in router.get("arcs") or () if isinstance(arc, CommentedMap)]
            if all("when" not in arc for arc in arcs):
                branches.append(GuardedTargets(None, arcs))
            else:
                branches += [GuardedTargets(expression_in(arc.get("when")), [arc]) for arc in arcs]
            self.draft.remove(self.step, "next")
        router = ladder(branches, line)
        first = 0
        for branch, comments in zip(branches, said, strict=False):
            self.draft.comments.remark_at(router["arcs"], first).before += comments
            first += len(branch.targets)
        self.step["next"] = router

    def _guard(self, entry: Entry, kind: str, result: str) -> str | None:
        conditions = entry.conditions
        if "loop" in self.step and entry.phase == "call":
            kept = [part for part in conditions if not {path[0] for path in paths_in(template(part))} & OF_A_CALL]
            if len(kept) < len(conditions):
                said = "the arc is taken when the loop is done, not at one of its calls"
                self.draft.note_assumption((self.step, "step"), said)
            conditions = kept
        guards = [rewrite_for_arc(part, kind, result) for part in conditions]
        if any(result in guard for guard in guards):
            guards.insert(0, self._ran(result))
        if entry.phase == "failed":
            guards.insert(0, "event.name == 'step.failed'")
        return all_of(*guards) or None

    def _ran(self, result: str) -> str:
        """The condition that the step was not skipped, so that a result exists; empty if it cannot be skipped."""
        if not any("skip" in entry.words for entry in self._guards()):
            return ""
        return f"{result} != {{}}" if result == "event.result" else f"{result} is defined"

    def _rewrite_target(self, target: CommentedMap, kind: str, result: str) -> None:
        args = target.get("args")
        for key, value in args.items() if isinstance(args, CommentedMap) else ():
            expression = expression_in(value)
            if expression is not None:
                text = rewrite_for_arc(expression, kind, result)
                ran = self._ran(result) if result in text else ""
                args[key] = quote_like(value, template(f"{text} if {ran} else none" if ran else text))


def _value_in_policy(value: Any, kind: str) -> Any:
    expression = expression_in(value)
    return value if expression is None else template(rewrite_for_policy(expression, kind))


def _leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if not isinstance(value, CommentedMap):
        return [(path, value)] if path else []
    return [leaf for key, inner in value.items() for leaf in _leaves(inner, (*path, str(key)))]


def _reads(step: CommentedMap, name: str) -> bool:
    """Whether a step reads a name, bare or in `ctx`."""
    paths = (path for text in texts_in(step) for path in paths_in(text))
    return any(path[0] == name or path[:2] in (("ctx", name), ("context", name)) for path in paths)


def _passes(entries: list[Entry], name: str) -> bool:
    """Whether a `next` passes a name as an arg, which the target then reads."""
    arcs = [arc for entry in entries for value in entry.all_of("next") for arc in targets_of(value, entry.line)]
    return any(isinstance(arc.get("args"), CommentedMap) and name in arc["args"] for arc in arcs)


RULES: Final = each(Draft.steps, pages_as_case, task_case, step_case)
