"""Rewrites the shape of steps, their pipelines and routers, and keys in the wrong place (LANGUAGE §3, §4, §6, §7)."""

from __future__ import annotations

import re
from collections import deque
from typing import Any, Final, NamedTuple

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from noetl_stream.playbook.upgrade.draft import (
    WORDS,
    Draft,
    arcs_of,
    each,
    free_name,
    line_of,
    mapping_at,
    mappings,
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
    none_of,
    template,
)
from noetl_stream.playbook.vocabulary import advice

_STEP_KEYS: Final = frozenset(
    [*advice.STEP, "step", "desc", "spec", "loop", "tool", "next", "as", "bind", "description"]
)
_PLACES: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("join", "pool", "policy", "timeout"), ("spec",)),
    **dict.fromkeys(("admit", "lifecycle", "failure"), ("spec", "policy")),
    **dict.fromkeys(("timeout_s", "deadline_s"), ("spec", "policy", "lifecycle")),
}
"""The places of keys in a step. Each may stand too far out: in the step, its `spec` or the `policy` there."""
_TASK_WORDS: Final = frozenset(
    ["script", "command", "commands", "cmd", "cmds", "params", "env", "template", "provider"]
)
"""Keys beside the kind of a step that are inputs of its task, though a step of another tool has them, too."""
_LOOP_NAMES: Final = {
    **dict.fromkeys(("collection", "items", "over"), "in"),
    **dict.fromkeys(("element", "item", "var", "as"), "iterator"),
}
_LOOP_BOUNDS: Final = dict.fromkeys(("concurrency", "max_concurrency", "max_parallel"), "max_in_flight")
_LOOP_MODES: Final = {"async": "parallel", "concurrent": "parallel", "sync": "sequential", "serial": "sequential"}
_BRANCH: Final = ("then", "else")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
_ARC_NAMES: Final = {"with": "args", "input": "args", "expr": "when", "data": "args", "to": "step"}
MAX_BRANCHES: Final = 50
"""The most branches of one ladder: each of several targets says that none before it holds."""


def step_name(draft: Draft, step: CommentedMap) -> None:
    """Renames `name` of a step to `step`, and other words for its description to `desc`."""
    if "step" not in step and "name" in step:
        draft.rename(step, "name", "step", note="a step is named by `step`")
    if "description" in step and "desc" not in step:
        draft.rename(step, "description", "desc", note="`description` of a step is `desc`")


def step_pipe(draft: Draft, step: CommentedMap) -> None:
    """Rewrites `pipe`: the pipeline is the list under `tool`."""
    for key in ("pipe", "tools"):
        if key in step and "tool" not in step:
            draft.rename(step, key, "tool", note=f"`{key}` is the list under `tool`")
    tool = step.get("tool")
    if isinstance(tool, CommentedMap) and list(tool) == ["pipe"] and isinstance(tool["pipe"], CommentedSeq):
        draft.note_change((tool, "pipe"), "the list of `pipe` stands under `tool`")
        step["tool"] = tool["pipe"]


def step_call(draft: Draft, step: CommentedMap) -> None:
    """Rewrites `call` of a step as the tool that it calls."""
    call = step.get("call")
    if not isinstance(call, CommentedMap) or "tool" in step:
        return
    draft.note_change((step, "call"), "`call` of a step is `tool`")
    if "kind" not in call and "type" not in call:
        call.insert(0, "kind", "workbook")
    draft.rename(step, "call", "tool")


def step_type(draft: Draft, step: CommentedMap) -> None:
    """Rewrites `type: http` or `tool: http` of a step, with its inputs."""
    word = next((key for key in ("type", "kind", "tool") if isinstance(step.get(key), str)), None)
    if word is None or (word != "tool" and isinstance(step.get("tool"), CommentedMap | CommentedSeq)):
        return
    kind = step[word]
    inputs = [key for key in step if _is_input(draft, key, kind)]
    draft.note_change((step, word), f"the kind and its inputs stand under `tool`: {{ kind: {kind} }}")
    draft.rename(step, word, "tool", to_ruamel({"kind": kind}, line_of(step, word), block=bool(inputs)))
    for key in inputs:
        draft.move(step, key, step["tool"])
    if kind == "workbook" and "task" not in step["tool"] and isinstance(step.get("name"), str):
        draft.move(step, "name", step["tool"], "task")


