"""Every route, with every role and every kind of token, good and bad: exactly who gets in."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from access_issuer import AUDIENCE, Issuer
from access_stack import Stack
from aiohttp import ClientSession

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.oidc import OidcProvider, ProviderKeys
from noetl_stream.gateway.access.audit import REFUSED
from noetl_stream.gateway.access.authentication import Authentication
from noetl_stream.ports.operations.access import NewToken
from noetl_stream.settings.gateway_settings import OidcSettings
from noetl_stream.storage.refusal_audit import SAMPLE_S
from noetl_testkit.waiting import until_it_is

PUBLIC = """
GET /livez
GET /readyz
GET /problems/{name}
POST /api/v1/session
POST /api/v1/hooks/{path}
"""

VIEWER = """
GET /metrics
GET /openapi.json
GET /api/v1/me
POST /api/v1/session/codes
DELETE /api/v1/session
GET /api/v1/executions
GET /api/v1/executions/histogram
GET /api/v1/executions/groups
GET /api/v1/executions/{execution_id}
GET /api/v1/executions/{execution_id}/result
GET /api/v1/executions/{execution_id}/steps
GET /api/v1/executions/{execution_id}/steps/{step_run_id}/result
GET /api/v1/executions/{execution_id}/steps/{step_run_id}/iterations
GET /api/v1/executions/{execution_id}/events
GET /api/v1/executions/{execution_id}/events/stream
GET /api/v1/executions/{execution_id}/logs
GET /api/v1/executions/{execution_id}/logs/stream
GET /api/v1/executions/{execution_id}/why
GET /api/v1/executions/{execution_id}/state
GET /api/v1/executions/{execution_id}/graph
GET /api/v1/executions/{execution_id}/diff/{other}
GET /api/v1/executions/{execution_id}/ctx/changes
GET /api/v1/executions/{execution_id}/calls
GET /api/v1/executions/{execution_id}/lineage
GET /api/v1/executions/{execution_id}/file
GET /api/v1/executions/{execution_id}/table
GET /api/v1/executions/{execution_id}/timeline
GET /api/v1/executions/{execution_id}/steps/{step_run_id}/strip
GET /api/v1/executions/{execution_id}/steps/{step_run_id}/iterations/summaries
GET /api/v1/executions/{execution_id}/ctx
GET /api/v1/events/stream
GET /api/v1/playbooks
POST /api/v1/playbooks/check
GET /api/v1/playbooks/{path}
GET /api/v1/playbooks/{path}/source
GET /api/v1/playbooks/{path}/plan
GET /api/v1/playbooks/{path}/graph
GET /api/v1/playbooks/{path}/versions
GET /api/v1/playbooks/{path}/diff
POST /api/v1/playbooks/{path}/diff
GET /api/v1/playbooks/{path}/statistics
GET /api/v1/playbooks/{path}/bundle
GET /api/v1/schema
GET /api/v1/schedules
GET /api/v1/schedules/{path}
GET /api/v1/schedules/{path}/upcoming
GET /api/v1/schedules/{path}/history
GET /api/v1/triggers
GET /api/v1/triggers/{path}
GET /api/v1/triggers/{path}/events
GET /api/v1/triggers/{path}/events/{number}
GET /api/v1/workers
GET /api/v1/pools
GET /api/v1/limits
GET /api/v1/limits/{key}
GET /api/v1/partitions
GET /api/vars/{execution_id}
GET /api/vars/{execution_id}/{var_name}
POST /mcp
"""

OPERATOR = """
POST /api/v1/executions
POST /api/v1/executions/{execution_id}/tokens
POST /api/v1/executions/{execution_id}/signals/{name}
POST /api/v1/executions/{execution_id}/cancel
POST /api/v1/executions/{execution_id}/pause
POST /api/v1/executions/{execution_id}/resume
POST /api/v1/executions/{execution_id}/retry-now
POST /api/v1/executions/{execution_id}/rerun
POST /api/v1/executions/{execution_id}/compensate
POST /api/v1/executions/{execution_id}/retry
PATCH /api/v1/executions/{execution_id}/ctx
POST /api/v1/bulk/cancel
POST /api/v1/bulk/pause
POST /api/v1/bulk/resume
POST /api/v1/bulk/retry
POST /api/v1/bulk/rerun
POST /api/v1/triggers/{path}/pause
POST /api/v1/triggers/{path}/resume
POST /api/v1/triggers/{path}/events/{number}/resend
POST /api/vars/{execution_id}
POST /api/v1/schedules/{path}/pause
POST /api/v1/schedules/{path}/resume
POST /api/v1/schedules/{path}/trigger
POST /api/v1/schedules/{path}/backfill
"""

AUTHOR = """
DELETE /api/v1/triggers/{path}
POST /api/v1/playbooks
DELETE /api/v1/playbooks/{path}
POST /api/v1/playbooks/{path}/bundle
DELETE /api/v1/schedules/{path}
GET /api/v1/credentials
GET /api/v1/credentials/{name}
GET /api/v1/playbooks/{path}/grants
"""

ADMIN = """
DELETE /api/v1/executions/{execution_id}
POST /api/v1/bulk/delete
POST /api/v1/credentials/rotate
PUT /api/v1/credentials/{name}
DELETE /api/v1/credentials/{name}
GET /api/v1/grants
PUT /api/v1/grants/{revision}
GET /api/v1/doctor
GET /api/v1/storage
GET /api/v1/dead-letters
GET /api/v1/dead-letters/{letter_id}
POST /api/v1/dead-letters/{letter_id}/requeue
DELETE /api/v1/dead-letters/{letter_id}
GET /api/v1/tokens
POST /api/v1/tokens
DELETE /api/v1/tokens/{token_id}
GET /api/v1/audit
GET /api/v1/audit/check
"""

RANKS = {"public": PUBLIC, "viewer": VIEWER, "operator": OPERATOR, "author": AUTHOR, "admin": ADMIN}
TABLE = {route: least for least, lines in RANKS.items() for route in lines.split("\n") if route}
READS = {"POST /api/v1/playbooks/check", "POST /api/v1/playbooks/{path}/diff", "POST /mcp"}
TOKENS_ONLY = "POST /api/v1/session/codes"
"""A session is of an API token: callers of the identity provider have their provider's."""

