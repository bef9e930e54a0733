"""Checks of what a worker reports, kind by kind; the table that uses them is in :mod:`.worker_facts`.

A worker is another process, perhaps of another version, perhaps broken: what it reports must not raise where everything
is folded, and stop one server after the other (PROTOCOL §5 *Poison*). A *form* says what is wrong with the fact itself,
``""`` if nothing; a *fit* says whether it can belong to its command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from noetl_stream.engine.evolve.loop_progress import loop_at
from noetl_stream.engine.evolve.reducers import check_shared
from noetl_stream.engine.state import Assignment, StepRun
from noetl_stream.errors import PayloadRefused
from noetl_stream.model import codec, events
from noetl_stream.model.events import Path, Wait
from noetl_stream.model.ids import is_valid_id
from noetl_stream.model.reference import Page
from noetl_stream.template import ExpressionError

MOST: Final = 2**31 - 1
"""No index, count or number that a worker reports is larger."""


def any_form(_fact: events.Fact) -> str:
    return ""


def path_form(fact: Any) -> str:
    return "" if _has_indexes(fact.path) else "has a path that is none"


def _has_indexes(path: Path) -> bool:
    return all(0 <= index <= MOST for index in path)


def claim_form(fact: events.StepClaimed) -> str:
    return "" if all(map(is_valid_id, fact.reply.split("."))) else "cannot be answered: its reply is no subject"


def result_form(fact: events.TaskProcessed) -> str:
    try:
        codec.decode_json(fact.outcome.result.value)  # until here it is bytes that nobody has looked at
        for contribution in fact.set_shared.values():
            check_shared(contribution)
    except PayloadRefused as error:
        return f"has a result that is none: {error}"
    except ExpressionError as error:
        return f"cannot be folded: {error}"
    return path_form(fact)


def items_form(fact: events.LoopStarted | events.LoopPagedOut) -> str:
    if fact.max_in_flight < 1 or not 0 <= fact.count <= MOST:
        return "has counts that are none"
    if fact.pages and not _adds_up(fact.pages, fact.count):
        return "counts other items than its pages hold"
    return path_form(fact)


def _adds_up(pages: Sequence[Page], count: int) -> bool:
    following = 0
    for page in pages:
        if page.first != following or page.count < 1:
            return False
        following += page.count
    return following == count


def waits_form(fact: events.StepSuspended) -> str:
    return "" if all(map(_is_wait, fact.waits)) else "waits for nothing that must come"


def _is_wait(wait: Wait) -> bool:
    """Every wait has an end (LANGUAGE §8): that of a child is the child's."""
    kinds = (wait.delay_s, wait.for_s, wait.until_ms, wait.signal, wait.child)
    child = wait.child
    times = (wait.delay_s, wait.for_s, wait.timeout_s)
    return (
        sum(kind is not None for kind in kinds) == 1
        and all(time is None or time >= 0 for time in times)  # what is due when no store can say is never committed
        and _has_indexes(wait.path)
        and (wait.signal is None or wait.timeout_s is not None)
        and (child is None or is_valid_id(child.digest))
    )


def fits_anywhere(_fact: events.Fact, _assignment: Assignment, _run: StepRun) -> bool:
    return True


def _is_local(assignment: Assignment, run: StepRun) -> bool:
    level = loop_at(run.loop, assignment.path)
    return level is not None and level.local


def _at_pipeline(path: Path, assignment: Assignment, run: StepRun) -> bool:
    """Where tasks run: the command's own iteration, or one of the local loop in it."""
    return _inside(path, assignment, run) if _is_local(assignment, run) else path == assignment.path


def _inside(path: Path, assignment: Assignment, run: StepRun) -> bool:
    """An iteration of the command's local loop, at any level that runs."""
    depth = len(assignment.path)
    around = loop_at(run.loop, path[:-1]) if len(path) > depth and path[:depth] == assignment.path else None
    return around is not None and around.local and path[-1] < around.count


def fits_task(fact: Any, assignment: Assignment, run: StepRun) -> bool:
    return _at_pipeline(fact.path, assignment, run)


def fits_iteration(fact: Any, assignment: Assignment, run: StepRun) -> bool:
    own = bool(fact.path) and fact.path == assignment.path
    return own or (_is_local(assignment, run) and _inside(fact.path, assignment, run))


def fits_step(_fact: Any, assignment: Assignment, _run: StepRun) -> bool:
    return not assignment.path


def fits_loopless_step(_fact: Any, assignment: Assignment, run: StepRun) -> bool:
    return not assignment.path and not assignment.paging and run.loop is None


def fits_new_level(fact: events.LoopStarted, assignment: Assignment, run: StepRun) -> bool:
    """Of the command's own level the items stand in the command; one inside it brings them."""
    if fact.path == assignment.path:
        return _is_local(assignment, run)
    return _inside(fact.path, assignment, run) and (bool(fact.pages) or len(fact.items) == fact.count)


def fits_running_level(fact: events.LoopDone, assignment: Assignment, run: StepRun) -> bool:
    if fact.path == assignment.path:
        return _is_local(assignment, run)
    return _inside(fact.path, assignment, run) and loop_at(run.loop, fact.path) is not None


def fits_paging(fact: events.LoopPagedOut, assignment: Assignment, _run: StepRun) -> bool:
    return assignment.paging and fact.path == assignment.path and (bool(fact.pages) or not fact.count)


def fits_waits(fact: events.StepSuspended, assignment: Assignment, run: StepRun) -> bool:
    return all(_at_pipeline(wait.path, assignment, run) for wait in fact.waits)
