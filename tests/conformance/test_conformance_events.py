"""What an event looks like to people and programs (LANGUAGE §13, formal §10), by one varied execution."""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import pytest
from engine_scenarios import given

from cli_program import HEAD, only_json
from noetl_stream.model.envelope import EventDocument
from noetl_stream.model.events import AnyFact
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")

PLAYBOOK = """\
metadata: {name: everything, path: tests/events}
executor: {spec: {policy: {failure: {mode: best_effort}}}}
workflow:
  - step: start
    next: {spec: {mode: inclusive}, arcs: [{step: many}, {step: shut}, {step: broken}]}
  - step: many
    loop: {in: [1, 2], iterator: n, spec: {mode: parallel, policy: {failure: {mode: best_effort}}}}
    tool: {name: divide, kind: python, args: {n: "{{ n }}"}, code: "return 1 / (n - 1)"}
  - step: shut
    spec: {policy: {admit: {rules: [{else: {then: {allow: false}}}]}}}
    tool: {kind: noop}
  - step: broken
    tool:
      name: again
      kind: python
      code: raise ValueError('it is broken')
      spec: {policy: {rules: [{when: "{{ outcome.error }}", then: {do: retry, attempts: 2, delay: 0}}]}}
"""
BY_CLIENT = {"execution.requested"}
BY_WORKER = re.compile(r"(step\.(started|done|failed)|task\..*|loop\.iteration\..*)\Z")
STATUSES = {
    "execution.requested": "in_progress",
    "execution.started": "in_progress",
    "token.enqueued": "in_progress",
    "step.started": "in_progress",
    "task.started": "in_progress",
    "loop.started": "in_progress",
    "loop.iteration.started": "in_progress",
    "token.held": "paused",
    "token.claimed": "success",
    "next.evaluated": "success",
    "loop.iteration.done": "success",
    "loop.iteration.failed": "error",
    "loop.done": "success",
    "step.failed": "error",
    "execution.finished": "success",
    "playbook.processed": "success",
}