BODIES: dict[str, dict[str, Any]] = {route: {"ids": []} for route in TABLE if route.startswith("POST /api/v1/bulk/")}
"""Of routes that are not let in without one: of one caller, the audit keeps few refusals apart."""

BODIES["POST /api/v1/bulk/rerun"]["step"] = "start"

OWN_PAGE = {"Sec-Fetch-Site": "same-origin"}


class AccessStage(NamedTuple):
    """What credentials are made with, and a client of the gateway that looks at them."""

    stack: Stack
    issuer: Issuer
    client: ClientSession
    answered: dict[str, int]

    async def token(self, role: Any, expires_ms: int | None = None) -> str:
        return str((await self.stack.keeper.create_token(NewToken(f"{role}-1", role, (), expires_ms), "ann")).secret)

    async def revoked(self) -> str:
        secret = await self.token("admin")
        await self.stack.keeper.revoke_token(secret.split("_")[1], "ann")
        return secret

    async def expired(self) -> str:
        secret = await self.token("admin", self.stack.clock.now_ms() + 1)
        self.stack.clock.advance(1)
        return secret


def oidc(**claims: Any) -> Callable[[AccessStage], Awaitable[str]]:
    """An admin's, but for these claims."""
    return made(lambda stage: stage.issuer.token(**{"noetl_role": "admin"} | claims))


def made(make: Callable[[AccessStage], str]) -> Callable[[AccessStage], Awaitable[str]]:
    async def bearer(stage: AccessStage) -> str:
        return make(stage)

    return bearer


def soon_s(seconds: int) -> int:
    return int(time.time()) + seconds


HOLDING: dict[str, tuple[Callable[[AccessStage], Awaitable[str]], str]] = {
    **{f"token of {role}": (lambda stage, role=role: stage.token(role), role) for role in list(RANKS)[1:]},
    **{f"oidc token of {role}": (oidc(noetl_role=role), role) for role in list(RANKS)[1:]},
}

NOT_HOLDING: dict[str, Callable[[AccessStage], Awaitable[str]]] = {
    "token, expired": lambda stage: stage.expired(),
    "token, revoked": lambda stage: stage.revoked(),
    "token, truncated": made(lambda stage: f"noetl_{'0' * 16}_{'0' * 63}"),
    "token, unknown": made(lambda stage: f"noetl_{'0' * 16}_{'0' * 64}"),
    "garbage": made(lambda stage: "garbage"),
    "garbage of three parts": made(lambda stage: "a.b.c"),
    "oidc token, expired": oidc(exp=soon_s(-600)),
    "oidc token, not yet valid": oidc(nbf=soon_s(24 * 3600)),
    "oidc token, wrong audience": oidc(aud="another"),
    "oidc token, wrong issuer": oidc(iss="https://issuer.example"),
    "oidc token, alg none": made(lambda stage: stage.issuer.unsigned("none", noetl_role="admin")),
    "oidc token, HS256 with the public key": made(
        lambda stage: stage.issuer.signed_with_public_key(noetl_role="admin")
    ),
    "oidc token, unknown kid": oidc(kid="unheard-of"),
    "oidc token, another's key": oidc(key="another's"),
    "oidc token, truncated": made(lambda stage: stage.issuer.token(noetl_role="admin")[:-8]),
}


