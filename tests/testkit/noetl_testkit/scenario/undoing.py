"""What undoing must come to, told from a playbook and the facts of a journal alone (LANGUAGE §9 *Undoing*)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from noetl_stream.model import events
from noetl_stream.model.events import Fact, Token

ENDS = frozenset({"failed", "cancelled", "timeout"})


@dataclass(frozen=True, slots=True)
class Declared:
    """What a playbook says of its end: the steps that have a compensation, the ends on which they are undone, the step
    of ``finally``.
    """

    undone: frozenset[str] = frozenset()
    on: frozenset[str] = ENDS
    finally_step: str | None = None

    @classmethod
    def of(cls, source: str) -> Declared:
        """Reads it from a playbook that is written as JSON."""
        document = json.loads(source)
        policy = document.get("executor", {}).get("spec", {}).get("policy", {})
        steps = {one["step"]: one.get("spec", {}).get("policy", {}) for one in document["workflow"]}
        undone = frozenset(step for step, own in steps.items() if "compensation" in own)
        on = (policy.get("compensation") or {}).get("on")
        return cls(undone, ENDS if on is None else frozenset(on), policy.get("finally"))


@dataclass(slots=True)
class _Story:
    """A journal as far as undoing goes: ``ended`` are the step runs that ended well, in order."""

    steps: dict[str, str] = field(default_factory=dict)
    causes: dict[str, Token] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    began: list[Token] = field(default_factory=list)
    finallys: list[Token] = field(default_factory=list)
    started: bool = False
    at_once: bool = False
    out_of_time: bool = False
    set_aside: bool = False
    reused: set[str] = field(default_factory=set)
    undoes_another: bool = False
    closing: events.ExecutionClosing | None = None
    finished: events.ExecutionFinished | None = None


def undoing_problems(declared: Declared, facts: Iterable[Fact]) -> Iterator[str]:
    """What is wrong with how an execution that has ended undid what it had done, and ran ``finally``."""
    story = _read(facts)
    if story.finished is None:
        return
    yield from _undone_in_order(declared, story)
    yield from _said(declared, story)
    yield from _last(declared, story)
    closing, finished = story.closing, story.finished
    if (
        closing is not None
        and not story.undoes_another
        and (closing.status, closing.outcome)
        != (
            finished.status,
            finished.outcome,
        )
    ):
        yield f"was to end as {closing.status}, and ended as {finished.status}"


def expected_effects(declared: Declared, facts: Iterable[Fact]) -> dict[str, tuple[int, int]]:
    """How often at least and at most each compensation and the step of ``finally`` may have had its effect, if its task
    has one: each that ended well once, each that began at most once.
    """
    story = _read(facts)
    last = [] if declared.finally_step is None else [declared.finally_step]
    found = {}
    for step in [*(f"{one}__compensation" for one in declared.undone), *last]:
        runs = [run for run, name in story.steps.items() if name == step and run not in story.reused]
        found[step] = sum(run in story.ended for run in runs), len(runs)
    return found


def _read(facts: Iterable[Fact]) -> _Story:
    story, tokens = _Story(), dict[str, Token]()
    for fact, is_own in _flat(facts, story):
        match fact:
            case events.ExecutionStarted():
                story.started = True
            case events.TokenEnqueued(token=token):
                tokens[token.token_id] = token
                if token.cause == "compensation" and is_own:
                    story.began.append(token)
                elif token.cause == "finally" and is_own:
                    story.finallys.append(token)
            case events.TokenClaimed(token_id=token_id, step_run_id=run):
                story.steps[run], story.causes[run] = tokens[token_id].step, tokens[token_id]
            case events.StepReused():
                story.reused.add(fact.step_run_id)
                if fact.outcome is not None and not fact.undone and fact.ended != "step.failed":
                    story.ended.append(fact.step_run_id)
            case events.StepDone() | events.LoopDone() if not getattr(fact, "path", ()):
                story.ended.append(fact.step_run_id)
            case events.StepFailed():
                story.failed.append(fact.step_run_id)
            case events.CancelRequested(now=True):
                story.at_once = True
            case events.TimerFired(purpose="compensation"):
                story.out_of_time = True
            case events.ExecutionQuarantined():
                story.set_aside = True
            case events.ExecutionClosing():
                story.closing = fact
            case events.ExecutionFinished():
                story.finished = fact
            case _:
                pass
    return story


def _flat(facts: Iterable[Fact], story: _Story) -> Iterator[tuple[Fact, bool]]:
    """The facts, those that a rerun reuses in their place, and whether each is the execution's own."""
    for fact in facts:
        if isinstance(fact, events.ExecutionReused):
            story.undoes_another |= fact.undoes
            yield from ((entry, False) for entry in fact.entries)
        else:
            yield fact, True


