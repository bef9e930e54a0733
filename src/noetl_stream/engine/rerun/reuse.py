"""Reuse: a rerun keeps all of its original but the chosen step run and its descendants (LANGUAGE §9 *Rerun*).

A step run that never ended, or that failed the execution, starts again with the same token. Tokens that no reused step
run has consumed stay where they were, and ask for admission, or join, again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from noetl_stream.engine.decide.client_requests import no_step
from noetl_stream.engine.rerun.journal_summary import JournalSummary
from noetl_stream.model import codec, events
from noetl_stream.model.events import ExecutionRequested, ExecutionReused, Fact, Rerun, RerunRefused, ReusedFact, Token
from noetl_stream.model.ids import derive
from noetl_stream.model.status import Rejection
from noetl_stream.playbook.plan import Plan

PAGE_BYTES: Final = 256 * 1024
"""How many bytes of reused facts one journal entry holds."""

MOST_BYTES_OF_AN_ENTRY: Final = 2 * 1024 * 1024
"""A journal entry is published as one message: a step run with more than this cannot be reused."""


class _Refused(Exception):
    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.text)
        self.rejection = rejection


class _StartingPoint(NamedTuple):
    """Where the rerun starts: a token, and the step run that consumed it (``""`` if none has)."""

    token: Token
    step_run_id: str = ""


def reuse(plan: Plan, execution_id: str, request: ExecutionRequested, original: JournalSummary) -> Sequence[Fact]:
    """The inputs that start the rerun ``execution_id``: pages of ``execution.reused``, or one ``rerun.refused``."""
    assert request.rerun is not None
    try:
        return tuple(_pages(plan, execution_id, request.rerun, request.digest, original))
    except _Refused as refused:
        return (refuse_rerun(refused.rejection),)


def refuse_rerun(rejection: Rejection) -> Fact:
    return RerunRefused(rejection.code, rejection.text)


def _pages(
    plan: Plan, execution_id: str, rerun: Rerun, digest: str, original: JournalSummary
) -> Iterator[ExecutionReused]:
    if original.digest != digest:
        text = f"execution {rerun.of} ran the playbook {original.digest}, not {digest}"
        raise _Refused(Rejection("version_mismatch", text))
    lineage = _Lineage(original.facts)
    chosen = _choose(plan, rerun, original, lineage)
    kept = lineage.without(chosen)
    pages = list(_in_pages(kept, rerun.of, plan.limits.max_reused_bytes))
    token = chosen.token
    joined = lineage.enqueued[token.token_id].joined
    args = token.args if rerun.args is None else rerun.args
    token = replace(token, token_id=derive(execution_id, "rerun"), cause="rerun", args=args)
    *others, last = enumerate(pages)
    for number, page in others:
        yield ExecutionReused(rerun.of, page, number)
    yield ExecutionReused(rerun.of, last[1], last[0], token, joined, original.workload)


class _Lineage:
    """Tokens and step runs of the original, and which descend from which."""

    def __init__(self, facts: Sequence[ReusedFact]) -> None:
        self.facts = facts
        self.enqueued = {fact.token.token_id: fact for fact in facts if isinstance(fact, events.TokenEnqueued)}
        claims = [fact for fact in facts if isinstance(fact, events.TokenClaimed)]
        self.runs = {fact.step_run_id: self.enqueued[fact.token_id].token for fact in claims}
        self.claimed = {fact.token_id for fact in claims}
        reused = [fact for fact in facts if isinstance(fact, events.StepReused)]
        routed = {fact.step_run_id for fact in facts if isinstance(fact, events.NextEvaluated)}
        self.ended = {fact.step_run_id for fact in reused if fact.outcome is not None or fact.step_run_id in routed}

    def without(self, chosen: _StartingPoint) -> list[ReusedFact]:
        """The facts without the chosen token, its descendants, and step runs that are to start again."""
        gone = {chosen.token.token_id, chosen.step_run_id}
        waves: dict[str, int] = {}
        kept: list[ReusedFact] = []
        discarded: list[ReusedFact] = []
        for fact in self.facts:
            reused = self._is_reused(fact, gone, waves)
            if isinstance(fact, events.TokenDiscarded):
                discarded += [fact] if reused else []
                continue
            join = fact.token.token_id if isinstance(fact, events.TokenEnqueued) and fact.joined else ""
            if reused or join in ("", chosen.token.token_id):  # a discard that let a join fire goes with that join
                kept += discarded
            discarded = []
            kept += [fact] if reused else []
        return kept + discarded

    def _is_reused(self, fact: ReusedFact, gone: set[str], waves: dict[str, int]) -> bool:
        """Whether ``fact`` is reused; if not, what disappears with it is recorded in ``gone`` and ``waves``."""
        if isinstance(fact, events.CtxPatched):
            return True
        if isinstance(fact, events.TokenEnqueued):
            token = fact.token
            if token.token_id in gone:
                return False
            if token.from_step_run_id in gone or not gone.isdisjoint(fact.joined):
                gone.add(token.token_id)
                return False
            if fact.joined:
                waves[token.step] = token.waves[token.step]
            return True
        if isinstance(fact, events.TokenClaimed):
            reused = fact.token_id not in gone and fact.step_run_id in self.ended
            if not reused:
                gone.add(fact.step_run_id)
            return reused
        if isinstance(fact, events.TokenAbsorbed):
            token = self.enqueued[fact.token_id].token
            return fact.token_id not in gone and token.waves.get(token.step, 0) < waves.get(token.step, 0)
        if isinstance(fact, events.TokenDiscarded):
            return fact.token_id not in gone
        return fact.step_run_id not in gone


def _choose(plan: Plan, rerun: Rerun, original: JournalSummary, lineage: _Lineage) -> _StartingPoint:
    if rerun.step_run_id is not None:
        return _choose_run(rerun, rerun.step_run_id, lineage)
    if rerun.step is None:
        return _choose_failed(rerun, original, lineage)
    if rerun.step not in plan.steps:
        raise _Refused(no_step(plan, rerun.step))
    for step_run_id, token in reversed(lineage.runs.items()):
        if token.step == rerun.step:
            return _StartingPoint(token, step_run_id)
    for token_id, fact in reversed(lineage.enqueued.items()):
        is_waiting = token_id not in lineage.claimed and (plan.steps[rerun.step].join is None or bool(fact.joined))
        if fact.token.step == rerun.step and is_waiting:
            return _StartingPoint(fact.token)
    raise _Refused(Rejection("never_ran", f"execution {rerun.of} never reached step {rerun.step}"))


def _choose_run(rerun: Rerun, step_run_id: str, lineage: _Lineage) -> _StartingPoint:
    token = lineage.runs.get(step_run_id)
    if token is None or rerun.step not in (None, token.step):
        step = f" of step {rerun.step}" if rerun.step is not None else ""
        raise _Refused(Rejection("unknown_step", f"execution {rerun.of} has no run {step_run_id}{step}"))
    return _StartingPoint(token, step_run_id)


def _choose_failed(rerun: Rerun, original: JournalSummary, lineage: _Lineage) -> _StartingPoint:
    failing = original.failing
    if original.status != "failed":
        raise _Refused(Rejection("not_failed", f"execution {rerun.of} has not failed: its status is {original.status}"))
    if failing is not None and failing.failed_run in lineage.runs:
        return _StartingPoint(lineage.runs[failing.failed_run], failing.failed_run)
    if failing is not None and failing.failed_token in lineage.enqueued:
        return _StartingPoint(lineage.enqueued[failing.failed_token].token)
    text = f"no step run failed execution {rerun.of}: name the step to rerun from"
    raise _Refused(Rejection("not_failed", text))


def _in_pages(facts: Sequence[ReusedFact], original: str, most_bytes: int) -> Iterator[list[ReusedFact]]:
    page: list[ReusedFact] = []
    room, total = PAGE_BYTES, 0
    for fact in facts:
        size = len(codec.encode(fact)) + 1
        total += size
        if size > MOST_BYTES_OF_AN_ENTRY:
            text = f"a step run of execution {original} has {size} bytes to reuse; the most is {MOST_BYTES_OF_AN_ENTRY}"
            raise _Refused(Rejection("too_large", text))
        if total > most_bytes:
            text = f"the reused part of execution {original} exceeds limits.max_reused_bytes ({most_bytes})"
            raise _Refused(Rejection("too_large", text))
        if size > room and page:
            yield page
            page, room = [], PAGE_BYTES
        page.append(fact)
        room -= size
    yield page
