"""Rewrites `next` in its older shapes (LANGUAGE §7)."""

from __future__ import annotations

import re
from collections import deque
from itertools import chain, count
from typing import Any, Final, NamedTuple

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from noetl_stream.playbook.upgrade.draft import Draft, arcs_of, each, line_of, mappings, shown, to_ruamel, value_at
from noetl_stream.playbook.upgrade.expressions import Path, Replaced, expression_in, has_template, template
from noetl_stream.playbook.upgrade.rules.steps import all_of, none_of, pipeline_of

_BRANCH: Final = ("then", "else")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
_ARC_NAMES: Final = {"with": "args", "input": "args", "expr": "when", "data": "args", "to": "step"}


MAX_BRANCHES: Final = 50
"""The most branches of one ladder: each of several targets says that none before it holds."""


class GuardedTargets(NamedTuple):
    """The targets of a branch if a condition holds; ``when`` is ``None`` for every other case."""

    when: str | None
    targets: list[CommentedMap]


def next_mode(draft: Draft, step: CommentedMap) -> None:
    """Rewrites `next_mode` of a step as `next.spec.mode`."""
    spec = step.get("spec")
    for holder in (step, spec):
        if not isinstance(holder, CommentedMap) or "next_mode" not in holder:
            continue
        draft.note_change((holder, "next_mode"), "`next_mode` is `next.spec.mode`")
        mode = draft.remove(holder, "next_mode", heir=None if len(holder) > 1 else (step, "spec"))
        if "next" not in step:
            continue
        router = make_router(draft, step, is_told=True)
        if mode != "exclusive" and not isinstance(router.get("spec"), CommentedMap):
            router.insert(0, "spec", to_ruamel({"mode": mode}, line_of(step, "next")))
    draft.remove_empty(step, "spec")


def next_shape(draft: Draft, step: CommentedMap) -> None:
    """Rewrites `next` as a name, a list, or one arc."""
    after = step.get("next")
    if after in (None, "", []) and "next" in step:
        draft.remove(step, "next", note="an empty `next` is left out")
        if "tool" not in step:
            pipeline_of(draft, step).append(to_ruamel({"kind": "noop"}, line_of(step), block=True))
    elif isinstance(after, CommentedSeq) and len(after) > MAX_BRANCHES and any(map(_is_branch, after)):
        draft.decide(step, "next", f"more than {MAX_BRANCHES} branches: write the arcs")
    elif isinstance(after, CommentedSeq) and (odd := _unread(after)):
        draft.decide(step, "next", f"a branch has no {odd}: write the arcs")
    elif isinstance(after, str | CommentedSeq) or (isinstance(after, CommentedMap) and _is_arc(after)):
        make_router(draft, step)


def make_router(draft: Draft, step: CommentedMap, *, is_told: bool = False) -> CommentedMap:
    """Makes the router of a step from an older shape of `next`.

    Args:
        is_told: Whether the step says itself how many arcs are taken.
    """
    after = step["next"]
    if isinstance(after, CommentedMap) and not _is_arc(after):
        return after
    line = line_of(step, "next")
    draft.note_change((step, "next"), "`next` is a router with `arcs`")
    entries = list(after) if isinstance(after, CommentedSeq) else [after]
    is_conditional = any(isinstance(entry, CommentedMap) and {*_BRANCH, "when"} & entry.keys() for entry in entries)
    if any(map(_is_branch, entries)):
        router = ladder([_branch(entry, line) for entry in entries], line)
    else:
        arcs = CommentedSeq(arc_of(entry, line) for entry in entries)
        router = to_ruamel({"arcs": arcs}, line, block=True)
        if isinstance(after, CommentedSeq):
            for index in range(len(arcs)):
                said, now = draft.comments.take(after, index), draft.comments.remark_at(arcs, index)
                now.before, now.end = [*now.before, *said.before], now.end or said.end
        if len(entries) > 1 and not is_conditional and not is_told:
            router.insert(0, "spec", to_ruamel({"mode": "inclusive"}, line))
            draft.note_assumption((step, "next"), "all steps of the list follow: `mode: inclusive`")
    if any(not isinstance(entry, CommentedMap) or "when" not in entry for entry in entries):
        draft.note_assumption(
            (step, "next"), "an arc without `when` is for a step that went well, not for one that failed"
        )
    step["next"] = router
    return router