def _is_input(draft: Draft, key: str, kind: str) -> bool:
    return (
        key not in _STEP_KEYS
        or key in _TASK_WORDS
        or (key in draft.inputs_of(kind) and key not in ("args", "pool", "timeout"))
    )


def label_keyed(draft: Draft) -> None:
    """Rewrites labelled tasks of a list: `- fetch: { kind: … }`."""
    for pipeline in _pipelines(draft):
        for index, task in enumerate(pipeline):
            label = next(iter(task), None) if isinstance(task, CommentedMap) and len(task) == 1 else None
            inner = task[label] if label is not None and label not in WORDS else None
            if not isinstance(inner, CommentedMap) or not {"kind", "type", "tool"} & inner.keys():
                continue
            if inner.get("name", label) != label:
                draft.decide(pipeline, index, f"the task is called `{label}` and `{inner['name']}`: keep one name")
                continue
            draft.note_change((task, label), f"the label `{label}` is the task's `name`")
            remark = draft.comments.take(task, label)
            outer = draft.comments.take(pipeline, index)
            inner.pop("name", None)
            inner.insert(0, "name", label)
            pipeline[index] = inner
            said = draft.comments.remark_at(pipeline, index)
            said.before = [*outer.before, *remark.before, *said.before]
            draft.comments.remark_at(inner, "name").end = " ".join(filter(None, (remark.end, outer.end)))


def single_label(draft: Draft, step: CommentedMap) -> None:
    """Rewrites a labelled task without a list: `tool: { fetch: { kind: … } }`."""
    tool = step.get("tool")
    if not isinstance(tool, CommentedMap) or {"kind", "type", *WORDS} & tool.keys():
        return
    if tool and all(isinstance(inner, CommentedMap) and "kind" in inner for inner in tool.values()):
        draft.note_change((step, "tool"), "the tasks of a pipeline are a list")
        step["tool"] = CommentedSeq([to_ruamel({label: inner}, line_of(tool, label)) for label, inner in tool.items()])


def task_type(draft: Draft, task: CommentedMap) -> None:
    """Renames `type` of a task to `kind`, and takes the kind out of its `tool`."""
    if "type" in task and "kind" not in task:
        draft.rename(task, "type", "kind", note="`type` of a task is `kind`")
    tool = task.get("tool")
    if isinstance(tool, str) and "kind" not in task:
        draft.rename(task, "tool", "kind", note="`tool` of a task is `kind`")
    elif isinstance(tool, CommentedMap) and not tool.keys() & task.keys():
        draft.note_change((task, "tool"), "`name`, `kind` and the inputs stand on one level")
        draft.unpack(task, "tool", task)


def misplaced(draft: Draft, step: CommentedMap) -> None:
    """Moves keys of a step that belong under its `spec`, and those of its `spec` that belong deeper."""
    for depth in range(3):
        parent = mapping_at(step, *("spec", "policy")[:depth])
        inner = {key: path[depth:] for key, path in _PLACES.items() if parent and key in parent and path[depth:]}
        for key, path in inner.items():
            if parent and (key != "pool" or isinstance(parent[key], str)):
                draft.nest(parent, key, *path, note=f"`{key}` stands under `{'.'.join(path)}`")
    policy = mapping_at(step, "spec", "policy")
    if policy is not None and "wait" in policy and isinstance(policy.get("admit"), CommentedMap):
        draft.nest(policy, "wait", "admit", note="`wait` stands under `admit`")
    if policy is not None and "join" in policy:
        draft.move(policy, "join", step["spec"], note="`join` stands under `spec`")


