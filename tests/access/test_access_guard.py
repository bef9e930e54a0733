"""The door: who is let in, and what stands in the audit of it all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from msgspec.structs import astuple

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.errors import Conflict, Forbidden, NoetlError, Unreachable, UsageError
from noetl_stream.gateway.access.audit import Auditor
from noetl_stream.gateway.access.authentication import Authentication, Network
from noetl_stream.gateway.access.guard import ADMISSION, CALLER, LOOKED_AT_EVERY_S, MOST_AT_ONCE, AccessGuard
from noetl_stream.gateway.http.problems import problem_of
from noetl_stream.operations.access import DirectAccess
from noetl_stream.ports.operations.access import NewToken
from noetl_stream.ports.operations.verbs import plain
from noetl_stream.ports.stores.identities import MAX_AUDIT_CHARACTERS, AuditedAnswer, AuditedCall, AuditEntry
from noetl_stream.storage.refusal_audit import ENTRIES_OF_ONE
from noetl_testkit.memory.access import MemoryAudit, MemorySessions, MemoryTokens

Client = TestClient[web.Request, web.Application]


class BreakableAudit(MemoryAudit):
    """``begin`` and ``answer`` fail where they are said to."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()

    async def begin(self, attempt: AuditedCall) -> int:
        if "begin" in self.broken:
            raise Unreachable("cannot reach Postgres")
        return await super().begin(attempt)

    async def answer(self, number: int, answer: AuditedAnswer) -> None:
        if "answer" in self.broken:
            raise Unreachable("cannot reach Postgres")
        await super().answer(number, answer)


@pytest.fixture
def audit() -> BreakableAudit:
    return BreakableAudit()