def _unread(entries: CommentedSeq) -> str:
    """A key of a branch that no arc has a place for, with its value; empty without any."""
    for entry in filter(_is_branch, entries):
        word = "else" if "else" in entry else "then"
        odd = [(key, entry[key]) for key in entry if key not in (word, *(["when"] if word == "then" else []))]
        inner = entry[word]
        if isinstance(inner, CommentedMap) and {"then", "next"} & inner.keys():
            odd += [(key, inner[key]) for key in inner if key not in ("then", "next")]
        if odd:
            return f"`{odd[0][0]}: {shown(odd[0][1])}`"
    return ""


def _is_branch(entry: Any) -> bool:
    return isinstance(entry, CommentedMap) and bool(set(_BRANCH) & entry.keys())


def _is_arc(after: CommentedMap) -> bool:
    return "arcs" not in after and bool({"step", *_BRANCH} & after.keys())


def arc_of(entry: Any, line: int) -> CommentedMap:
    """Makes an arc from a step's name or a mapping."""
    return entry if isinstance(entry, CommentedMap) else to_ruamel({"step": entry}, line)


def _branch(entry: Any, line: int) -> GuardedTargets:
    if not isinstance(entry, CommentedMap):
        return GuardedTargets(None, [arc_of(entry, line)])
    if "else" in entry:
        inner = entry["else"]
        inner = inner.get("then", inner) if isinstance(inner, CommentedMap) and "step" not in inner else inner
        return GuardedTargets(None, _targets(inner, line))
    when = entry.get("when")
    condition = expression_in(when) if isinstance(when, str) else None
    if "then" in entry:
        return GuardedTargets(condition, _targets(entry["then"], line))
    arc = to_ruamel({key: value for key, value in entry.items() if key != "when"}, line_of(entry) or line)
    return GuardedTargets(condition, [arc])


def _targets(value: Any, line: int) -> list[CommentedMap]:
    if isinstance(value, CommentedMap) and "next" in value:
        value = value["next"]
    return [arc_of(one, line) for one in (value if isinstance(value, CommentedSeq) else [value])]


def ladder(branches: list[GuardedTargets], line: int) -> CommentedMap:
    """Makes a router that takes the first branch whose condition holds.

    A branch with several targets needs `mode: inclusive`, in which each guard excludes the branches before.
    """
    is_exclusive = all(len(branch.targets) == 1 for branch in branches)
    arcs, earlier = CommentedSeq(), list[str]()
    for branch in branches:
        guard = branch.when or ""
        if not is_exclusive:
            guard = all_of(*filter(None, (guard, none_of(earlier))))
        for target in branch.targets:
            arcs.append(arc_with_guard(target, guard, line))
        if branch.when is not None:
            earlier.append(branch.when)
    router = {"arcs": arcs} if is_exclusive else {"spec": {"mode": "inclusive"}, "arcs": arcs}
    return to_ruamel(router, line, block=True)  # type: ignore[no-any-return]


def arc_with_guard(arc: CommentedMap, guard: str, line: int) -> CommentedMap:
    """Makes an arc with this guard; an empty guard is left out."""
    found: dict[str, Any] = {"step": arc.get("step")}
    if guard:
        found["when"] = template(guard)
    found.update({key: value for key, value in arc.items() if key not in ("step", "when")})
    return to_ruamel(found, line, block="args" in found)  # type: ignore[no-any-return]


def router_keys(draft: Draft, step: CommentedMap) -> None:
    """Moves `mode` and `policy` of a router under `spec`."""
    router = step.get("next")
    if isinstance(router, CommentedMap) and "arcs" in router and "mode" in router:
        draft.note_change((router, "mode"), "`mode` stands under `next.spec`")
        if "spec" not in router:
            router.insert(0, "spec", to_ruamel({}, line_of(router, "mode")))
        draft.move(router, "mode", router["spec"])


def arc_words(draft: Draft, step: CommentedMap) -> None:
    """Rewrites `with`, `expr` and `cond` of an arc, and arcs that are a name."""
    arcs = value_at(step, "next", "arcs")
    for index, arc in enumerate(arcs if isinstance(arcs, CommentedSeq) else ()):
        if isinstance(arc, str):
            draft.note_change((step, "next"), "an arc is a mapping with `step`")
            arcs[index] = to_ruamel({"step": arc}, line_of(arcs))
    for arc in mappings(arcs):
        if isinstance(arc.get("cond"), str) and "when" not in arc:
            guard = arc["cond"] if has_template(arc["cond"]) else to_ruamel(template(arc["cond"]))
            draft.rename(arc, "cond", "when", guard, note="`cond` of an arc is `when`")
        draft.rename_older(arc, _ARC_NAMES, "`{}` of an arc is `{}`")