@pytest.fixture
async def stage(clock: ManualClock, issuer: Issuer) -> AsyncIterator[AccessStage]:
    stack = Stack(clock)
    keys = ProviderKeys(issuer.url, None, clock)
    authentication = Authentication(
        stack.tokens, stack.sessions, clock, OidcProvider(OidcSettings(issuer.url, AUDIENCE), keys)
    )
    async with stack.gateway(authentication) as client:
        yield AccessStage(stack, issuer, client, {})
    await keys.close()


async def outcomes(stage: AccessStage, headers: dict[str, str]) -> dict[str, str]:
    """For each route: ``no token``, ``no right``, or ``in``."""
    found: dict[str, str] = {}
    for route in TABLE:
        method, path = route.split(" ")
        url = re.sub(r"\{.*?\}", "nothing", path)
        asking = asyncio.ensure_future(
            stage.client.request(method, url, json=BODIES.get(route), headers=OWN_PAGE | headers)
        )
        while not asking.done():  # some routes wait for workers to answer
            stage.stack.clock.advance(1)
            await asyncio.sleep(0)
        answer = asking.result()
        assert answer.status != 500, route
        stage.answered[route] = answer.status
        found[route] = {401: "no token", 403: "no right"}.get(answer.status, "in")
        assert ("WWW-Authenticate" in answer.headers) == (answer.status == 401)
        assert answer.headers["X-Content-Type-Options"] == "nosniff", route
        assert answer.headers["Cache-Control"] == "no-store", route
        answer.close()
    return found


async def test_the_table_has_every_route(stage: AccessStage) -> None:
    token = {"Authorization": f"Bearer {await stage.token('viewer')}"}
    document = await (await stage.client.get("/openapi.json", headers=token)).json()
    served = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert served == TABLE.keys()


@pytest.mark.parametrize("name", HOLDING)
async def test_a_token_that_holds_gets_as_far_as_its_role(stage: AccessStage, name: str) -> None:
    make, role = HOLDING[name]
    ranks = list(RANKS)
    expected = {
        route: "in" if ranks.index(least) <= ranks.index(role) else "no right" for route, least in TABLE.items()
    }
    if name.startswith("oidc"):
        expected[TOKENS_ONLY] = "no right"
    assert await outcomes(stage, {"Authorization": f"Bearer {await make(stage)}"}) == expected
    await check_audit(stage, expected, 403)


@pytest.mark.parametrize("name", [*NOT_HOLDING, "none", "Basic"])
async def test_requests_without_a_valid_token_reach_nothing(stage: AccessStage, name: str) -> None:
    headers = {"none": {}, "Basic": {"Authorization": "Basic YTpi"}}.get(name)
    if headers is None:
        headers = {"Authorization": f"Bearer {await NOT_HOLDING[name](stage)}"}
    expected = {route: "in" if least == "public" else "no token" for route, least in TABLE.items()}
    assert await outcomes(stage, headers) == expected
    await check_audit(stage, expected, 401)


async def test_a_known_caller_without_a_role_reaches_nothing(stage: AccessStage) -> None:
    bearer = stage.issuer.token(noetl_role=None)
    expected = {route: "in" if least == "public" else "no right" for route, least in TABLE.items()}
    assert await outcomes(stage, {"Authorization": f"Bearer {bearer}"}) == expected
    await check_audit(stage, expected, 403)


async def check_audit(stage: AccessStage, expected: dict[str, str], refused_by: int) -> None:
    """Every refusal counts in the audit, and every change that was let in; nothing else."""
    changes = {
        route for route in expected if not route.startswith("GET") and TABLE[route] != "public" and route not in READS
    }
    refused = {route for route, status in stage.answered.items() if status in REFUSED}
    let_in = {route for route in changes if expected[route] == "in"}

    async def counted() -> tuple[int, int]:
        stage.stack.clock.advance(SAMPLE_S)  # what got no entry within a minute is then counted in one
        answers = [entry.answer for entry in await stage.stack.audit.page(1000, None, None) if entry.answer]
        numbers = Counter({answer.status: 0 for answer in answers})
        for answer in answers:
            numbers[answer.status] += 1 + answer.left_out
        return numbers[refused_by], numbers.total()

    await until_it_is((sum(outcome != "in" for outcome in expected.values()), len(refused | let_in)), counted)