@pytest.fixture(scope="module")
def journal(shared_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    """The events of one execution, as `execution events` shows them."""
    file = tmp_path_factory.mktemp("events") / "playbook.yaml"
    file.write_text(HEAD + PLAYBOOK)
    ended = only_json(noetl("run", file, "--home", shared_home, "-o", "json"))
    assert ended["status"] == "completed", ended
    yield only_json(noetl("execution", "events", ended["execution_id"], "--home", shared_home, "-o", "json"))


def named(journal: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    found = [event for event in journal if event["name"] == name]
    assert found, f"there is no {name}"
    return found


def test_the_envelope_has_every_field(journal: list[dict[str, Any]]) -> None:
    (execution_id,) = {event["execution_id"] for event in journal}
    assert len({event["event_id"] for event in journal}) == len(journal)
    assert [event["position"] for event in journal] == list(range(1, len(journal) + 1))
    for event in journal:
        assert event.keys() == set(EventDocument.__struct_fields__), "none is left out"
        assert event["event_id"] == f"{execution_id}.{event['position']}"
        assert datetime.fromisoformat(event["ts"]).utcoffset() is not None
        assert isinstance(event["data"], dict) and "name" not in event["data"]
    of_steps = [event for event in journal if event["entity"] in ("step", "task", "loop", "next")]
    assert of_steps and all(event["step_run_id"] for event in of_steps)


def test_the_source_says_who_spoke(journal: list[dict[str, Any]]) -> None:
    for event in journal:
        if event["name"] in BY_CLIENT:
            assert event["source"] == "client"
        elif BY_WORKER.match(event["name"]) and event["report_id"]:
            assert event["source"] == "worker"
        else:
            assert event["source"] == "server"
    for name in ("step.started", "task.started", "task.processed", "loop.iteration.failed"):
        assert {event["source"] for event in named(journal, name)} == {"worker"}


def test_the_status_is_one_of_four_and_fits_the_event(journal: list[dict[str, Any]]) -> None:
    assert {event["status"] for event in journal} == {"in_progress", "success", "error", "paused"}
    for name, status in STATUSES.items():
        assert {event["status"] for event in named(journal, name)} == {status}, name
    by_outcome = [(event["data"]["outcome"]["status"], event["status"]) for event in named(journal, "task.processed")]
    assert set(by_outcome) == {("ok", "success"), ("error", "error")}


def test_the_entity_id_names_the_instance(journal: list[dict[str, Any]]) -> None:
    step_runs = {event["data"]["token_id"]: event["data"]["step_run_id"] for event in named(journal, "token.claimed")}
    enqueued = {event["data"]["token"]["step"]: event["entity_id"] for event in named(journal, "token.enqueued")}
    assert {event["entity_id"] for event in named(journal, "token.claimed")} == set(step_runs)
    assert [event["entity_id"] for event in named(journal, "token.held")] == [enqueued["shut"]]
    broken, many = step_runs[enqueued["broken"]], step_runs[enqueued["many"]]
    assert [event["entity_id"] for event in named(journal, "step.failed")] == [broken]
    assert [event["entity_id"] for event in named(journal, "loop.done")] == [many]
    assert {event["entity_id"] for event in named(journal, "task.processed")} == {f"{broken}.again", f"{many}.divide"}
    (started,) = named(journal, "execution.started")
    assert started["entity_id"] == started["execution_id"]


def test_each_decision_names_the_input_it_follows_from(journal: list[dict[str, Any]]) -> None:
    inputs = {event["event_id"]: event for event in journal if event["cause_id"] is None}
    sources = {
        event["source"] for event in inputs.values() if event["name"] != "reference.resolved"
    }  # by a busy server
    assert sources == {"client", "worker"}
    followed = [(inputs[event["cause_id"]], event) for event in journal if event["cause_id"] is not None]
    assert followed and all(cause["position"] < event["position"] for cause, event in followed)
    routed = {event["data"]["event"]: cause["name"] for cause, event in followed if event["name"] == "next.evaluated"}
    assert routed["step.done"] in ("execution.requested", "reference.resolved")  # the second by a busy server
    assert routed["step.failed"] == "step.failed"
    assert routed["loop.done"] in ("loop.iteration.done", "loop.iteration.failed"), "whichever came last"


def test_all_events_carry_the_trace_of_their_execution(journal: list[dict[str, Any]]) -> None:
    (trace_id,) = {event["trace_id"] for event in journal}
    assert re.fullmatch("[0-9a-f]{32}", trace_id)
    outcomes = [event["data"]["outcome"] for event in named(journal, "task.processed")]
    assert {outcome["meta"]["trace_id"] for outcome in outcomes} == {trace_id}


def test_the_actor_is_the_person_the_worker_or_the_server(journal: list[dict[str, Any]]) -> None:
    (requested,) = named(journal, "execution.requested")
    assert requested["actor"] == getpass.getuser()
    assert {event["actor"] for event in named(journal, "next.evaluated")} == {"server"}


def test_the_actor_of_a_workers_event_is_that_worker(journal: list[dict[str, Any]]) -> None:
    for event in named(journal, "step.started"):
        assert event["actor"] == event["data"]["worker"]
    (worker,) = {event["actor"] for event in journal if event["source"] == "worker"}
    assert worker.startswith("worker-")


def test_guards_stand_with_their_text_and_value(journal: list[dict[str, Any]]) -> None:
    guards = [event["guards"] for event in named(journal, "task.processed") if event["task"] == "again"]
    assert guards == [[{"when": "{{ outcome.error }}", "value": True, "rule": 0}]] * 2
    assert {event["guards"] is None for event in named(journal, "task.started")} == {True}


def test_task_events_say_their_task_their_attempt_and_their_iteration(journal: list[dict[str, Any]]) -> None:
    for name in ("task.started", "task.processed"):
        named_tasks = [(event["task"], event["attempt"], event["iteration"] or []) for event in named(journal, name)]
        assert sorted(named_tasks) == [("again", 1, []), ("again", 2, []), ("divide", 1, [0]), ("divide", 1, [1])]
    others = [event for event in journal if event["entity"] in ("playbook", "workflow", "token", "next")]
    assert {(event["task"], event["attempt"], event["iteration"]) for event in others} == {(None, None, None)}


def test_events_say_which_tokens_they_consume_and_produce(journal: list[dict[str, Any]]) -> None:
    produced = [event["tokens_produced"] for event in named(journal, "token.enqueued")]
    assert produced == [[event["data"]["token"]["token_id"]] for event in named(journal, "token.enqueued")]
    consumed = [token for event in journal for token in event["tokens_consumed"] or ()]
    assert sorted(consumed) == sorted(token for tokens in produced for token in tokens)
    assert {event["name"] for event in journal if event["tokens_consumed"]} == {"token.claimed", "token.discarded"}


def test_every_event_has_the_digest_of_its_playbook(journal: list[dict[str, Any]]) -> None:
    (started,) = named(journal, "execution.started")
    assert {event["digest"] for event in journal} == {started["data"]["digest"]}


def test_names_of_events_are_dotted(journal: list[dict[str, Any]]) -> None:
    every = {str(fact.__struct_config__.tag) for fact in get_args(AnyFact)}
    assert {event["name"] for event in journal} <= every
    assert all(re.fullmatch(r"[a-z]+(\.[a-z_]+)+", name) for name in every)


def test_an_execution_is_pending_until_it_is_started() -> None:
    scenario = given("- step: start\n  tool: {kind: noop}\n")
    statuses = []
    scenario.start()
    for end in range(1, 4):
        scenario.journal, whole = scenario.journal[:end], scenario.journal
        replayed = scenario.replayed()
        assert replayed is not None
        statuses.append(replayed.status)
        scenario.journal = whole
    assert statuses == ["pending", "pending", "running"]
