"""Checks of worker reports, by kind of fact; :mod:`.worker_facts` has the table that uses them.

A worker is another process, possibly of another version, possibly broken: a bad report must not raise in the fold and
stop one server after the other (PROTOCOL §5 *Poison*). A *form* check says what is wrong with the fact itself (``""``
if nothing); a *fit* check says whether it can belong to its command.
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
from noetl_stream.model.outcome import Page
from noetl_stream.template import ExpressionError

MOST: Final = 2**31 - 1
"""The largest index, count or number a worker may report."""


def any_form(_fact: events.Fact) -> str:
    return ""


def path_form(fact: Any) -> str:
    return "" if _has_indexes(fact.path) else "has an invalid path"


def _has_indexes(path: Path) -> bool:
    return all(0 <= index <= MOST for index in path)


def claim_form(fact: events.StepClaimed) -> str:
    return "" if all(map(is_valid_id, fact.reply.split("."))) else "has a reply that is not a valid subject"


def result_form(fact: events.TaskProcessed) -> str:
    try:
        codec.decode_json(fact.outcome.result.value)  # so far these bytes have not been parsed
        for contribution in fact.set_shared.values():
            check_shared(contribution)
    except PayloadRefused as error:
        return f"has an invalid result: {error}"
    except ExpressionError as error:
        return f"cannot be folded: {error}"
    return path_form(fact)


def items_form(fact: events.LoopStarted | events.LoopPagedOut) -> str:
    if fact.max_in_flight < 1 or not 0 <= fact.count <= MOST:
        return "has invalid counts"
    if fact.pages and not _adds_up(fact.pages, fact.count):
        return "has a count that differs from the items in its pages"
    return path_form(fact)


def _adds_up(pages: Sequence[Page], count: int) -> bool:
    following = 0
    for page in pages:
        if page.first != following or page.count < 1:
            return False
        following += page.count
    return following == count


def waits_form(fact: events.StepSuspended) -> str:
    return "" if all(map(_is_wait, fact.waits)) else "has a wait without an end"


def _is_wait(wait: Wait) -> bool:
    """Whether the wait is well formed; every wait must end (LANGUAGE §8), that for a child with the child."""
    kinds = (wait.delay_s, wait.for_s, wait.until_ms, wait.signal, wait.child)
    child = wait.child
    times = (wait.delay_s, wait.for_s, wait.timeout_s)
    return (
        sum(kind is not None for kind in kinds) == 1
        and all(time is None or time >= 0 for time in times)  # else due before any date Postgres stores
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
    """Whether tasks run at ``path``: the command's own iteration, or one of the local loop in it."""
    return _inside(path, assignment, run) if _is_local(assignment, run) else path == assignment.path


def _inside(path: Path, assignment: Assignment, run: StepRun) -> bool:
    """Whether ``path`` is an iteration of the command's local loop, at any running level."""
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
    """Items of the command's own level are in the command; a level inside it brings its own."""
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
