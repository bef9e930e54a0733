"""``choose``, ``while``, ``until``: entries of a pipeline that compile to tasks and jumps (LANGUAGE §12, v10 §14).

A construct becomes its tasks between generated ``noop`` tasks: it begins with one, whose policy judges the guards, and
there is one behind each branch or body, so that nothing falls through. Directives of the tasks inside keep their
meaning: ``break`` ends the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, TypeAlias

from pydantic import Field

from noetl_stream.playbook.diagnostics import Location, Problems
from noetl_stream.playbook.kinds.language import GENERATED
from noetl_stream.playbook.model.policy import ActionDraft, PolicyDraft, Rule, read_rules
from noetl_stream.playbook.model.sections import Part, RejectedKey, Required, Section, read_section
from noetl_stream.playbook.model.task import TaskDraft
from noetl_stream.playbook.plan import Timeouts
from noetl_stream.playbook.vocabulary.labels import begin_label, end_label
from noetl_stream.playbook.yaml.nodes import Mapping, Node

_BRANCH: Final = "{ when: …, then: [ … ] }"
_ROUND: Final = "{ when: …, do: [ … ] }"
_MISPLACED: Final = {
    "spec": RejectedKey("only tasks have a `spec`", "give the tasks inside their policies and timeouts"),
    "when": RejectedKey("`when` stands inside", f"write choose: [ {_BRANCH} ], or while: {_ROUND}"),
    "then": RejectedKey("`then` stands in a branch", f"write choose: [ {_BRANCH} ]"),
    "else": RejectedKey("`else` is the last branch", f"write choose: [ {_BRANCH}, {{ else: {{ then: [ … ] }} }} ]"),
    "do": RejectedKey("`do` stands inside", f"write while: {_ROUND}"),
}


class ChooseEntry(Section):
    title = "a `choose`"
    rejected: ClassVar[MappingOf[str, RejectedKey]] = _MISPLACED

    name: Part = None
    choose: Annotated[Part, Required(f"choose: [ {_BRANCH} ]")] = None


class WhileEntry(Section):
    title = "a `while`"
    rejected: ClassVar[MappingOf[str, RejectedKey]] = _MISPLACED

    name: Part = None
    while_: Annotated[Part, Required(f"while: {_ROUND}")] = Field(None, alias="while")


class UntilEntry(Section):
    title = "an `until`"
    rejected: ClassVar[MappingOf[str, RejectedKey]] = _MISPLACED

    name: Part = None
    until: Annotated[Part, Required(f"until: {_ROUND}")] = None


class BranchRule(Rule):
    title = "a branch"
    rejected: ClassVar[MappingOf[str, RejectedKey]] = {
        "do": RejectedKey("a branch has no `do`", f"write {_BRANCH}"),
        **{word: Rule.rejected[word] for word in ("expr", "if")},
    }


class Round(Section):
    title = "a `while` or `until`"
    rejected: ClassVar[MappingOf[str, RejectedKey]] = {
        "then": RejectedKey("here `then` is called `do`", f"write {_ROUND}")
    }

    when: Annotated[Part, Required(_ROUND)] = None
    do: Annotated[Part, Required(_ROUND)] = None


WORDS: Final[dict[str, type[Section]]] = {"choose": ChooseEntry, "while": WhileEntry, "until": UntilEntry}


@dataclass(frozen=True, slots=True)
class Branch:
    """Tasks and the guard that leads to them; ``when`` is ``None`` for ``else``."""

    when: Node | None
    at: Location
    body: Sequence[Item]


@dataclass(frozen=True, slots=True)
class Construct:
    """A construct as read; ``while`` and ``until`` have one branch."""

    name: str
    word: str
    at: Location
    branches: list[Branch]

    @property
    def origin(self) -> str:
        return f"{self.word} at line {self.at.mark.line}"


Item: TypeAlias = TaskDraft | Construct

ReadTasks = Callable[[Node | None, str, str], list[Item]]
"""Reads a list of tasks. Arguments: the list, what it is in messages, what the names of unnamed tasks begin with."""


def word_of(node: Mapping) -> str | None:
    """Which construct an entry of a pipeline is; ``None`` for a task."""
    return None if "kind" in node.keys else next((word for word in WORDS if word in node.keys), None)


def read_construct(node: Mapping, word: str, name: str, read_tasks: ReadTasks, problems: Problems) -> Construct:
    """The construct ``word`` of an entry, whose tasks ``read_tasks`` reads."""
    read_section(node, WORDS[word], problems)
    part = node.values[word]
    branches: list[Branch] = []
    if word == "choose":
        for index, rule in enumerate(read_rules(part, problems, "`choose`", BranchRule)):
            branches.append(Branch(rule.when, rule.at, read_tasks(rule.then, "`then`", f"{name}_{index}_")))
    else:
        turn = read_section(part, Round, problems)
        branches.append(Branch(turn.when, part, read_tasks(turn.do, "`do`", f"{name}_")))
    return Construct(name, word, node.keys[word], branches)


def flattened(items: Sequence[Item], following: str | None = None) -> list[TaskDraft]:
    """The canonical pipeline.

    Args:
        following: The label of what comes after the items; ``None``: the pipeline ends.
    """
    tasks: list[TaskDraft] = []
    for index, item in enumerate(items):
        if isinstance(item, TaskDraft):
            tasks.append(item)
        else:
            after = _first_label(items[index + 1 :]) or following
            tasks += _choose(item, after) if item.word == "choose" else _rounds(item, after)
    return tasks


def _choose(construct: Construct, after: str | None) -> list[TaskDraft]:
    branches = [(branch, end_label(construct.name, index)) for index, branch in enumerate(construct.branches)]
    ways = [_jump(branch.when, _first_label(branch.body) or end, branch.at) for branch, end in branches]
    if not ways or ways[-1].when is not None:
        ways.append(_jump(None, after, construct.at))
    tasks = [_noop(construct, begin_label(construct.name, construct.word), construct.at, ways)]
    for branch, end in branches:
        tasks += [*flattened(branch.body, end), _noop(construct, end, branch.at, [_jump(None, after, branch.at)])]
    return tasks


def _rounds(construct: Construct, after: str | None) -> list[TaskDraft]:
    [turn] = construct.branches
    end = end_label(construct.name)
    body = _first_label(turn.body) or end
    again = [_jump(turn.when, body, turn.at), _jump(None, after, turn.at)]
    if construct.word == "until":
        again = [_jump(turn.when, after, turn.at), _jump(None, body, turn.at)]
    before = again if construct.word == "while" else [_jump(None, body, turn.at)]
    return [
        _noop(construct, begin_label(construct.name, construct.word), construct.at, before),
        *flattened(turn.body, end),
        _noop(construct, end, construct.at, again),
    ]


def _first_label(items: Sequence[Item]) -> str | None:
    if not items:
        return None
    first = items[0]
    return first.name if isinstance(first, TaskDraft) else begin_label(first.name, first.word)


def _jump(when: Node | None, to: str | None, at: Location) -> ActionDraft:
    return ActionDraft(when=when, at=when or at, do="break" if to is None else "jump", to=to)


def _noop(construct: Construct, label: str, at: Location, rules: list[ActionDraft]) -> TaskDraft:
    return TaskDraft(
        name=label,
        kind=GENERATED,
        at=at,
        inputs=Mapping(at.mark, at.pointer),
        verbatim={},
        knobs={},
        timeouts=Timeouts(),
        policy=PolicyDraft(rules, "continue", at, is_whole=True),
        origin=construct.origin,
    )
