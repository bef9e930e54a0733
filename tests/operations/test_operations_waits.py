"""What `execution get` says an execution waits for."""

from __future__ import annotations

from noetl_stream.model.envelope import iso
from noetl_stream.operations.waiting_on import BYTES_PER_OPERATION, GUARD_OPERATIONS, WAITS_EXPLAINED, awaited
from noetl_stream.ports.operations.verbs import plain
from noetl_stream.ports.operations.waits import AwaitedJoinDocument, AwaitedPoolDocument, GuardDocument
from noetl_testkit.scenario.scenario import Scenario

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: waits, path: tests/waits}
workflow:
  - step: start
    next: {spec: {mode: inclusive}, arcs: [{step: ear}, {step: gate}, {step: naps}, {step: tries}]}
  - step: ear
    tool: {name: hear, kind: wait, signal: go, timeout_s: 60}
  - step: gate
    spec:
      policy:
        admit:
          rules: [{when: "{{ ctx.open | default(false) }}", then: {allow: true}}]
          wait: {timeout_s: 120}
    tool: {kind: noop}
  - step: naps
    loop: {in: [10, 20], iterator: n, spec: {mode: parallel}}
    tool: {name: nap, kind: wait, for_s: "{{ iter.n }}"}
  - step: tries
    tool:
      name: try
      kind: noop
      spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 3, delay: 30}}]}}
"""


def waiting() -> Scenario:
    """Everything in it waits."""
    scenario = Scenario(PLAYBOOK)
    scenario.start()
    for index in (0, 1):
        scenario.done("naps", index=index)
    scenario.done("ear")
    scenario.failed("tries")
    return scenario


def test_everything_that_waits_is_named_with_its_end() -> None:
    scenario = waiting()
    began_ms = scenario.now_ms
    found = {(wait.step, *wait.iteration): wait for wait in awaited(scenario.execution, scenario.plan)}
    assert {key: (wait.task, wait.what) for key, wait in found.items()} == {
        ("ear",): ("hear", "signal go"),
        ("gate",): (None, "admission"),
        ("naps", 0): ("nap", "its time"),
        ("naps", 1): ("nap", "its time"),
        ("tries",): ("try", "its next attempt"),
    }
    assert [found[key].until for key in (("ear",), ("gate",), ("naps", 0), ("naps", 1))] == [
        iso(began_ms + 1000 * seconds) for seconds in (60, 120, 10, 20)
    ]


def test_each_wait_says_what_would_end_it() -> None:
    scenario = waiting()
    found = {(wait.step, *wait.iteration): wait.waiting_on for wait in awaited(scenario.execution, scenario.plan)}
    gate, ear, nap = found["gate",], found["ear",], found["naps", 0]
    assert [guard.missing for guard in gate.guards] == [["ctx.open"]] and gate.ctx == ["open"]
    assert gate.timer is not None and (gate.timer.purpose, gate.timer.on_timeout) == ("admission", "fail")
    assert ear.signal == "go" and ear.timer is not None
    assert plain(nap) == {"timer": {"purpose": "wait", "due": iso(scenario.now_ms + 10_000), "on_timeout": None}}


RESTING = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: rests, path: tests/rests}
workflow:
  - step: start
    next: {spec: {mode: inclusive}, arcs: [{step: ask}, {step: both}]}
  - step: ask
    next: {spec: {wait: {timeout_s: 60}}, arcs: [{step: both, when: "{{ ctx.approved }}"}]}
  - step: both
    spec: {join: all}
    tool: {kind: noop}
"""


def test_a_resting_branch_and_the_join_it_holds_back_are_named() -> None:
    scenario = Scenario(RESTING)
    scenario.start()
    branch, join = awaited(scenario.execution, scenario.plan)
    assert (branch.step, branch.what, branch.until) == ("ask", "next", iso(scenario.now_ms + 60_000))
    assert plain(branch.waiting_on)["ctx"] == ["approved"]
    assert (join.step, join.what) == ("both", "join")
    assert join.waiting_on.join == AwaitedJoinDocument("all", ["start"], ["a branch that rests at `ask`"])


def test_queued_commands_wait_for_a_worker_of_their_pool_until_one_has_them() -> None:
    scenario = Scenario(PLAYBOOK.replace("loop: {in: [10, 20]", "spec: {pool: gpu}\n    loop: {in: [10, 20]"))
    scenario.start()
    naps = next(wait for wait in awaited(scenario.execution, scenario.plan) if wait.step == "naps")
    ids = [one.command_id for one in scenario.execution.assignments.values() if one.path]
    assert (naps.what, naps.waiting_on.commands) == ("a worker of pool gpu", ids)
    assert naps.waiting_on.pool == AwaitedPoolDocument("gpu")
    scenario.take("ear").begin()
    assert "ear" not in {wait.step for wait in awaited(scenario.execution, None)}


def test_without_a_plan_guards_are_shown_as_they_were_recorded() -> None:
    scenario = Scenario(RESTING)
    scenario.start()
    branch, join = awaited(scenario.execution, None)
    assert branch.waiting_on.guards == [GuardDocument("{{ ctx.approved }}", False, {}, ["ctx.approved"], None)]
    assert join.waiting_on.join == AwaitedJoinDocument(None, ["start"], [])


def test_the_guards_of_many_waits_are_shown_within_bounds() -> None:
    scenario = Scenario(RESTING.replace("[{step: ask}, {step: both}]", f"[{', '.join(['{step: ask}'] * 60)}]"))
    scenario.start()
    branches = list(awaited(scenario.execution, scenario.plan))
    assert [len(branch.waiting_on.guards) for branch in branches] == [1] * WAITS_EXPLAINED + [0] * 10
    assert {branch.waiting_on.timer is not None for branch in branches} == {True}


def test_values_shown_are_charged() -> None:
    held = ", ".join(["{step: gate}"] * 50)
    playbook = PLAYBOOK.replace("[{step: ear}, {step: gate}, {step: naps}, {step: tries}]", f"[{held}]")
    scenario = Scenario(playbook.replace("ctx.open | default(false)", "ctx.open == 'yes'"))
    scenario.start(ctx={"open": "x" * 4000})
    shown = [wait.waiting_on.guards[0].values["ctx.open"] for wait in awaited(scenario.execution, scenario.plan)]
    assert shown[0] == "x" * 4000 and shown[-1] == "(too much to show here)"
    assert sum(map(len, shown)) < GUARD_OPERATIONS * BYTES_PER_OPERATION


def test_an_execution_that_got_what_it_waited_for_is_not_named() -> None:
    scenario = waiting()
    scenario.signal("go")
    (ear,) = [wait for wait in awaited(scenario.execution, scenario.plan) if wait.step == "ear"]
    assert ear.what == "a worker of pool default"


def test_an_execution_that_has_ended_waits_for_nothing() -> None:
    scenario = waiting()
    scenario.cancel()
    assert scenario.status == "cancelled"
    assert list(awaited(scenario.execution, scenario.plan)) == []