def _undoable(declared: Declared, story: _Story) -> Sequence[str]:
    """The step runs that are to be undone, last end first: what was reused was another's to undo."""
    own = (run for run in story.ended if story.undoes_another or run not in story.reused)
    return [run for run in own if story.steps[run] in declared.undone][::-1]


def _end(story: _Story) -> str:
    ended = story.closing or story.finished
    assert ended is not None
    error = ended.outcome.error
    return "timeout" if ended.status == "failed" and error is not None and error.kind == "timeout" else ended.status


def _undone_in_order(declared: Declared, story: _Story) -> Iterator[str]:
    """Each compensation begins once, last end first, and at the ends that are named alone."""
    wanted = list(_undoable(declared, story))
    began = [one.from_step_run_id or "" for one in story.began]
    undoes = story.closing is not None and story.closing.undoes
    if began and not undoes:
        yield f"undid {began}, and was not to undo anything"
    if began != wanted[: len(began)]:
        yield f"undid {_named(story, began)}, and what ended was, last end first, {_named(story, wanted)}"
    due = story.undoes_another or _end(story) in declared.on
    is_cut = story.at_once or story.out_of_time or story.set_aside
    if due and not is_cut and began != wanted:
        yield f"undid {_named(story, began)} of {_named(story, wanted)} at the end {_end(story)}"
    if undoes and not story.undoes_another and _end(story) not in declared.on:
        yield f"undoes at the end {_end(story)}, which is not named"


def _named(story: _Story, runs: Sequence[str]) -> list[str]:
    return [f"{story.steps.get(run, '?')} ({run[:6]})" for run in runs]


def _said(declared: Declared, story: _Story) -> Iterator[str]:
    """Each step run that was to be undone is listed, with what became of it."""
    assert story.finished is not None
    said = {one.step_run_id: one for one in story.finished.compensations}
    if len(said) != len(story.finished.compensations):
        yield "says twice what became of a step run"
    done = {story.causes[run].from_step_run_id for run in story.ended if story.causes[run].cause == "compensation"}
    for run, one in said.items():
        if one.undone == bool(one.reason):
            yield f"says of {one.step} undone {one.undone}, because {one.reason!r}"
        if story.steps[run] in declared.undone and one.undone != (run in done):
            yield f"says of {one.step} undone {one.undone}, and its compensation ended well: {run in done}"
    if story.at_once or (story.closing is not None and story.closing.undoes):
        silent = [run for run in _undoable(declared, story) if run not in said]
        if silent:
            yield f"says nothing of {_named(story, silent)}"


def _last(declared: Declared, story: _Story) -> Iterator[str]:
    """The step of ``finally`` runs once, at every end, when all else is done."""
    is_wanted = declared.finally_step is not None and story.started and not story.undoes_another
    most = int(is_wanted)
    least = 0 if story.at_once or story.set_aside else most
    if not least <= len(story.finallys) <= most:
        yield f"ran finally {len(story.finallys)} times at the end {_end(story)}"
    runs = [run for run, token in story.causes.items() if token.cause == "finally"]
    over = [run for run in runs if run in story.ended or run in story.failed]
    if least and len(over) != 1:
        yield "ended before finally did"
