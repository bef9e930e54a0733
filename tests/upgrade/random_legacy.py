"""Random playbooks of the older dialects, each with what it means: the work it does, and how it ends.

A playbook is drawn as a :class:`Story`, which :func:`meant` interprets as the older dialect does, and which
:func:`written` spells in one of that dialect's ways. Nothing of the converter is used for either.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ruamel.yaml import YAML

from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.tools.contract import ToolCall, ToolFailure, ToolResult
from noetl_stream.tools.inputs import Inputs, Knobs, validated

KEYS = ("x", "y")


class WorkInputs(Inputs):
    """Inputs of ``work``: what it returns as ``n``, and how many attempts fail before."""

    value: int
    failures: int = 0


class Worker:
    """Kind ``work``: writes down what it did."""

    spec = KindSpec("work", WorkInputs, Knobs)

    def __init__(self) -> None:
        self.did: list[tuple[str, int]] = []

    async def run(self, call: ToolCall) -> ToolResult:
        """Returns ``{n}``.

        Raises:
            ToolFailure: ``exception``, in the attempts that fail.
        """
        inputs = validated(WorkInputs, call.inputs)
        if call.attempt <= inputs.failures:
            raise ToolFailure.of("exception", "not yet")
        self.did.append((call.step, inputs.value))
        return ToolResult({"n": inputs.value})

    async def close(self) -> None:
        """Holds nothing."""


@dataclass(slots=True)
class Way:
    """Where it goes on: if the result is over ``above``, or always."""

    target: str
    above: int | None = None


@dataclass(slots=True)
class Events:
    """What entries of `case` do at `step.enter`, after the call and at `step.exit`.

    Attributes:
        begun: What is set when the step begins, which later chapters add to their value.
        guard: What is done then if the condition holds: `skip` or `fail`.
        is_guarded: Whether the condition holds.
        stops_above: The result above which the step fails after its call.
        tells: Whether the step's result is the number alone.
        hears: The chapter whose result is added.
    """

    begun: int | None = None
    guard: str = ""
    is_guarded: bool = False
    stops_above: int | None = None
    tells: bool = False
    hears: str = ""

    @property
    def are_any(self) -> bool:
        return self != Events()


@dataclass(slots=True)
class Chapter:
    """A step: what it works on, how often that fails, what it remembers, and where it goes on."""

    name: str
    value: int
    reads: str | None = None
    items: list[int] | None = None
    failures: int = 0
    attempts: int = 0
    remembers: str | None = None
    is_open: bool | None = None
    events: Events = field(default_factory=lambda: Events())
    ways: list[Way] = field(default_factory=list)
    otherwise: list[str] = field(default_factory=list)
    rescue: str | None = None


@dataclass(slots=True)
class Story:
    """A playbook; its chapters are in an order in which every way leads forward."""

    chapters: list[Chapter]


@dataclass(slots=True)
class Meaning:
    """What happens: the work in some order, and how it ends."""

    status: str
    did: list[tuple[str, int]]


def draw(random: Random) -> Story:
    """A story of two to six chapters."""
    names = [f"step_{letter}" for letter in "abcdef"[: random.randint(2, 6)]]
    chapters = [_chapter(random, name, names[at + 1 :]) for at, name in enumerate(names)]
    chapters[0].is_open = True
    if random.random() < 0.5:
        for at, chapter in enumerate(chapters):
            _events(random, chapter, chapters[:at])
    forked = [name for chapter in chapters if len(chapter.otherwise) > 1 for name in chapter.otherwise]
    for chapter in chapters:
        if len(chapter.otherwise) > 1:  # what runs at once remembers nothing and fails never; it meets or goes nowhere
            meeting = [name for name in names[names.index(max(chapter.otherwise)) + 1 :] if name not in forked][:1]
            is_only = all(forked.count(name) == 1 for name in chapter.otherwise)
            for one in chapters:
                if one.name in chapter.otherwise:
                    one.remembers, one.failures, one.ways, one.rescue = None, 0, [], None
                    one.otherwise = list(meeting) if is_only else []
                    one.events = Events()
    return Story(chapters)


def _chapter(random: Random, name: str, later: list[str]) -> Chapter:
    chapter = Chapter(name, random.randint(0, 9))
    chapter.reads = random.choice([None, *KEYS])
    if random.random() < 0.25:
        chapter.items = [random.randint(0, 9) for _ in range(random.randint(0, 3))]
    else:
        chapter.remembers = random.choice([None, *KEYS])
    chapter.attempts = random.choice([0, 2, 3, 3])
    chapter.failures = random.choice([0, 0, 0, 0, 1, 1, 2])
    chapter.is_open = random.choice([None, None, None, True, True, False])
    if later and chapter.items is None and random.random() < 0.6:
        chapter.ways = [Way(random.choice(later), random.randint(0, 12)) for _ in range(random.randint(1, 2))]
    if later and random.random() < 0.9:
        several = not chapter.ways and len(later) > 1 and random.random() < 0.25
        chapter.otherwise = random.sample(later, 2) if several else [random.choice(later)]
    if later and random.random() < 0.2:
        chapter.rescue = random.choice(later)
    return chapter


def _events(random: Random, chapter: Chapter, before: list[Chapter]) -> None:
    events = chapter.events
    if chapter.items is None:
        events.begun = random.choice([None, None, random.randint(1, 9)])
        events.guard = random.choice(["", "", "skip", "fail"])
        events.is_guarded = random.random() < 0.3
        events.tells = chapter.remembers is None and random.random() < 0.4
        if random.random() < 0.3:
            events.stops_above = random.randint(0, 15)
    told = [one.name for one in before if one.events.tells]
    if told and random.random() < 0.5:
        events.hears = random.choice(told)


def meant(story: Story) -> Meaning:
    """What the older dialect says that happens."""
    known = {chapter.name: chapter for chapter in story.chapters}
    memory: dict[str, int] = {}
    told: dict[str, int] = {}
    did: list[tuple[str, int]] = []
    tokens = deque([story.chapters[0].name])
    while tokens:
        chapter = known[tokens.popleft()]
        if chapter.is_open is False or chapter.name in tokens:  # it runs once for all branches that meet there
            continue
        events = chapter.events
        remembered = memory.get(chapter.reads, 0) if chapter.reads else 0
        if events.begun is not None:
            memory["begun"] = events.begun
        if events.are_any:
            remembered += memory.get("begun", 0) + told.get(events.hears, 0)
        if events.guard == "skip" and events.is_guarded:
            told.pop(chapter.name, None)
            tokens += chapter.otherwise
            continue
        fails = chapter.failures > 0 and chapter.failures >= max(chapter.attempts, 1)
        runs = [None] if chapter.items is None else list(chapter.items)
        worked = [chapter.value + remembered + (item or 0) for item in runs]
        is_forbidden = events.guard == "fail" and events.is_guarded
        if (fails and runs) or is_forbidden or (events.stops_above is not None and max(worked) > events.stops_above):
            did += [] if (fails and runs) or is_forbidden else [(chapter.name, value) for value in worked]
            told.pop(chapter.name, None)
            if chapter.rescue is None:
                return Meaning("failed", did)
            tokens.append(chapter.rescue)
            continue
        did += [(chapter.name, value) for value in worked]
        if events.tells:
            told[chapter.name] = worked[-1]
        if chapter.remembers and worked:
            memory[chapter.remembers] = worked[-1]
        tokens += _following(chapter, worked)
    return Meaning("completed", did)


def _following(chapter: Chapter, worked: list[int]) -> list[str]:
    for way in chapter.ways:
        if way.above is not None and worked and worked[-1] > way.above:
            return [way.target]
    return chapter.otherwise


def written(story: Story, random: Random) -> str:
    """The story as somebody wrote it: one of the dialects, each part in one of its ways, with comments."""
    spell = (
        _of_case
        if any(one.events.are_any for one in story.chapters)
        else random.choice([_of_eval, _of_case, _of_newer])
    )
    playbook: dict[str, Any] = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "story", "path": "tests/story"},
        "workload": {"open": True, "shut": False},
        "workflow": [spell(chapter, random, position) for position, chapter in enumerate(story.chapters)],
    }
    if random.random() < 0.3:
        playbook["vars"] = playbook.pop("workload")
    text = io.StringIO()
    yaml = YAML()
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.dump(playbook, text)
    return _with_comments(text.getvalue(), random)


def _with_comments(text: str, random: Random) -> str:
    lines: list[str] = []
    for number, line in enumerate(text.splitlines()):
        if random.random() < 0.1:
            lines += [""] if random.random() < 0.3 else [f"{line[: len(line) - len(line.lstrip())]}# note {number}"]
        lines.append(f"{line}  # end {number}" if random.random() < 0.1 else line)
    return "\n".join(lines) + "\n"


def _value(chapter: Chapter, namespace: str) -> Any:
    parts = [str(chapter.value)]
    if chapter.reads:
        parts.append(f"({namespace}.{chapter.reads} | default(0))")
    if chapter.items is not None:
        parts.append("number")
    if chapter.events.are_any:
        parts.append("(ctx.begun | default(0))")
    if chapter.events.hears:
        parts.append(f"({chapter.events.hears}.told | default(0))")
    return chapter.value if len(parts) == 1 else f"{{{{ {' + '.join(parts)} }}}}"


def _of_eval(chapter: Chapter, random: Random, position: int) -> dict[str, Any]:
    """A step of the dialect of ``eval``: a pipeline of labelled tasks, ``next`` as a list."""
    work: dict[str, Any] = {"kind": "work", "value": _value(chapter, "ctx"), "failures": chapter.failures}
    step: dict[str, Any] = {"step": chapter.name}
    if chapter.is_open is not None:
        word = "open" if chapter.is_open else "shut"
        step["when"] = f"{{{{ workload.{word} }}}}" if random.random() < 0.5 else f"{{{{ workload.{word} == true }}}}"
    _loop(step, chapter, random)
    _remember_by_eval(work, chapter, random)
    label = random.choice(["work", f"work_{position}"])
    shape: Callable[[], Any] = random.choice(
        [lambda: [{label: work}], lambda: [{"name": label, **work}], lambda: work, lambda: {"pipe": [{label: work}]}]
    )
    tool = shape()
    if isinstance(tool, dict) and "pipe" in tool:
        step["pipe"] = tool["pipe"]
    else:
        step["tool"] = tool
    arcs = [
        {"step": way.target, "when": f"{{{{ event.name == 'step.done' and event.result.n > {way.above} }}}}"}
        for way in chapter.ways
    ]
    done = "event.name == 'step.done'"
    arcs += [{"step": target, "when": f"{{{{ {done} }}}}"} for target in chapter.otherwise]
    if chapter.rescue:
        arcs.append({"step": chapter.rescue, "when": "{{ event.name == 'step.failed' }}"})
    if len(chapter.otherwise) > 1:
        holder = step if random.random() < 0.5 else step.setdefault("spec", {})
        holder["next_mode"] = "inclusive"
    if arcs:
        step["next"] = arcs
    return step


def _of_newer(chapter: Chapter, random: Random, position: int) -> dict[str, Any]:
    """A step of the newer dialect: `input`, `output`, and `set` with scopes in its keys."""
    work: dict[str, Any] = {"name": f"work_{position}", "kind": "work"}
    if random.random() < 0.5:
        name = random.choice(["input.given", "given"])
        work |= {"input": {"given": _value(chapter, "ctx")}, "value": f"{{{{ {name} }}}}"}
    else:
        work["value"] = _value(chapter, "ctx")
    work["failures"] = chapter.failures
    rules: list[dict[str, Any]] = []
    if chapter.attempts:
        retry = {"do": "retry", "attempts": chapter.attempts, "backoff": "fixed", "delay": 1.0}
        rules.append({"when": "{{ output.status == 'error' }}", "then": retry})
    step: dict[str, Any] = {"step": chapter.name, "tool": random.choice([work, [work]])}
    in_rule = random.random() < 0.5
    if rules or (chapter.remembers and in_rule):
        rules.append({"when": "{{ output.status == 'error' }}", "then": {"do": "fail"}})
        then: dict[str, Any] = {"do": "continue"}
        if chapter.remembers and in_rule:
            then["set"] = {f"ctx.{chapter.remembers}": random.choice(["{{ output.n }}", "{{ output.result.n }}"])}
        rules.append({"else": random.choice([then, {"then": then}])})
        work["spec"] = {"policy": {"rules": rules}}
    if chapter.remembers and not in_rule:
        step["set"] = {f"ctx.{chapter.remembers}": random.choice(["{{ output.n }}", f"{{{{ {chapter.name}.n }}}}"])}
    if chapter.is_open is not None:
        admit = f"{{{{ workload.{'open' if chapter.is_open else 'shut'} }}}}"
        step["spec"] = {"policy": {"admit": {"rules": [{"when": admit, "then": {"allow": True}}]}}}
    _loop(step, chapter, random)
    arcs = [{"step": way.target, "when": f"{{{{ output.n > {way.above} }}}}"} for way in chapter.ways]
    arcs += [{"step": target, "input": {"from": chapter.name}} for target in chapter.otherwise]
    if chapter.rescue:
        arcs.append({"step": chapter.rescue, "when": "{{ output.status == 'error' }}"})
    if arcs:
        mode = "inclusive" if len(chapter.otherwise) > 1 else "exclusive"
        step["next"] = {"spec": {"mode": mode, "on_no_match": random.choice(["end", "stop"])}, "arcs": arcs}
    return step


def _remember_by_eval(work: dict[str, Any], chapter: Chapter, random: Random) -> None:
    way = random.randrange(3)
    rules: list[dict[str, Any]] = []
    if chapter.attempts:
        if way == 0:
            word = random.choice(["attempts", "max_attempts"])
            work["retry"] = random.choice([chapter.attempts, {word: chapter.attempts, "delay": 1}])
        elif way == 1:
            work["spec"] = {"retry": {"max_attempts": chapter.attempts, "initial_delay": 0.5}}
        else:
            when = "{{ outcome.status == 'error' }}"
            rules.append({"expr": when, "do": "retry", "attempts": chapter.attempts, "backoff": "fixed", "delay": 1})
    if chapter.remembers:
        if random.random() < 0.3 and not rules:
            work["set_ctx"] = {chapter.remembers: "{{ outcome.result.n }}"}
            return
        if random.random() < 0.5:
            rules.append({"expr": "{{ outcome.status == 'error' }}", "do": "fail"})
            rules.append({"else": {"do": "continue", "set_ctx": {chapter.remembers: "{{ outcome.result.n }}"}}})
        else:
            when = "{{ outcome.status == 'success' }}"
            rules.append({"expr": when, "do": "continue", "set_ctx": {chapter.remembers: "{{ outcome.result.n }}"}})
    if rules:
        work["eval"] = rules


def _cases_before(chapter: Chapter, random: Random) -> list[dict[str, Any]]:
    """The entries about the beginning of a step."""
    events, case = chapter.events, list[dict[str, Any]]()
    if events.begun is not None:
        case.append({"when": "{{ event.name == 'step.enter' }}", "then": {"set": {"ctx": {"begun": events.begun}}}})
    if events.guard:
        said = random.choice([True, {"message" if events.guard == "fail" else "reason": "so"}])
        when = f"{{{{ event.name == 'step.enter' and workload.{'open' if events.is_guarded else 'shut'} }}}}"
        case.insert(random.randint(0, len(case)), {"when": when, "then": {events.guard: said}})
    return case


def _loop(step: dict[str, Any], chapter: Chapter, random: Random) -> None:
    if chapter.items is None:
        return
    names = random.choice([("in", "iterator"), ("collection", "element")])
    step["loop"] = {names[0]: chapter.items, names[1]: "number"}
    if random.random() < 0.5:
        step["loop"][random.choice(["mode", "spec"])] = "sequential"
        if "spec" in step["loop"]:
            step["loop"]["spec"] = {"mode": "sequential"}


def _of_case(chapter: Chapter, random: Random, _position: int) -> dict[str, Any]:
    """A step of the dialect of ``case``: one tool, ``vars`` of the step, ``next`` by events."""
    work: dict[str, Any] = {"value": _value(chapter, "vars"), "failures": chapter.failures}
    shape = random.randrange(3)
    step: dict[str, Any] = {"step": chapter.name}
    if shape == 0:
        step["tool"] = {"kind": "work", **work}
    else:
        step.update({("tool" if shape == 1 else "type"): "work", **work})
    if chapter.is_open is not None:
        step["when"] = "{{ workload.open }}" if chapter.is_open else "{{ workload.shut }}"
    _loop(step, chapter, random)
    case = _cases_before(chapter, random)
    if chapter.attempts:
        when = random.choice(["error is defined", "error != None", "error is not none"])
        retry = {"max_attempts": chapter.attempts, "backoff_multiplier": 2.0, "initial_delay": 0.5}
        case.append({"when": f"{{{{ event.name == 'call.done' and {when} }}}}", "then": {"retry": retry}})
    if chapter.events.stops_above is not None:
        when = f"event.name == 'call.done' and response is defined and response.n > {chapter.events.stops_above}"
        fail = random.choice([True, {"message": "too much"}])
        case.append({"when": f"{{{{ {when} }}}}", "then": {"fail": fail}})
    if chapter.events.tells:
        when = random.choice(["event.name == 'call.done' and response is defined", "event.name == 'step.exit'"])
        case.append({"when": f"{{{{ {when} }}}}", "then": {"result": {"told": "{{ response.n }}"}}})
    for way in chapter.ways:
        at = f"event.name == 'step.exit' and result.n > {way.above}"
        arc = random.choice([[{"step": way.target}], {"step": way.target, "args": {"from": chapter.name}}, way.target])
        case.append({"when": f"{{{{ {at} }}}}", "then": random.choice([{"next": arc}, [{"next": arc}]])})
    if chapter.rescue:
        case.append({"when": "{{ event.name == 'step.failed' }}", "then": {"next": [{"step": chapter.rescue}]}})
    if chapter.remembers:
        step["vars"] = {chapter.remembers: "{{ result.n }}"}
    if case:
        step["case"] = case
    if len(chapter.otherwise) == 1:
        name = chapter.otherwise[0]
        step["next"] = random.choice([name, [name], [{"step": name}]])
    elif chapter.otherwise:
        step["next"] = random.choice([chapter.otherwise, [{"step": name} for name in chapter.otherwise]])
    return step
