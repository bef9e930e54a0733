"""``choose``, ``while`` and ``until``, which compile to tasks and jumps (LANGUAGE §12, v10 §14).

A construct becomes its tasks between generated ``noop`` tasks: a first one whose policy evaluates the guards, and one
after each branch or body, so that nothing falls through. Directives of the tasks inside keep their meaning: ``break``
ends the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Final, TypeAlias

import msgspec

from noetl_stream.playbook.diagnostics import Location, Problems
from noetl_stream.playbook.kinds.spec import GENERATED
from noetl_stream.playbook.model.policy import ActionDraft, PolicyDraft, Rule, read_rules
from noetl_stream.playbook.model.sections import ANYTHING, Part, Required, Section, described, ladder, ref
from noetl_stream.playbook.model.task import TaskDraft
from noetl_stream.playbook.vocabulary import advice
from noetl_stream.playbook.vocabulary.names import begin_label, end_label
from noetl_stream.playbook.yaml.nodes import Mapping, Node


class ChooseEntry(Section):
    title = "a `choose`"
    rejected = advice.CONSTRUCT

    name: Part = described("A name for the construct.", ref("name"))
    choose: Annotated[Part, Required(f"choose: [ {advice.BRANCH_EXAMPLE} ]")] = described(
        "Runs the tasks of the first rule whose `when` holds.", ladder("BranchRule", ref("tasks"))
    )


class WhileEntry(Section):
    title = "a `while`"
    rejected = advice.CONSTRUCT

    name: Part = described("A name for the construct.", ref("name"))
    while_: Annotated[Part, Required(f"while: {advice.ROUND_EXAMPLE}")] = described(
        "Runs tasks again and again while `when` holds.", ref("Round"), alias="while"
    )


class UntilEntry(Section):
    title = "an `until`"
    rejected = advice.CONSTRUCT

    name: Part = described("A name for the construct.", ref("name"))
    until: Annotated[Part, Required(f"until: {advice.ROUND_EXAMPLE}")] = described(
        "Runs tasks again and again until `when` holds.", ref("Round")
    )


class BranchRule(Rule):
    title = "a branch"
    rejected = advice.BRANCH

    then: Annotated[Part, Required("{ when: …, then: { … } }")] = described("The tasks to run.", ANYTHING)


class Round(Section):
    title = "a `while` or `until`"
    rejected = advice.ROUND

    when: Annotated[Part, Required(advice.ROUND_EXAMPLE)] = described("The condition.", ref("guard"))
    do: Annotated[Part, Required(advice.ROUND_EXAMPLE)] = described("The tasks of a round.", ref("tasks"))


WORDS: Final[dict[str, type[Section]]] = {"choose": ChooseEntry, "while": WhileEntry, "until": UntilEntry}


class Branch(msgspec.Struct, frozen=True):
    """A guard and the tasks it leads to; ``when`` is ``None`` for ``else``."""

    when: Node | None
    at: Location
    body: Sequence[Item]


class Construct(msgspec.Struct, frozen=True):
    """A construct as read. ``while`` and ``until`` have one branch."""

    name: str
    word: str
    at: Location
    branches: list[Branch]

    @property
    def origin(self) -> str:
        return f"{self.word} at line {self.at.mark.line}"


Item: TypeAlias = TaskDraft | Construct

ReadTasks = Callable[[Node | None, str, str], list[Item]]
"""A reader of a list of tasks. Arguments: the list, its name in messages, and the prefix of unnamed tasks.
"""


def word_of(node: Mapping) -> str | None:
    """The keyword of a pipeline entry that is a construct; ``None`` for a task."""
    return None if "kind" in node.keys else next((word for word in WORDS if word in node.keys), None)


def read_construct(node: Mapping, word: str, name: str, read_tasks: ReadTasks, problems: Problems) -> Construct:
    """Reads a construct; ``read_tasks`` reads the tasks in it."""
    WORDS[word].from_node(node, problems)
    part = node.values[word]
    branches: list[Branch] = []
    if word == "choose":
        for index, rule in enumerate(read_rules(part, problems, "`choose`", BranchRule)):
            branches.append(Branch(rule.when, rule.at, read_tasks(rule.then, "`then`", f"{name}_{index}_")))
    else:
        body = Round.from_node(part, problems)
        branches.append(Branch(body.when, part, read_tasks(body.do, "`do`", f"{name}_")))
    return Construct(name, word, node.keys[word], branches)


def flatten(items: Sequence[Item], following: str | None = None) -> list[TaskDraft]:
    """Compiles tasks and constructs to the canonical pipeline.

    Args:
        following: The label of the task after the items; ``None`` ends the pipeline.
    """
    tasks: list[TaskDraft] = []
    for index, item in enumerate(items):
        if isinstance(item, TaskDraft):
            tasks.append(item)
        else:
            after = _first_label(items, index + 1) or following
            tasks += _choose(item, after) if item.word == "choose" else _rounds(item, after)
    return tasks


def _choose(construct: Construct, after: str | None) -> list[TaskDraft]:
    branches = [(branch, end_label(construct.name, index)) for index, branch in enumerate(construct.branches)]
    rules = [_jump(branch.when, _first_label(branch.body) or end, branch.at) for branch, end in branches]
    if not rules or rules[-1].when is not None:
        rules.append(_jump(None, after, construct.at))
    tasks = [_noop(construct, begin_label(construct.name, construct.word), construct.at, rules)]
    for branch, end in branches:
        tasks += [*flatten(branch.body, end), _noop(construct, end, branch.at, [_jump(None, after, branch.at)])]
    return tasks


def _rounds(construct: Construct, after: str | None) -> list[TaskDraft]:
    [branch] = construct.branches
    end = end_label(construct.name)
    body = _first_label(branch.body) or end
    repeat = [_jump(branch.when, body, branch.at), _jump(None, after, branch.at)]
    if construct.word == "until":
        repeat = [_jump(branch.when, after, branch.at), _jump(None, body, branch.at)]
    first = repeat if construct.word == "while" else [_jump(None, body, branch.at)]
    return [
        _noop(construct, begin_label(construct.name, construct.word), construct.at, first),
        *flatten(branch.body, end),
        _noop(construct, end, construct.at, repeat),
    ]


def _first_label(items: Sequence[Item], at: int = 0) -> str | None:
    if at >= len(items):
        return None
    first = items[at]
    return first.name if isinstance(first, TaskDraft) else begin_label(first.name, first.word)


def _jump(when: Node | None, to: str | None, at: Location) -> ActionDraft:
    return ActionDraft(when=when, at=when or at, do="break" if to is None else "jump", to=to)


def _noop(construct: Construct, label: str, at: Location, rules: list[ActionDraft]) -> TaskDraft:
    return TaskDraft(
        name=label,
        kind=GENERATED,
        at=at,
        inputs=Mapping(at.mark, at.pointer),
        policy=PolicyDraft(rules, "continue", at, is_complete=True),
        origin=construct.origin,
    )