def step_lease(draft: Draft, step: CommentedMap) -> None:
    """Removes `spec.lease`: every step run has a lease."""
    spec = step.get("spec")
    if isinstance(spec, CommentedMap) and "lease" in spec:
        draft.drop(spec, "lease", "a step run always has one owner, with a heartbeat", heir=(step, "spec"))
        draft.remove_empty(step, "spec")


def loop_names(draft: Draft, step: CommentedMap) -> None:
    """Rewrites `collection` and `element` of a loop, knobs beside `spec`, and items that are a bare path."""
    loop = step.get("loop")
    while isinstance(loop, CommentedMap):
        _loop_level(draft, loop)
        loop = loop.get("loop")


def _loop_level(draft: Draft, loop: CommentedMap) -> None:
    draft.rename_older(loop, _LOOP_NAMES, "`{}` of a loop is `{}`")
    spec = loop.get("spec")
    for key in [key for key in ("in", "iterator") if isinstance(spec, CommentedMap) and key in spec]:
        draft.move(spec, key, loop, note=f"`{key}` stands beside `spec`")
    if "enumerate" in loop:
        draft.remove(loop, "enumerate", heir=(loop, "in"), note="every iteration knows its `iter.index`")
    draft.rename_older(loop, _LOOP_BOUNDS, "`{}` of a loop is `{}`")
    draft.rename_older(mapping_at(loop, "spec"), _LOOP_BOUNDS, "`{}` of a loop is `{}`")
    for key in [key for key in ("mode", "max_in_flight", "exec", "policy") if key in loop]:
        draft.nest(loop, key, "spec", note=f"`{key}` of a loop stands under `spec`")
    if isinstance(spec := loop.get("spec"), CommentedMap):
        if "failure" in spec:
            draft.nest(spec, "failure", "policy", note="`failure` of a loop stands under `spec.policy`")
        if value_at(spec, "policy", "results", "preserve_order") is True and len(spec["policy"]["results"]) == 1:
            said = "the results of a loop are in its items' order"
            draft.remove(spec["policy"], "results", heir=(loop, "spec"), note=said)
            draft.remove_empty(spec, "policy")
        if (mode := _LOOP_MODES.get(str(spec.get("mode")))) is not None:
            draft.replace(spec, "mode", mode, note=f"`{spec['mode']}` is `{mode}`")
    if isinstance(items := loop.get("in"), str) and items.strip().replace(".", "").isidentifier():
        draft.replace(loop, "in", template(items.strip()), note="`in` is an expression")


def step_when(draft: Draft, step: CommentedMap) -> None:
    """Rewrites `when` and `expr` of a step as an admission rule."""
    spec = step.get("spec")
    if isinstance(spec, CommentedMap) and "when" in spec and "when" not in step:
        draft.move(spec, "when", step)
    for word in [word for word in ("when", "expr") if word in step]:
        if value_at(step, "spec", "policy", "admit") is not None:
            draft.decide(step, word, f"the step has `{word}` and `admit`: write one admission policy")
            continue
        draft.note_change((step, word), f"`{word}` of a step is a rule of `spec.policy.admit`")
        line = line_of(step, word)
        if "spec" not in step:
            step.insert(list(step).index(word), "spec", to_ruamel({}, line, block=True))
        rule = to_ruamel({"when": step[word], "then": {"allow": True}}, line, block=True)
        policy = section(step, "spec", "policy", at=line)
        policy["admit"] = to_ruamel({"rules": [rule]}, line, block=True)
        draft.remove(step, word, heir=(step, "spec"))


