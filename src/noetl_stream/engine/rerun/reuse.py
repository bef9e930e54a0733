"""What a rerun reuses of its original: all but the chosen step run and what descends from it (LANGUAGE §9 *Rerun*).

A step run that never ended, or failed the execution, begins anew, with the token it had. So do tokens that nobody who
is reused has consumed: they are where they were, and ask to be let in, or join, again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from noetl_stream.engine.decide.client_requests import no_step
from noetl_stream.engine.ids import rerun_token
from noetl_stream.engine.rerun.journal_summary import JournalSummary
from noetl_stream.model import codec, events
from noetl_stream.model.events import ExecutionRequested, ExecutionReused, Fact, Rerun, RerunRefused, ReusedFact, Token
from noetl_stream.model.rejection import Rejection
from noetl_stream.playbook.plan import Plan

PAGE_BYTES: Final = 256 * 1024
"""How much of what is reused stands in one journal entry."""

MOST_BYTES_OF_AN_ENTRY: Final = 2 * 1024 * 1024
"""A journal entry is published as one message: a step run that leaves more than this cannot be reused."""


class _Refused(Exception):
    def __init__(self, objection: Rejection) -> None:
        super().__init__(objection.text)
        self.objection = objection


class _Chosen(NamedTuple):
    """Where the rerun begins: a token, and the step run that consumed it (``""``: none has)."""

    token: Token
    step_run_id: str = ""


def reuse(plan: Plan, execution_id: str, request: ExecutionRequested, original: JournalSummary) -> Sequence[Fact]:
    """The inputs with which the rerun ``execution_id`` can begin: pages of ``execution.reused``; or the one that says
    why it cannot.
    """
    assert request.rerun is not None
    try:
        return tuple(_pages(plan, execution_id, request.rerun, request.digest, original))
    except _Refused as refused:
        return (refuse_rerun(refused.objection),)


def refuse_rerun(objection: Rejection) -> Fact:
    return RerunRefused(objection.code, objection.text)


def _pages(
    plan: Plan, execution_id: str, rerun: Rerun, digest: str, original: JournalSummary
) -> Iterator[ExecutionReused]:
    if original.digest != digest:
        text = f"execution {rerun.of} ran the playbook {original.digest}, not {digest}"
        raise _Refused(Rejection("version_mismatch", text))
    tracks = _Tracks(original.told)
    chosen = _choose(plan, rerun, original, tracks)
    kept = tracks.without(chosen)
    pages = list(_in_pages(kept, rerun.of, plan.limits.max_reused_bytes))
    token = chosen.token
    joined = tracks.enqueued[token.token_id].joined
    args = token.args if rerun.args is None else rerun.args
    token = replace(token, token_id=rerun_token(execution_id), cause="rerun", args=args)
    *others, last = enumerate(pages)
    for number, page in others:
        yield ExecutionReused(rerun.of, page, number)
    yield ExecutionReused(rerun.of, last[1], last[0], token, joined, original.workload)


class _Tracks:
    """Tokens and step runs of a past, and which descend from which."""

    def __init__(self, told: Sequence[ReusedFact]) -> None:
        self.told = told
        self.enqueued = {fact.token.token_id: fact for fact in told if isinstance(fact, events.TokenEnqueued)}
        claims = [fact for fact in told if isinstance(fact, events.TokenClaimed)]
        self.runs = {fact.step_run_id: self.enqueued[fact.token_id].token for fact in claims}
        self.claimed = {fact.token_id for fact in claims}
        reused = [fact for fact in told if isinstance(fact, events.StepReused)]
        routed = {fact.step_run_id for fact in told if isinstance(fact, events.NextEvaluated)}
        self.ended = {fact.step_run_id for fact in reused if fact.outcome is not None or fact.step_run_id in routed}

    def without(self, chosen: _Chosen) -> list[ReusedFact]:
        """What is told, but for the chosen token, what descends from it, and step runs that are to begin anew."""
        gone = {chosen.token.token_id, chosen.step_run_id}
        waves: dict[str, int] = {}
        kept: list[ReusedFact] = []
        discarded: list[ReusedFact] = []
        for fact in self.told:
            stays = self._stays(fact, gone, waves)
            if isinstance(fact, events.TokenDiscarded):
                discarded += [fact] if stays else []
                continue
            join = fact.token.token_id if isinstance(fact, events.TokenEnqueued) and fact.joined else ""
            if stays or join in ("", chosen.token.token_id):  # what was discarded for the sake of a join goes with it
                kept += discarded
            discarded = []
            kept += [fact] if stays else []
        return kept + discarded

    def _stays(self, fact: ReusedFact, gone: set[str], waves: dict[str, int]) -> bool:
        """Whether ``fact`` is reused; if not, what is gone with it is noted."""
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
            stays = fact.token_id not in gone and fact.step_run_id in self.ended
            if not stays:
                gone.add(fact.step_run_id)
            return stays
        if isinstance(fact, events.TokenAbsorbed):
            token = self.enqueued[fact.token_id].token
            return fact.token_id not in gone and token.waves.get(token.step, 0) < waves.get(token.step, 0)
        if isinstance(fact, events.TokenDiscarded):
            return fact.token_id not in gone
        return fact.step_run_id not in gone


def _choose(plan: Plan, rerun: Rerun, original: JournalSummary, tracks: _Tracks) -> _Chosen:
    if rerun.step_run_id is not None:
        return _choose_run(rerun, rerun.step_run_id, tracks)
    if rerun.step is None:
        return _choose_failed(rerun, original, tracks)
    if rerun.step not in plan.steps:
        raise _Refused(no_step(plan, rerun.step))
    for step_run_id, token in reversed(tracks.runs.items()):
        if token.step == rerun.step:
            return _Chosen(token, step_run_id)
    for token_id, fact in reversed(tracks.enqueued.items()):
        is_there = token_id not in tracks.claimed and (plan.steps[rerun.step].join is None or bool(fact.joined))
        if fact.token.step == rerun.step and is_there:
            return _Chosen(fact.token)
    raise _Refused(Rejection("never_ran", f"execution {rerun.of} never came to step {rerun.step}"))


def _choose_run(rerun: Rerun, step_run_id: str, tracks: _Tracks) -> _Chosen:
    token = tracks.runs.get(step_run_id)
    if token is None or rerun.step not in (None, token.step):
        step = f" of step {rerun.step}" if rerun.step is not None else ""
        raise _Refused(Rejection("unknown_step", f"execution {rerun.of} has no run {step_run_id}{step}"))
    return _Chosen(token, step_run_id)


def _choose_failed(rerun: Rerun, original: JournalSummary, tracks: _Tracks) -> _Chosen:
    failing = original.failing
    if original.status != "failed":
        raise _Refused(Rejection("not_failed", f"execution {rerun.of} has not failed: it is {original.status}"))
    if failing is not None and failing.failed_run in tracks.runs:
        return _Chosen(tracks.runs[failing.failed_run], failing.failed_run)
    if failing is not None and failing.failed_token in tracks.enqueued:
        return _Chosen(tracks.enqueued[failing.failed_token].token)
    text = f"no step run failed execution {rerun.of}: say from which step it is to be run again"
    raise _Refused(Rejection("not_failed", text))


def _in_pages(facts: Sequence[ReusedFact], original: str, most_bytes: int) -> Iterator[list[ReusedFact]]:
    page: list[ReusedFact] = []
    room, total = PAGE_BYTES, 0
    for fact in facts:
        size = len(codec.encode(fact)) + 1
        total += size
        if size > MOST_BYTES_OF_AN_ENTRY:
            text = f"a step run of execution {original} leaves {size} bytes, more than {MOST_BYTES_OF_AN_ENTRY}"
            raise _Refused(Rejection("too_large", text))
        if total > most_bytes:
            text = f"what is reused of execution {original} is larger than limits.max_reused_bytes ({most_bytes})"
            raise _Refused(Rejection("too_large", text))
        if size > room and page:
            yield page
            page, room = [], PAGE_BYTES
        page.append(fact)
        room -= size
    yield page