class GuardedApp:
    """A web application with one route to read and one to change, which does what ``error`` says."""

    def __init__(self, tokens: MemoryTokens, audit: MemoryAudit, clock: ManualClock) -> None:
        authentication = Authentication(tokens, MemorySessions(), clock)
        self.auditor = Auditor(audit, clock, keep_days=90)
        self.guard = AccessGuard(Network(), authentication, self.auditor, clock)
        self.do: Any = self._done
        self.error: Exception | None = None
        self.changed: list[str] = []
        self.application = web.Application(middlewares=[self._problems])
        self.application.router.add_get("/things/{name}", self._read)
        self.application.router.add_post("/things/{name}", self._change)

    @web.middleware
    async def _problems(self, request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            return await handler(request)
        except NoetlError as error:
            problem = problem_of(error, request.path)
            return web.json_response(plain(problem.document), status=problem.status)

    async def _read(self, request: web.Request) -> web.StreamResponse:
        return await self._guarded(request, least="viewer", operation="readThing", changes=False)

    async def _change(self, request: web.Request) -> web.StreamResponse:
        return await self._guarded(request, least="operator", operation="changeThing", changes=True)

    async def _guarded(self, request: web.Request, **route: Any) -> web.StreamResponse:
        async def prepare(_: web.Request) -> Any:
            return self.do

        return await self.guard.handle(request, prepare, admitted=lambda caller: nullcontext(), **route)

    async def _done(self, request: web.Request) -> web.StreamResponse:
        if self.error is not None:
            raise self.error
        if request.method == "POST":
            self.changed.append(request.match_info["name"])
        return web.json_response({"by": request[CALLER].principal}, headers={"Location": "/things/new%2Fone"})


async def running(app: GuardedApp) -> AsyncIterator[Client]:
    async with TestClient(TestServer(app.application)) as client:
        yield client


@pytest.fixture
def guarded_app(tokens: MemoryTokens, audit: BreakableAudit, clock: ManualClock) -> GuardedApp:
    return GuardedApp(tokens, audit, clock)


@pytest.fixture
async def closed(guarded_app: GuardedApp) -> AsyncIterator[Client]:
    async for client in running(guarded_app):
        yield client


async def shown(keeper: DirectAccess, role: Any) -> dict[str, str]:
    made = await keeper.create_token(NewToken(f"{role}-1", role), "ann")
    return {"Authorization": f"Bearer {made.secret}"}


async def recorded(audit: MemoryAudit) -> list[AuditEntry]:
    return await audit.page(100, None, None)


# Roles


async def test_a_handler_knows_who_calls(closed: Client, keeper: DirectAccess) -> None:
    answer = await closed.get("/things/x", headers=await shown(keeper, "viewer"))
    assert (answer.status, (await answer.json())["by"]) == (200, "token:viewer-1")


async def test_too_low_a_role_is_refused_and_what_was_tried_is_on_record(
    closed: Client, guarded_app: GuardedApp, keeper: DirectAccess, audit: MemoryAudit, clock: ManualClock
) -> None:
    answer = await closed.post("/things/x", headers=await shown(keeper, "viewer"))
    assert answer.status == 403
    assert guarded_app.changed == []
    (entry,) = await recorded(audit)
    assert entry.attempt == AuditedCall(
        at_ms=clock.now_ms(),
        principal="token:viewer-1",
        role="viewer",
        method="POST",
        operation="changeThing",
        target="x",
        correlation_id="",
        remote="127.0.0.1",
        idempotency_key="",
    )
    assert entry.answer == AuditedAnswer(403, "changeThing needs the role operator; token:viewer-1 has viewer")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_unknown_caller_is_refused_and_on_record(closed: Client, audit: MemoryAudit, method: str) -> None:
    answer = await closed.request(method, "/things/x", headers={"Authorization": "Bearer noetl_wrong"})
    assert answer.status == 401
    (entry,) = await recorded(audit)
    assert astuple(entry.attempt)[1:6] == ("", "", method, entry.attempt.operation, "x")
    assert entry.answer is not None and (entry.answer.status, entry.answer.made) == (401, "")
    assert "noetl_wrong" not in repr(entry)


async def test_two_headers_are_one_too_many(closed: Client, keeper: DirectAccess) -> None:
    both = [*(await shown(keeper, "admin")).items(), ("Authorization", "Bearer x")]
    assert (await closed.get("/things/x", headers=both)).status == 401


async def test_a_refusal_by_the_handler_itself_is_on_record(
    closed: Client, guarded_app: GuardedApp, keeper: DirectAccess, audit: MemoryAudit
) -> None:
    guarded_app.error = Forbidden("not this one")
    for method in ("GET", "POST"):
        assert (await closed.request(method, "/things/x", headers=await shown_once(keeper))).status == 403
    assert [entry.answer for entry in await recorded(audit)] == [AuditedAnswer(403, "not this one")] * 2


async def shown_once(keeper: DirectAccess) -> dict[str, str]:
    """A token of an operator with a name of its own."""
    name = f"operator-{len(await keeper.tokens())}"
    made = await keeper.create_token(NewToken(name, "operator"), "ann")
    return {"Authorization": f"Bearer {made.secret}"}


async def test_a_stream_ends_soon_after_its_token(
    guarded_app: GuardedApp, keeper: DirectAccess, clock: ManualClock
) -> None:
    looked: list[Any] = []

    async def streaming(request: web.Request) -> web.StreamResponse:
        for seconds in (0, LOOKED_AT_EVERY_S - 0.1, 0.1):
            clock.advance(seconds)
            await request[ADMISSION].look_again()
            looked.append(clock.monotonic_s())
            if not seconds:
                await keeper.revoke_token((await keeper.tokens())[0].id, "bob")
        raise AssertionError

    guarded_app.do = streaming
    async for client in running(guarded_app):
        assert (await client.get("/things/x", headers=await shown(keeper, "viewer"))).status == 401
    assert looked == [0, LOOKED_AT_EVERY_S - 0.1]


async def test_a_stream_continues_while_the_tokens_store_is_away(
    guarded_app: GuardedApp,
    keeper: DirectAccess,
    clock: ManualClock,
    tokens: MemoryTokens,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def away(token_id: str) -> None:
        raise Unreachable("cannot reach Postgres")

    async def streaming(request: web.Request) -> web.StreamResponse:
        monkeypatch.setattr(tokens, "get", away)
        clock.advance(LOOKED_AT_EVERY_S)
        await request[ADMISSION].look_again()
        return web.Response(text="goes on")

    guarded_app.do = streaming
    async for client in running(guarded_app):
        assert (await client.get("/things/x", headers=await shown(keeper, "viewer"))).status == 200


# Audit


async def test_a_change_is_on_record_with_its_answer_and_reading_is_not(
    closed: Client, keeper: DirectAccess, audit: MemoryAudit
) -> None:
    operator = await shown(keeper, "operator")
    more = {"Idempotency-Key": "k-1", "X-Correlation-Id": "c-1", "X-Reason": "gr%C3%BCn"}
    assert (await closed.get("/things/x", headers=operator)).status == 200
    assert (await closed.post("/things/x%2Fy", headers=operator | more, json={"secret": "s3cret"})).status == 200
    (entry,) = await recorded(audit)
    assert astuple(entry.attempt)[1:] == (
        "token:operator-1", "operator", "POST", "changeThing", "x/y", "c-1", "127.0.0.1", "k-1",
    )  # fmt: skip
    assert entry.answer == AuditedAnswer(200, "grün", "new/one")


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (Conflict("the secret s3cret is wrong"), AuditedAnswer(409, "conflict")),
        (UsageError("the body says s3cret"), AuditedAnswer(422, "invalid")),
        (RuntimeError("s3cret"), AuditedAnswer(500, "internal")),
    ],
)
async def test_a_change_that_fails_is_on_record_without_what_was_sent(
    closed: Client,
    guarded_app: GuardedApp,
    keeper: DirectAccess,
    audit: MemoryAudit,
    error: Exception,
    answer: AuditedAnswer,
) -> None:
    guarded_app.error = error
    assert (await closed.post("/things/x", headers=await shown(keeper, "operator"))).status == answer.status
    assert [entry.answer for entry in await recorded(audit)] == [answer]