def admit_shapes(draft: Draft, step: CommentedMap) -> None:
    """Rewrites an admission policy that is a condition or a list, and rules without `then`."""
    policy = mapping_at(step, "spec", "policy")
    if policy is None:
        return
    admit = policy.get("admit")
    if isinstance(admit, str | bool):
        rule = to_ruamel({"when": admit, "then": {"allow": True}}, line_of(policy, "admit"), block=True)
        draft.replace(policy, "admit", {"rules": [rule]}, note="a condition of `admit` is a rule", block=True)
    elif isinstance(admit, CommentedSeq):
        draft.replace(policy, "admit", {"rules": admit}, note="the list of `admit` stands under `rules`", block=True)
    for rule in mappings(value_at(policy, "admit", "rules")):
        inner = rule.get("else", rule)
        if isinstance(inner, CommentedMap) and "allow" in inner and "then" not in inner:
            draft.note_change((inner, "allow"), "`allow` stands under `then`")
            draft.rename(inner, "allow", "then", to_ruamel({"allow": inner["allow"]}))


def step_skip(draft: Draft, step: CommentedMap) -> None:
    """Rewrites `skip` of a step: the pipeline ends at once, and its arcs are taken."""
    if "skip" not in step:
        return
    condition = step["skip"] if isinstance(step["skip"], bool) else expression_in(step["skip"])
    if condition is None or "tool" not in step:
        draft.decide(step, "skip", "write what the step does when it is skipped")
        return
    draft.note_change((step, "skip"), "`skip` is a first task that ends the pipeline")
    when = condition if isinstance(condition, bool) else template(condition)
    rules = [{"when": when, "then": {"do": "break"}}, {"else": {"then": {"do": "continue"}}}]
    first = to_ruamel({"name": "skip", "kind": "noop", "spec": {"policy": {"rules": rules}}}, line_of(step, "skip"))
    pipeline_of(draft, step).insert(0, first)
    draft.remove(step, "skip")


def task_when(draft: Draft) -> None:
    """Rewrites `when` of a task as a branch."""
    for pipeline in _pipelines(draft):
        for index, task in enumerate(pipeline):
            if not isinstance(task, CommentedMap) or "when" not in task or {"kind", "name"}.isdisjoint(task):
                continue
            draft.note_change((task, "when"), "`when` of a task is a `choose` with one branch")
            line, when = line_of(task, "when"), draft.remove(task, "when")
            choice = to_ruamel(
                {"choose": [to_ruamel({"when": when, "then": [task]}, line, block=True)]}, line, block=True
            )
            pipeline[index] = choice


def pipeline_of(draft: Draft, step: CommentedMap) -> CommentedSeq:
    """The pipeline of a step as a list, which a single task becomes under the name that it had."""
    tool = step.get("tool")
    if isinstance(tool, CommentedSeq):
        return tool
    tasks = []
    if isinstance(tool, CommentedMap):
        if "name" not in tool and not set(WORDS) & tool.keys():
            tool.insert(0, "name", f"{step.get('step')}_task")
        tool.fa.set_block_style()
        tasks = [tool]
    pipeline = CommentedSeq(tasks)
    if "tool" in step:
        step["tool"] = pipeline
    else:
        keys = list(step)
        position = keys.index("next") if "next" in keys else len(keys)
        step.insert(position, "tool", pipeline)
    return pipeline


def _pipelines(draft: Draft) -> list[CommentedSeq]:
    found = [step["tool"] for step in draft.steps() if isinstance(step.get("tool"), CommentedSeq)]
    for step in draft.steps():
        for task in tasks_of(step.get("tool")):
            pipe = task.get("pipe")
            found += [pipe] if isinstance(pipe, CommentedSeq) else []
    return found


RULES: Final = (
    *each(Draft.steps, step_pipe, step_call, step_type, step_name, single_label),
    label_keyed,
    *each(Draft.all_tasks, task_type),
    *each(Draft.steps, misplaced, step_lease, loop_names, step_when, admit_shapes),
    task_when,
)
LATER_RULES: Final = each(Draft.steps, step_skip)


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
        free = free_name(first, taken)
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

    draft.rewrite_parts(draft.root, ("workflow", "executor"), rewrite)


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


ROUTER_RULES: Final = (*each(Draft.steps, next_mode, next_shape, router_keys, arc_words, bare_step), step_identifiers)