def bare_step(draft: Draft, step: CommentedMap) -> None:
    """Adds a tool to a step with neither `tool` nor `next`, such as `- step: end`."""
    if "step" in step and not {"tool", "next"} & step.keys() and set(step) <= {"step", "desc", "spec"}:
        draft.note_change((step, "step"), "a step that does nothing has `tool: { kind: noop }`")
        step["tool"] = to_ruamel({"kind": "noop"}, line_of(step))


def step_identifiers(draft: Draft) -> None:
    """Renames steps whose name templates cannot read, such as paths, and leads their arcs to the new name."""
    taken, renamed = {str(step.get("step")) for step in draft.steps()}, dict[str, str]()
    for step in draft.steps():
        name = step.get("step")
        if not isinstance(name, str) or _IDENTIFIER.match(name) or has_template(name) or name in renamed:
            continue
        first = re.sub(r"^(?=\d)", "_", re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")) or "step"
        free = next(one for one in chain([first], (f"{first}_{at}" for at in count(2))) if one not in taken)
        draft.note_change((step, "step"), f"a step's name is one word: `{free}` instead of `{name}`")
        step["step"] = renamed[name] = free
        taken.add(free)
    if not renamed:
        return
    for step in draft.steps():
        for arc in [arc for arc in arcs_of(step) if str(arc.get("step")) in renamed]:
            arc["step"] = renamed[str(arc["step"])]
    spec = value_at(draft.root, "executor", "spec")
    if str(value_at(spec, "entry_step")) in renamed:
        spec["entry_step"] = renamed[str(spec["entry_step"])]

    def rewrite(path: Path) -> Replaced:
        is_read = path[0] == "steps" and path[1:2] and path[1] in renamed
        return (2, f"steps.{renamed[str(path[1])]}") if is_read else None

    for key in ("workflow", "executor"):
        draft.rewrite(draft.root.get(key), rewrite)


def fan_in(draft: Draft) -> None:
    """Joins branches that run at once where they meet: a step of the older dialects ran once for all of them."""
    steps = {str(step.get("step")): step for step in draft.steps()} if draft.was_older else {}
    for fork in steps.values():
        if value_at(fork, "next", "spec", "mode") != "inclusive":
            continue
        for name in _meetings(fork, steps):
            step = steps[name]
            if value_at(step, "spec", "join") is None:
                message = (
                    f"branches of `{fork.get('step')}` meet here: `join: all` runs the step once, after all of them"
                )
                draft.note_assumption((step, "step"), message)
                if not isinstance(step.get("spec"), CommentedMap):
                    step.insert(1, "spec", to_ruamel({}, line_of(step)))
                step["spec"]["join"] = "all"


def _meetings(fork: CommentedMap, steps: dict[str, CommentedMap]) -> list[str]:
    """The steps where branches that begin at different arcs of a step meet first, in the order of the file."""
    branch: dict[str, int] = {str(fork.get("step")): -1}
    met: set[str] = set()
    ways = deque((str(arc.get("step")), index) for index, arc in enumerate(arcs_of(fork)))
    first = {name for name, _ in ways}
    while ways:
        name, index = ways.popleft()
        if name not in branch and name in steps:
            branch[name] = index
            ways.extend((str(arc.get("step")), index) for arc in arcs_of(steps[name]))
        elif name in steps and branch[name] not in (-1, index):
            met.add(name)
    return [name for name in steps if name in met and (name not in first or _is_led_to(name, branch, steps))]


def _is_led_to(name: str, branch: dict[str, int], steps: dict[str, CommentedMap]) -> bool:
    """Whether another branch leads to a step, and not only a second arc of the fork."""
    return any(
        str(arc.get("step")) == name
        for other, index in branch.items()
        if index >= 0 and other != name
        for arc in arcs_of(steps[other])
    )


RULES: Final = (*each(Draft.steps, next_mode, next_shape, router_keys, arc_words, bare_step), step_identifiers)