async def test_a_change_that_cannot_be_put_on_record_is_not_made(
    closed: Client, guarded_app: GuardedApp, keeper: DirectAccess, audit: BreakableAudit
) -> None:
    audit.broken.add("begin")
    operator = await shown(keeper, "operator")
    assert (await closed.post("/things/x", headers=operator)).status == 503
    assert guarded_app.changed == []
    assert (await closed.get("/things/x", headers=operator)).status == 200


async def test_a_change_whose_answer_cannot_be_put_on_record_stays_without_one(
    closed: Client, guarded_app: GuardedApp, keeper: DirectAccess, audit: BreakableAudit
) -> None:
    audit.broken.add("answer")
    assert (await closed.post("/things/x", headers=await shown(keeper, "operator"))).status == 200
    assert guarded_app.changed == ["x"]
    assert [entry.answer for entry in await recorded(audit)] == [None]


async def test_a_refusal_stays_one_when_it_cannot_be_put_on_record(closed: Client, audit: BreakableAudit) -> None:
    audit.broken.add("begin")
    assert (await closed.get("/things/x")).status == 401


async def test_a_caller_that_keeps_guessing_must_wait(
    closed: Client, keeper: DirectAccess, audit: MemoryAudit, clock: ManualClock
) -> None:
    known = await shown(keeper, "viewer")
    assert (await closed.get("/things/x", headers=known)).status == 200
    guesses = [{"Authorization": f"Bearer noetl_{n:016x}_{n:064x}"} for n in range(MOST_AT_ONCE + 1)]
    assert [(await closed.get("/things/x", headers=guess)).status for guess in guesses] == [401] * MOST_AT_ONCE + [429]
    assert (await closed.get("/things/x", headers=guesses[0])).status == 401, "the same again is no guess"
    assert (await closed.get("/things/x", headers=known)).status == 200
    new = {"Authorization": f"Bearer {(await keeper.create_token(NewToken('new', 'viewer'), 'ann')).secret}"}
    assert (await closed.get("/things/x", headers=new)).status == 429
    clock.advance(2)
    assert (await closed.get("/things/x", headers=new)).status == 200


async def test_many_refusals_are_recorded_as_a_few_entries_and_a_number(
    closed: Client, guarded_app: GuardedApp, audit: MemoryAudit
) -> None:
    for _ in range(ENTRIES_OF_ONE + 20):
        assert (await closed.get("/things/x")).status == 401
    assert len(await recorded(audit)) == ENTRIES_OF_ONE
    await guarded_app.auditor.refusals.finish_sample()
    last, *others = await recorded(audit)
    assert last.answer is not None and (last.answer.status, last.answer.left_out) == (401, 19)
    assert [entry.answer.left_out for entry in others if entry.answer] == [0] * ENTRIES_OF_ONE


async def test_a_call_with_unstorable_values_is_recorded(closed: Client, audit: MemoryAudit) -> None:
    answer = await closed.get("/things/%00a%0Ab", headers={"X-Correlation-Id": "x" * 1000, "Idempotency-Key": "\udcff"})
    assert answer.status == 401
    (entry,) = await recorded(audit)
    assert entry.attempt.target == "?a?b"
    assert entry.attempt.correlation_id == "x" * MAX_AUDIT_CHARACTERS
    assert entry.attempt.idempotency_key.isprintable()
