"""Reads the entries of `case`: actions, events and conditions (the dialect of `case`/`when`/`then`)."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import msgspec
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from noetl_stream.playbook.upgrade.draft import Draft, line_of, mapping_at, shown, tasks_of, to_ruamel, value_at
from noetl_stream.playbook.upgrade.expressions import (
    Path,
    Replaced,
    conjuncts,
    expression_in,
    group,
    paths_in,
    rewrite_expression,
    template,
)
from noetl_stream.playbook.upgrade.rules.steps import arc_of

Phase = Literal["enter", "call", "exit", "failed"]

ACTIONS: Final = frozenset(
    ["call", "retry", "collect", "sink", "save", "set", "result", "next", "fail", "skip", "vars"]
)
_KEYS_OF: Final = {"collect": ("from", "into", "mode"), "fail": ("message",), "skip": ("reason", "message")}
_PAGES: Final = ("continue_while", "next_page", "merge_path", "merge_strategy", "type", "max_iterations", "retry")
_MODES: Final = ("append", "extend", "replace", "set", "overwrite")
_PHASES: Final[dict[str, Phase]] = {
    **dict.fromkeys(("step.enter", "step.start", "step.started", "loop.enter"), "enter"),
    **dict.fromkeys(("call.done", "call.success", "loop.item", "loop.iteration.done", "task.done"), "call"),
    **dict.fromkeys(("step.exit", "step.done", "loop.done", "loop.exit", "worker.done"), "exit"),
    **dict.fromkeys(("step.failed", "step.error", "call.error", "call.failed", "loop.failed"), "failed"),
}
_EVENT: Final = re.compile(r"event\.(?:name|type)\s*==\s*['\"]([\w.]+)['\"]\Z")
_EVENT_BEHIND: Final = re.compile(r"['\"]([\w.]+)['\"]\s*==\s*event\.(?:name|type)\Z")
_EVENT_AMONG: Final = re.compile(r"event\.(?:name|type)\s+in\s+(?=[\[(])")
_QUOTED: Final = re.compile(r"['\"]([\w.]+)['\"]")
OF_A_CALL: Final = frozenset(["response", "error"])


class Unreadable(Exception):
    """An entry of `case` that no rule can rewrite; the message has the reason."""


class Entry(msgspec.Struct, frozen=True):
    """One entry of `case`. ``conditions`` must all hold; ``actions`` are in order; ``said`` are the comments on it."""

    phase: Phase
    conditions: list[str]
    actions: list[tuple[str, Any]]
    line: int
    said: list[str] = msgspec.field(default_factory=list)

    def all_of(self, word: str) -> list[Any]:
        """The values of every action with this word."""
        return [value for action, value in self.actions if action == word]

    @property
    def words(self) -> set[str]:
        return {word for word, _ in self.actions}

    @property
    def is_guard(self) -> bool:
        """Whether the entry decides before the step begins whether it runs, or what it sets."""
        return self.phase == "enter" and bool(self.conditions or self.words & {"skip", "fail"})

    @property
    def lost(self) -> str:
        """The reason why an action or a condition of this entry has no counterpart; empty if each has one."""
        if self.phase == "enter":
            before = self.words - {"set", "vars", "skip", "fail"}
            if before:
                return f"`{min(before)}` before the step begins: write it in the arcs to this step, or in a task before"
            if {path[0] for part in self.conditions for path in paths_in(template(part))} & OF_A_CALL:
                return "a condition on the answer before the step begins: write it in the policy of the task"
            if "skip" in self.words and ("fail" in self.words or len(self.words) > 1):
                return "`skip` beside other actions: write it alone"
        elif "skip" in self.words:
            return "`skip` after the call leaves nothing out: lead an arc around what follows"
        for word, known in _KEYS_OF.items():
            for value in self.all_of(word):
                odd = [key for key in value if key not in known] if isinstance(value, CommentedMap) else []
                if odd:
                    return f"`{word}` has no `{odd[0]}: {shown(value[odd[0]])}`"
        if not all(isinstance(value, CommentedMap) for value in self.all_of("collect")):
            return "`collect` is a mapping: { from: …, into: … }"
        if [] in self.all_of("next"):
            return "`next: []` ends the branch: leave the entry out, and exclude its condition in those after it"
        modes = [value.get("mode", "append") for value in self.all_of("collect")]
        if any(mode not in _MODES for mode in modes):
            return f"`collect` with mode {shown(modes)}: write the value in `set_ctx` or `set_iter` of a rule"
        if any(
            "from" in value and len(value) > 1 for value in self.all_of("result") if isinstance(value, CommentedMap)
        ):
            return "`result` has `from` beside other keys: write one of both"
        alone = self.words & {"retry", "fail"}
        if alone and len(self.words) > 1:
            return f"a rule that says `{min(alone)}` does nothing else: write the other actions in rules of their own"
        return ""


def pages_as_case(draft: Draft, step: CommentedMap) -> None:
    """Rewrites `loop.pagination` of a step as entries of `case` that collect the pages and ask for the next."""
    pages, line = mapping_at(step, "loop", "pagination"), line_of(step, "loop")
    follows = mapping_at(pages, "next_page")
    more = expression_in(value_at(pages, "continue_while"))
    path = str(value_at(pages, "merge_path") or "data").removeprefix("$").strip(".").removeprefix("response.")
    mode = {"append": "extend", "extend": "extend", "collect": "append", "replace": "replace"}.get(
        str(value_at(pages, "merge_strategy") or "append")
    )
    unread = set(pages or ()) - {*_PAGES}
    if pages is None or follows is None or more is None or mode is None or unread or set(step["loop"]) > {"pagination"}:
        return
    if "case" in step or not re.fullmatch(r"data(\.\w+)*", path):
        return
    if pages.get("type", "response_based") != "response_based":
        draft.drop(pages, "type", "what asks for the next page says how", heir=(step, "loop"))
    if "max_iterations" in pages:
        draft.drop(pages, "max_iterations", "an execution has a limit of task runs", heir=(step, "loop"))
    kept = draft.remove(step, "loop", note="`pagination` is a task that asks for page after page")
    task = next(tasks_of(step.get("tool")), step)
    if "retry" in pages and "retry" not in task:
        task["retry"] = kept["pagination"]["retry"]
    draft.rewrite(follows, _body)
    more = rewrite_expression(more, _body)
    collect = {"from": f"response{path.removeprefix('data')}", "into": "pages", "mode": mode}
    done = "event.name == 'call.done' and response is defined"
    entries = [
        {"when": template(f"{done} and {group(more)}"), "then": {"collect": collect, "call": follows}},
        {"when": template(done), "then": {"collect": {**collect}, "result": {"from": "pages"}}},
    ]
    step["case"] = to_ruamel([to_ruamel(entry, line, block=True) for entry in entries], line)


def _body(path: Path) -> Replaced:
    """The body of a response, formerly its key `data`."""
    return (2, "response") if path[:2] == ("response", "data") else None


def read_entry(node: Any) -> Entry:
    """Reads an entry of `case`.

    Raises:
        Unreadable: The entry is of no known shape.
    """
    if not isinstance(node, CommentedMap) or ("then" not in node and "else" not in node):
        raise Unreadable("an entry of `case` needs `when` and `then`")
    odd = [str(key) for key in node if key not in (("else",) if "else" in node else ("when", "then"))]
    if odd:
        raise Unreadable(f"an entry of `case` has no `{odd[0]}`: {shown(node[odd[0]])}")
    if "else" in node:
        inner = node["else"]
        then = inner.get("then", inner) if isinstance(inner, CommentedMap) else inner
        return Entry("exit", [], _actions(then), line_of(node, "else"))
    when = node.get("when", True)
    expression = "true" if when is True else expression_in(when)
    if expression is None:
        raise Unreadable("the `when` of this entry is not an expression")
    phase, conditions = _phase_of(expression)
    return Entry(phase, conditions, _actions(node["then"]), line_of(node))


def _phase_of(expression: str) -> tuple[Phase, list[str]]:
    phases: list[Phase] = []
    conditions: list[str] = []
    for part in conjuncts(expression):
        names = _events_in(part)
        if names is None:
            if "event.name" in part or "event.type" in part:
                raise Unreadable("the events of this entry are not a plain comparison: write them as arcs or rules")
            conditions.append(part)
        else:
            phases += [_PHASES[name] for name in names if name in _PHASES]
            if not any(name in _PHASES for name in names):
                raise Unreadable(f"there is no event `{names[0]}`")
    conditions = [part for part in conditions if part.lower() != "true"]
    if phases:
        return phases[0], conditions
    names_read = {path[0] for part in conditions for path in paths_in(template(part))}
    return ("call" if names_read & OF_A_CALL else "exit"), conditions


def _events_in(part: str) -> list[str] | None:
    found = _EVENT.match(part) or _EVENT_BEHIND.match(part)
    if found:
        return [found[1]]
    among = _EVENT_AMONG.match(part)
    return _QUOTED.findall(part[among.end() :]) if among else None


def _actions(then: Any) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for block in then if isinstance(then, CommentedSeq) else [then]:
        if not isinstance(block, CommentedMap):
            raise Unreadable("an action of `then` must be a mapping")
        for word, value in block.items():
            if word == "do" and value in ("fail", "retry", "skip"):
                found.append((str(value), {key: inner for key, inner in block.items() if key != "do"}))
                break
            if word not in ACTIONS:
                raise Unreadable(f"there is no action `{word}`")
            found.append((str(word), value))
    return found


def targets_of(value: Any, line: int) -> list[CommentedMap]:
    """The arcs of a `next` action."""
    arcs = [arc_of(one, line) for one in (value if isinstance(value, CommentedSeq) else [value])]
    for arc in arcs:
        if "with" in arc and "args" not in arc:
            arc["args"] = arc.pop("with")
    return arcs
