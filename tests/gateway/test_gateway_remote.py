"""The verbs over HTTP give what the same verbs give directly: documents, errors, events."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from gateway_playbooks import APPROVAL, FAILS, HELD, LOOP
from gateway_stage import TOKEN, GatewayStage
from msgspec.structs import replace

from noetl_stream.adapters.gateway_client.connection import GatewayConnection
from noetl_stream.adapters.gateway_client.verbs import gateway_operations
from noetl_stream.errors import NoetlError
from noetl_stream.model.events import (
    CancelRequested,
    CtxPatched,
    PauseRequested,
    ResumeRequested,
    SignalReceived,
    TokenInjected,
)
from noetl_stream.ports.operations import Operations
from noetl_stream.ports.operations.access import Access, CredentialStore, GrantsRegistry, NewToken
from noetl_stream.ports.operations.cluster import Cluster, Diagnosis
from noetl_stream.ports.operations.executions import (
    ExecutionFilter,
    Executions,
    RequestIds,
    RerunOptions,
    Start,
    StepRunRange,
)
from noetl_stream.ports.operations.playbooks import Playbooks
from noetl_stream.ports.operations.problems import PROBLEMS
from noetl_stream.ports.operations.reading.events import Feed
from noetl_stream.ports.operations.reading.views import Views
from noetl_stream.ports.operations.selections import BulkDocument, BulkOrder, Selections
from noetl_stream.ports.operations.starters import Schedules, TriggerEventDocument, Triggers
from noetl_stream.ports.operations.verbs import DocumentPage, plain
from noetl_stream.settings.gateway_settings import GatewayLimits
from noetl_stream.trigger.signatures import WebhookDelivery
from noetl_testkit.waiting import TIMEOUT_S

TRIGGER = """
apiVersion: noetl.io/v2
kind: Trigger
metadata: { name: hook, path: tests/hook }
spec: { on: { webhook: { verify: none } }, when: "{{ event.json.go }}", playbook: tests/loop, key: "{{ event.body }}" }
"""
PORTS = {
    "executions": Executions,
    "feed": Feed,
    "playbooks": Playbooks,
    "credentials": CredentialStore,
    "cluster": Cluster,
    "access": Access,
    "diagnosis": Diagnosis,
    "views": Views,
    "selections": Selections,
    "schedules": Schedules,
    "triggers": Triggers,
    "grants": GrantsRegistry,
}
SCHEDULE = """\
apiVersion: noetl.io/v2
kind: Schedule
metadata: { name: yearly, path: team/yearly }
spec: { playbook: tests/loop, cron: [ "0 0 1 1 *" ], timezone: Europe/Berlin }
"""
NAMES = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{12,64}|noetl_\w+")
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00")


class Transcript:
    """What was answered, with ids numbered in the order they came, and without times."""

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self._names: dict[str, str] = {}

    async def __call__(self, work: Awaitable[Any]) -> Any:
        try:
            answer = await work
        except NoetlError as error:
            kind = next(kind.name for kind in PROBLEMS if isinstance(error, kind.error))
            entry = (kind, error.message, error.hint, getattr(error, "diagnostics", None))
            self.lines.append(self._plain(entry))
            return None
        self.lines.append(self._plain(answer))
        return answer

    def _plain(self, value: Any) -> Any:
        if isinstance(value, DocumentPage | BulkDocument):
            return [self._plain(value.items), value.next is not None]
        if isinstance(value, msgspec.Struct):
            return self._plain(plain(value))
        if isinstance(value, dict):
            return {key: "…" if key.endswith("duration_s") else self._plain(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self._plain(one) for one in value]
        if isinstance(value, str):
            numbered = NAMES.sub(lambda found: self._names.setdefault(found[0], f"#{len(self._names)}"), value)
            return TIME.sub("T", numbered)
        return value


@pytest.fixture
async def remote(stage: GatewayStage) -> AsyncIterator[Operations]:
    async with remote_operations(stage) as operations:
        yield operations


@asynccontextmanager
async def remote_operations(stage: GatewayStage) -> AsyncIterator[Operations]:
    connection = GatewayConnection(stage.url, TOKEN, stage.clock)
    yield gateway_operations(connection)
    await connection.close()


async def test_every_verb_can_be_asked_of_a_gateway(stage: GatewayStage) -> None:
    """A verb has an address on its port, or a method of its own over HTTP."""
    async with remote_operations(stage) as operations:
        verbs = [(noun, verb) for noun, port in PORTS.items() for verb in vars(port) if not verb.startswith("_")]
        assert list(PORTS) == list(Operations.__struct_fields__) and len(verbs) > 30
        assert [(noun, verb) for noun, verb in verbs if not hasattr(getattr(operations, noun), verb)] == []


def who(request_id: str) -> tuple[str, str, str, str]:
    return (request_id, "token:local", "because, as Ünal said", "ticket-7")


async def act_on_many(operations: Operations, transcript: Transcript) -> None:
    selections, why = operations.selections, RerunOptions(reason="because, as Ünal said", correlation_id="ticket-7")
    for text in (FAILS, LOOP, HELD):
        await operations.playbooks.register(text.encode(), "playbook", "token:local")
    failed = (await transcript(operations.executions.start(Start("tests/fails"), "token:local"))).execution_id
    held = (await transcript(operations.executions.start(Start("tests/held"), "token:local"))).execution_id
    await operations.executions.wait(failed, TIMEOUT_S)
    everything = ExecutionFilter(("failed", "waiting"), "tests", {}, 0, 253_370_764_800_000)
    orders = (
        BulkOrder("cancel", chosen=everything, dry_run=True, limit=1),
        BulkOrder("pause", [held, failed, "nowhere"], options=why),
        BulkOrder("resume", chosen=ExecutionFilter(path="tests/held"), options=why),
        BulkOrder("cancel"),
        BulkOrder("retry", chosen=ExecutionFilter(error="missing", labels={"no": "such"})),
        BulkOrder("rerun", [failed], options=replace(why, step="nowhere", ctx={"a": 1}, args={"b": 2})),
        BulkOrder("delete", [failed, held], dry_run=True),
    )
    for number, order in enumerate(orders):
        ids = RequestIds("01890000-0000-7000-8000-000000000003", f"01890000-0000-7000-8000-00000000001{number}")
        await transcript(selections.act(order, "token:local", ids))
    await transcript(selections.groups(everything, "label:team"))
    counted = await selections.histogram(everything, 7)
    transcript.lines.append(
        [counted.counts, counted.complete, {name: sum(bars) for name, bars in counted.bars.items()}]
    )


async def run_approval(operations: Operations, transcript: Transcript) -> None:
    playbooks, executions = operations.playbooks, operations.executions
    await transcript(playbooks.register(APPROVAL.encode(), "approval.yaml", "token:local"))
    wanted = Start("examples/approval", workload={"amount": 250}, ctx={"seen": "é"}, reason="to try")
    ids = RequestIds("01890000-0000-7000-8000-000000000001", "01890000-0000-7000-8000-000000000002")
    held = (await transcript(executions.start(wanted, "token:local", ids))).execution_id
    await transcript(executions.start(wanted, "token:local", ids))
    await transcript(executions.ask(held, PauseRequested(*who("r1"))))
    await transcript(executions.ask(held, PauseRequested(*who("r2"))))
    await transcript(executions.ask(held, ResumeRequested(*who("r3"))))
    await transcript(executions.ask(held, SignalReceived(*who("r4"), signal="a/b c", payload=[1])))
    await transcript(executions.ask(held, TokenInjected(*who("r5"), step="nowhere")))
    await transcript(executions.ask(held, CtxPatched(*who("r6"), patch={"a": {"b": 1, "c": 2}}, expected_version=99)))
    await transcript(executions.ask(held, CtxPatched(*who("r7"), patch={"a": {"b": 1, "c": 2}})))
    await transcript(executions.ask(held, CtxPatched(*who("r8"), patch={"a": {"b": None}}, merge=True)))
    await transcript(executions.ctx(held))
    await transcript(executions.why(held))
    await transcript(executions.result(held))
    await transcript(executions.rerun(held, RerunOptions(), "token:local"))
    await transcript(executions.delete(held, "token:local"))
    await transcript(executions.ask(held, CtxPatched(*who("r9"), patch={"decision": "approved"})))
    ended = await executions.wait(held, TIMEOUT_S)
    assert ended.status == "completed"
    for look in (executions.get, executions.result, executions.steps, executions.why):
        await transcript(look(held))
    await transcript(executions.ask(held, CancelRequested(*who("r10"))))
    await transcript(executions.delete(held, "token:local"))
    await transcript(executions.get(held))


async def run_loop_and_rerun(operations: Operations, transcript: Transcript) -> None:
    playbooks, executions = operations.playbooks, operations.executions
    await transcript(playbooks.check(b"kind: Nothing", "no.yaml"))
    await transcript(executions.start(Start(playbook="kind: Nothing"), "token:local"))
    await transcript(executions.start(Start("nowhere/at/all", "1"), "token:local"))
    loop = (await executions.start(Start(playbook=LOOP), "token:local")).execution_id
    await executions.wait(loop, TIMEOUT_S)
    [run] = await transcript(executions.steps(loop))
    await transcript(executions.runs(loop, StepRunRange(0, 10, run.step, run.step_run_id)))
    await transcript(executions.runs(loop, StepRunRange(0, 10, order="duration")))
    await transcript(executions.run_result(loop, run.step_run_id))
    page = await transcript(executions.iterations(loop, run.step_run_id, 2, None))
    await transcript(executions.iterations(loop, run.step_run_id, 2, page.next))
    failed = (await executions.start(Start(playbook=FAILS), "token:local")).execution_id
    await executions.wait(failed, TIMEOUT_S)
    await transcript(executions.rerun(failed, RerunOptions("nowhere"), "token:local"))
    again = await executions.rerun(failed, RerunOptions(ctx={"missing": {"key": 1}}, reason="mended"), "token:local")
    await executions.wait(again.execution_id, TIMEOUT_S)
    await transcript(executions.get(again.execution_id))
    for chosen in (
        ExecutionFilter(("failed",)),
        ExecutionFilter(path="tests/loop", labels={"team": "sales"}),
        ExecutionFilter(error="missing"),
    ):
        await transcript(executions.page(chosen, 10, None))
    first = await transcript(executions.page(ExecutionFilter(started_from_ms=1, started_before_ms=2**41), 1, None))
    await transcript(executions.page(ExecutionFilter(), 2, first.next))
    await transcript(executions.page(ExecutionFilter(("failed",)), 1, "no cursor"))


async def _without_event(found: TriggerEventDocument) -> TriggerEventDocument:
    """It has the headers of the connection that it came by."""
    assert found.event is not None
    return replace(found, event=None)


async def use_triggers(operations: Operations, transcript: Transcript) -> None:
    triggers, by = operations.triggers, "token:local"
    register = operations.playbooks.register
    await transcript(register(TRIGGER.encode(), "hook.yaml", by))
    await register(LOOP.encode(), "loop.yaml", by)
    await transcript(register(TRIGGER.replace("none", "nobody").encode(), "hook.yaml", by))
    for _ in range(2):
        await transcript(register(TRIGGER.encode(), "hook.yaml", by))
    await transcript(triggers.get("tests/hook"))
    ids = RequestIds("01890000-0000-7000-8000-000000000003", "01890000-0000-7000-8000-000000000004")
    sent = WebhookDelivery(method="POST", headers={"content-type": "application/json"}, body=b'{"go": true}')
    started = await transcript(triggers.deliver("tests/hook", sent, ids))
    await operations.executions.wait(started.execution_id, TIMEOUT_S)
    await transcript(triggers.deliver("tests/nothing", sent, ids))
    await transcript(triggers.pause("tests/hook", by, "because, as Ünal said"))
    ids = RequestIds("01890000-0000-7000-8000-000000000005", "01890000-0000-7000-8000-000000000006")
    again = await triggers.resend("tests/hook", 1, by, "once more", ids)
    assert await triggers.resend("tests/hook", 1, by, "once more", ids) == again
    await transcript(_without_event(again))
    await transcript(triggers.resume("tests/hook", by))
    for status in (None, "ignored", "repeated"):
        await transcript(triggers.history("tests/hook", 1, None, status))
    await transcript(triggers.event("tests/hook", 99))
    await transcript(triggers.page("tests/", 10, None))
    await transcript(triggers.page("nowhere/", 10, None))
    await transcript(triggers.get("tests/hook"))
    for _ in range(2):
        await transcript(triggers.delete("tests/hook", by, "no longer needed"))


async def use_the_rest(operations: Operations, transcript: Transcript) -> None:
    playbooks, credentials, access = operations.playbooks, operations.credentials, operations.access
    await transcript(playbooks.register(LOOP.encode(), "loop.yaml", "token:local"))
    await transcript(playbooks.register(LOOP.replace("sales", "other").encode(), "loop.yaml", "token:local"))
    await transcript(playbooks.page("tests/", {"team": "sales"}, 10, None))
    await transcript(playbooks.page("", {}, 10, None, words="tests sales"))
    for look in (playbooks.get, playbooks.plan, playbooks.graph):
        await transcript(look("tests/loop", "1.0"))
    await transcript(playbooks.versions("tests/loop"))
    await transcript(playbooks.statistics("tests/loop", 1_700_000_000_000))
    await transcript(playbooks.statistics("tests/lopo"))
    await transcript(playbooks.schema())
    await transcript(playbooks.schema("Trigger"))
    await transcript(playbooks.diff("tests/loop", None, None))
    await transcript(playbooks.diff("tests/loop", "1.0", "7"))
    await transcript(playbooks.diff_text("tests/loop", "1.0", FAILS.encode(), "fails.yaml"))
    await transcript(playbooks.diff_text("tests/loop", None, b"\xff", "bytes.yaml"))
    await transcript(playbooks.get("tests/lopo", None))
    await transcript(playbooks.delete("tests/loop", "1.0", "token:local"))
    await transcript(
        credentials.put("sales_db", {"user": "ann", "password": "hidden"}, "token:local", "postgres", "x", ["a"])
    )
    await transcript(credentials.get("sales_db"))
    await transcript(credentials.list_all())
    await transcript(credentials.rotate("token:local"))
    await transcript(credentials.delete("sales_db", "token:local"))
    await transcript(credentials.get("sales_db"))
    token = await transcript(access.create_token(NewToken("ci", "operator", ("team",), 2**41), "token:local"))
    await transcript(access.create_token(NewToken("ci", "viewer"), "token:local"))
    await transcript(access.revoke_token(token.id, "token:local"))
    await transcript(access.tokens())
    await transcript(access.audit(1, None, "nobody"))
    await transcript(access.audit(1, None, operation="readCredential", target="sales_db", refused=False))
    cluster = operations.cluster
    for list_all in (cluster.pools, cluster.partitions):
        await transcript(list_all())
    await transcript(cluster.limits(10, None))
    await transcript(cluster.limit("customers/acme"))
    await transcript(cluster.dead_letters(10, None))
    await transcript(cluster.dead_letter("none"))
    await transcript(cluster.requeue("none", "token:local"))
    await transcript(cluster.discard("none", "token:local"))
    grants, text = operations.grants, "grants: [{paths: [ü], credentials: [a]}]".encode()
    for put in (
        grants.put(1, text, "token:local", "because"),
        grants.put(3, text, "token:local"),
        grants.put(2, b"[", ""),
    ):
        await transcript(put)
    for get in (grants.get(), grants.get(1), grants.get(2), grants.usable("ü/x"), grants.usable("a//b")):
        await transcript(get)


async def schedule_it(operations: Operations, transcript: Transcript) -> None:
    playbooks, schedules = operations.playbooks, operations.schedules
    text = SCHEDULE.encode()
    await transcript(playbooks.register(text, "too-early.yaml", "token:local"))
    await transcript(playbooks.register(LOOP.encode(), "loop.yaml", "token:local"))
    await transcript(playbooks.register(text, "yearly.yaml", "token:local"))
    for look in (schedules.get, schedules.upcoming):
        await transcript(look("team/yearly"))
    await transcript(schedules.upcoming("team/yearly", 2, 1_700_000_000_000))
    await transcript(schedules.page("team/", 10, None))
    await transcript(schedules.pause("team/yearly", "token:local", "because, as Ünal said"))
    await transcript(schedules.backfill("team/yearly", 1_500_000_000_000, 1_600_000_000_000, "token:local"))
    ids = RequestIds("01890000-0000-7000-8000-000000000001", "01890000-0000-7000-8000-000000000002")
    first = await transcript(schedules.run_now("team/yearly", "token:local", "", ids))
    again = await schedules.run_now("team/yearly", "token:local", "", ids)
    assert (again.number, again.execution_id) == (first.number, first.execution_id) and again.number == 1
    await operations.executions.wait(first.execution_id, TIMEOUT_S)
    started = await operations.executions.get(first.execution_id)
    assert started.origin is not None and (started.origin.path, started.origin.number) == ("team/yearly", 1)
    await transcript(schedules.resume("team/yearly", "token:local"))
    await transcript(schedules.backfill("team/yearly", 1_600_000_000_000, 1_500_000_000_000, "token:local"))
    await transcript(schedules.backfill("team/yearly", 1_600_000_000_000, 1_600_000_000_001, "token:local"))
    await transcript(schedules.backfill("team/yearly", 1_500_000_000_000, 1_600_000_000_000, "token:local", "skip"))
    await transcript(schedules.history("team/yearly", 10, None, "waiting"))
    await transcript(playbooks.delete("team/yearly", None, "token:local"))
    await transcript(schedules.delete("team/yearly", "token:local"))
    await transcript(schedules.delete("team/yearly", "token:local"))
    await transcript(schedules.get("team/yearly"))


SCENARIOS = [run_approval, run_loop_and_rerun, act_on_many, use_triggers, use_the_rest, schedule_it]


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_scenario_goes_the_same_way_over_http(
    stage: GatewayStage, scenario: Callable[[Operations, Transcript], Awaitable[None]]
) -> None:
    directly, over_http = Transcript(), Transcript()
    await scenario(stage.operations, directly)
    async with GatewayStage(GatewayLimits()).open() as other, remote_operations(other) as remote:
        await scenario(remote, over_http)
    assert over_http.lines == directly.lines
