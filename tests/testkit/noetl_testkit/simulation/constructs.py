"""Which constructs of the language a simulation reached: what its journals tell, not what its playbooks say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from noetl_stream.model import events
from noetl_stream.model.events import Fact
from noetl_stream.model.json import codec
from noetl_stream.playbook.plan import Plan
from noetl_testkit.simulation.roles import check_once
from noetl_testkit.simulation.world import KINDS, SimulatedWorld

Reached = Callable[[Any], bool]
"""Whether a fact of the type it is listed under shows the construct."""


def _always(fact: Any) -> bool:
    return True


def _failed_as(*kinds: str) -> Reached:
    return lambda fact: fact.error is not None and fact.error.kind in kinds


def _does(directive: str) -> Reached:
    return lambda fact: bool(fact.do == directive)


def _shares(operation: str) -> Reached:
    return lambda fact: any(one.op == operation for one in fact.set_shared.values())


def _fires(purpose: str) -> Reached:
    return lambda fact: bool(fact.purpose == purpose)


def _waits_for(field: str) -> Reached:
    return lambda fact: any(getattr(wait, field) is not None for wait in fact.waits)


def _orders(order: str) -> Reached:
    return lambda fact: bool(fact.order == order)


def _comes_by(cause: str) -> Reached:
    return lambda fact: bool(fact.token.cause == cause)


def _written_as(word: str) -> Reached:
    return lambda fact: bool(fact.origin.startswith(word))


def _ends(status: str) -> Reached:
    return lambda fact: bool(fact.status == status)


TASKS: Final[dict[str, Reached]] = {
    "policy: continue": _does("continue"),
    "policy: retry": _does("retry"),
    "policy: jump": _does("jump"),
    "policy: break": _does("break"),
    "policy: fail": _does("fail"),
    "policy: unmatched": lambda fact: bool(fact.unmatched),
    "policy: retries exhausted": _failed_as("retries_exhausted"),
    "set_ctx": lambda fact: bool(fact.set_ctx),
    "set_iter": lambda fact: bool(fact.set_iter),
    "set_vars": lambda fact: bool(fact.set_vars),
    **{f"set_shared: {op}": _shares(op) for op in ("add", "count", "max", "append", "union", "merge")},
    "choose": _written_as("choose"),
    "while": _written_as("while"),
    "until": _written_as("until"),
    "result by reference": lambda fact: fact.outcome.result.reference is not None,
    "result schema": lambda fact: fact.outcome.error is not None and fact.outcome.error.kind == "schema_mismatch",
    "task timeout": lambda fact: fact.outcome.error is not None and fact.outcome.error.kind == "timeout",
    "call of a playbook that fails": lambda fact: (
        fact.outcome.error is not None and fact.outcome.error.kind == "child_failed"
    ),
    "limits.max_task_runs": _failed_as("limit_exceeded"),
}

CONSTRUCTS: Final[dict[type[Fact], dict[str, Reached]]] = {
    events.TaskProcessed: TASKS,
    events.TokenHeld: {"admission: held": _always, "admission: wait": lambda fact: bool(fact.keeps_alive)},
    events.TokenDiscarded: {"token discarded": _always},
    events.TokenAbsorbed: {"join: absorbed": _always},
    events.TokenJoined: {"join: waits": _always},
    events.TokenClaimed: {
        "admission: timed out": lambda fact: fact.refused is not None and fact.refused.kind == "admission_timeout",
        "join: unsatisfied": lambda fact: fact.refused is not None and fact.refused.kind == "join_unsatisfied",
        "lifecycle: deadline": lambda fact: fact.refused is not None and fact.refused.kind == "timeout",
    },
    events.TokenEnqueued: {
        "join: fired": _comes_by("join"),
        "token injected": _comes_by("injected"),
        "rerun from a step": _comes_by("rerun"),
    },
    events.NextEvaluated: {
        "next: fires several arcs": lambda fact: len(fact.fired) > 1,
        "next: no arc fires": lambda fact: not fact.fired,
        "next: guard holds": lambda fact: any(guard.value for guard in fact.guards),
        "next: guard does not hold": lambda fact: any(not guard.value for guard in fact.guards),
        "next: routes a failure": lambda fact: fact.event == "step.failed" and bool(fact.fired),
        "next: timed out": lambda fact: fact.event == "next.timed_out",
    },
    events.NextResting: {"next: wait": _always},
    events.LoopStarted: {
        "loop: distributed": lambda fact: not fact.local,
        "loop: local": lambda fact: bool(fact.local),
        "loop: nested": lambda fact: bool(fact.path),
        "loop: parallel": lambda fact: fact.max_in_flight > 1,
        "loop: sequential": lambda fact: fact.max_in_flight == 1 and fact.count > 1,
        "loop: empty": lambda fact: fact.count == 0,
        "loop: items named": lambda fact: bool(fact.source),
    },
    events.LoopPagedOut: {"loop: paged out": _always},
    events.LoopDone: {
        "loop: best effort": lambda fact: fact.failed > 0,
    },
    events.LoopIterationFailed: {"loop: iteration failed": _always},
    events.StepFailed: {
        "loop: too many failures": _failed_as("too_many_failures"),
        "lifecycle: timeout": _failed_as("timeout"),
        "expression error": _failed_as("expression_error"),
    },
    events.StepCancelled: {"step cancelled": _always},
    events.StepSuspended: {
        "retry: long delay": _waits_for("delay_s"),
        "wait: for_s": _waits_for("for_s"),
        "wait: until": _waits_for("until_ms"),
        "wait: signal": _waits_for("signal"),
        "call of a playbook": _waits_for("child"),
        "loop: paused": lambda fact: bool(fact.paused),
    },
    events.StepResumed: {"step resumed": _always},
    events.TimerFired: {
        f"timer: {purpose}": _fires(purpose)
        for purpose in ("wait", "admission", "next", "step", "deadline", "execution")
    },
    events.ChildOrdered: {f"child: {order}": _orders(order) for order in ("cancel", "pause", "resume")},
    events.SignalReceived: {"signal": _always},
    events.CtxPatched: {"ctx patched": lambda fact: not fact.merge, "ctx merged": lambda fact: bool(fact.merge)},
    events.CtxOverwrote: {"ctx overwritten": _always},
    events.CtxPatchDiscarded: {"ctx patch discarded": _always},
    events.CancelRequested: {"cancel": _always},
    events.ExecutionPaused: {"pause": _always},
    events.ExecutionResumed: {"resume": _always},
    events.ExecutionReused: {"rerun": _always},
    events.ReferenceResolved: {"reference: looked into": _always},
    events.EvaluationFinished: {"budget: evaluated elsewhere": _always},
    events.ExecutionFailing: {"failure: unhandled": _always},
    events.ExecutionFinished: {
        **{f"ends: {status}": _ends(status) for status in ("completed", "failed", "cancelled")},
        "tolerated failures": lambda fact: bool(fact.tolerated),
        "result: given": lambda fact: fact.outcome.status == "ok",
    },
}
"""The constructs that facts show, by the type of the fact."""

JOINS: Final = {"join: all", "join: any", "join: n"}

NAMES: Final = frozenset({name for named in CONSTRUCTS.values() for name in named} | JOINS)


async def constructs_of(world: SimulatedWorld) -> frozenset[str]:
    """The constructs that the journals of a simulation show."""
    found: set[str] = set()
    for execution_id, row in world.store.tables.executions.items():
        source = await world.store.playbook(row.digest)
        plan = check_once(source.source, KINDS).plan if source is not None else None
        journal = await world.store.journal(execution_id, -1)
        found.update(reached((codec.decode_fact(entry.data) for entry in journal), plan))
    return frozenset(found)


def reached(facts: Iterable[Fact], plan: Plan | None) -> Iterator[str]:
    """The constructs that a journal shows."""
    for fact in facts:
        for name, shows in CONSTRUCTS.get(type(fact), {}).items():
            if shows(fact):
                yield name
        if plan is not None and isinstance(fact, events.TokenEnqueued) and fact.token.cause == "join":
            join = plan.steps[fact.token.step].join
            yield f"join: {join if isinstance(join, str) else 'n'}"
