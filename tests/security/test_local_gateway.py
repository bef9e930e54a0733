"""A gateway on loopback: other users of the machine, proxies that nobody named, pages in a browser, stolen links."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, DummyCookieJar
from gateway_browser import Browser
from gateway_stage import AS_ADMIN, TOKEN, TOKEN_ID, GatewayStage
from openapi_checks import Described

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.errors import LocalStackError, UsageError
from noetl_stream.gateway.access.authentication import CODE_MS, Network
from noetl_stream.gateway.gateway import BY_ADDRESS
from noetl_stream.hosting.dev_stack import GATEWAY_PORT, DevGateway, gateway_socket
from noetl_stream.local.gateway_address import ensure_token
from noetl_stream.ports.stores.identities import TOKEN_TEXT, StoredCode, hash_of
from noetl_stream.settings.gateway_settings import GatewayLimits
from noetl_testkit.memory.access import MemoryTokens

SHELL = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: shell, path: tests/shell}
workflow: [{step: only, tool: {kind: shell, command: id}}]
"""
RUN_A_SHELL = {"playbook": SHELL}
EXECUTIONS = "/api/v1/executions"


@asynccontextmanager
async def gateway(network: Network = BY_ADDRESS, **given: Any) -> AsyncIterator[GatewayStage]:
    stage = GatewayStage(GatewayLimits(), network=network, **given)
    async with stage.open():
        yield stage


@pytest.fixture
async def stage() -> AsyncIterator[GatewayStage]:
    """A gateway whose client has no token."""
    async with gateway(signed_in=False) as opened:
        yield opened


@pytest.fixture
async def browser(stage: GatewayStage) -> AsyncIterator[Browser]:
    """A browser that has signed in."""
    async with ClientSession(stage.url, cookie_jar=DummyCookieJar()) as client:
        async with client.get("/openapi.json", headers=AS_ADMIN) as response:
            api = Described(client, await response.json())
        signed_in = Browser(stage.url, api)
        await signed_in.sign_in((await api.call("createSignInCode", headers=AS_ADMIN)).body["code"])
        yield signed_in


async def started(stage: GatewayStage) -> int:
    """How many executions there are."""
    async with stage.client.get(EXECUTIONS, headers=AS_ADMIN) as response:
        return len((await response.json())["items"])


# Other users of the machine


async def test_nobody_runs_a_shell_as_the_developer(stage: GatewayStage) -> None:
    for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {TOKEN[:-1]}1"}):
        async with stage.client.post(EXECUTIONS, json=RUN_A_SHELL, headers=headers) as response:
            assert response.status == 401
    assert await started(stage) == 0
    async with stage.client.post(EXECUTIONS, json=RUN_A_SHELL, headers=AS_ADMIN) as response:
        assert response.status == 202


@pytest.mark.parametrize("path", ["/metrics", "/openapi.json", "/api/v1/me", "/api/v1/workers", "/api/v1/playbooks"])
async def test_without_a_token_nothing_but_health_answers(stage: GatewayStage, path: str) -> None:
    assert (await stage.client.get(path)).status == 401
    assert (await stage.client.get("/livez")).status == 200
    assert (await stage.client.get("/readyz")).status == 200


async def test_the_token_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    tokens, clock = MemoryTokens(), SystemClock()
    made = {await ensure_token(tmp_path, tokens, clock) for _ in range(2)}
    (text,) = made
    spelt = TOKEN_TEXT.fullmatch(text)
    assert spelt is not None
    assert (tmp_path / "gateway.token").stat().st_mode & 0o777 == 0o600
    (token,) = await tokens.list_all()
    assert (token.id, token.name, token.role, token.secret_hash) == (spelt[1], "local", "admin", hash_of(spelt[2]))


async def test_a_revoked_or_lost_token_is_replaced_and_the_old_one_does_not_hold(tmp_path: Path) -> None:
    tokens, clock = MemoryTokens(), SystemClock()
    first = await ensure_token(tmp_path, tokens, clock)
    (stored,) = await tokens.list_all()
    await tokens.revoke(stored.id, clock.now_ms(), "ann")
    second = await ensure_token(tmp_path, tokens, clock)
    (tmp_path / "gateway.token").unlink()
    third = await ensure_token(tmp_path, tokens, clock)
    assert len({first, second, third}) == 3
    holding = [token.id for token in await tokens.list_all() if token.holds(clock.now_ms())]
    assert holding == [third.split("_")[1]]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
async def test_a_token_that_others_may_know_or_have_put_there_is_refused(tmp_path: Path, mode: int) -> None:
    tokens, clock = MemoryTokens(), SystemClock()
    await ensure_token(tmp_path, tokens, clock)
    (tmp_path / "gateway.token").chmod(mode)
    with pytest.raises(LocalStackError, match="other users may open"):
        await ensure_token(tmp_path, tokens, clock)


# Two stacks at once


def test_two_stacks_that_start_in_the_same_moment_do_not_meet() -> None:
    """Each socket is bound and listens from the moment in which its port is chosen."""
    with gateway_socket(0) as one, gateway_socket(0) as other:
        first, second = DevGateway(one, None), DevGateway(other, None)
        assert first.port != second.port
        with pytest.raises(UsageError, match="is already in use"):
            gateway_socket(first.port)


async def test_dev_says_that_its_port_is_another_one() -> None:
    with gateway_socket(0) as one, gateway_socket(0) as other:
        ports = {}
        for found in (DevGateway(one, None), DevGateway(other, None)):
            ports[found.port] = " ".join(await found.lines())
    for port, said in ports.items():
        assert (f"on port {port}, not {GATEWAY_PORT}" in said) == (port != GATEWAY_PORT)
    assert len(ports) == 2


# Proxies

FORWARDED = ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Via", "X-Client-IP"]


@pytest.mark.parametrize("name", [*FORWARDED, "x-forwarded-anything", "X-Original-URL", "CF-Connecting-IP"])
async def test_a_forwarded_request_is_refused(stage: GatewayStage, name: str) -> None:
    """A proxy that somebody put in front of a developer's gateway would open it to all of the proxy's clients."""
    async with stage.client.get("/api/v1/me", headers={name: "203.0.113.7", **AS_ADMIN}) as response:
        assert response.status == 403
        assert "NOETL_GATEWAY_TRUSTED_PROXIES" in (await response.json(content_type=None))["hint"]
    (entry,) = await stage.audit.page(10, None, None)
    assert (entry.attempt.operation, entry.attempt.remote) == ("me", "127.0.0.1")


@pytest.mark.parametrize(
    ("forwarded_for", "client"),
    [
        (["203.0.113.7"], "203.0.113.7"),
        (["198.51.100.1, 203.0.113.7"], "203.0.113.7"),
        (["198.51.100.1", "203.0.113.7, 10.0.3.9"], "203.0.113.7"),
        (["10.0.3.9"], "10.0.3.9"),
        (["::ffff:203.0.113.7"], "203.0.113.7"),
        ([], "127.0.0.1"),
    ],
)
async def test_of_a_trusted_proxy_the_client_counts_and_nothing_that_it_invents(
    forwarded_for: list[str], client: str
) -> None:
    network = Network(proxies=(ip_network("127.0.0.0/8"), ip_network("10.0.3.0/24")))
    async with gateway(network) as stage:
        headers = [("X-Forwarded-For", value) for value in forwarded_for]
        body = {"name": "ci", "role": "viewer"}
        async with stage.client.post("/api/v1/tokens", json=body, headers=headers) as response:
            assert response.status == 201
        (entry,) = await stage.audit.page(10, None, None)
        assert entry.attempt.remote == client


async def test_a_proxy_that_reports_no_address_is_refused() -> None:
    async with gateway(Network(proxies=(ip_network("127.0.0.1"),))) as stage:
        headers = {"X-Forwarded-For": "203.0.113.7, unknown"}
        assert (await stage.client.get("/api/v1/me", headers=headers)).status == 403


# Names

OWN_NAMES = ["localhost", "localhost:8080", "127.0.0.1", "127.0.0.1:8080", "[::1]:8080", "127.9.9.9"]
FOREIGN_NAMES = [
    "printer",
    "printer:8080",
    "evil.example",
    "evil.example:8080",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "localhost.",
    "192.168.1.7",
    "0.0.0.0:8080",
    "[::1",
    "",
]


@pytest.mark.parametrize("name", OWN_NAMES)
async def test_an_address_of_this_machine_cannot_be_turned(stage: GatewayStage, name: str) -> None:
    assert (await stage.client.get("/api/v1/me", headers={"Host": name, **AS_ADMIN})).status == 200


@pytest.mark.parametrize("name", FOREIGN_NAMES)
@pytest.mark.parametrize("path", ["/api/v1/me", "/problems/forbidden"])
async def test_a_name_that_was_turned_to_this_address_gets_nothing(stage: GatewayStage, name: str, path: str) -> None:
    """DNS rebinding: the page has an origin of its own, so no other header gives it away."""
    headers = {"Host": name, "Sec-Fetch-Site": "same-origin", **AS_ADMIN}
    assert (await stage.client.get(path, headers=headers)).status == 403
    assert (await stage.client.get("/livez", headers={"Host": name})).status == 200


async def test_a_configured_name_is_answered() -> None:
    async with gateway(Network(hosts=frozenset({"noetl.example.com"}))) as stage:
        for name, status in (("noetl.example.com", 200), ("NOETL.example.com:443", 200), ("example.com", 403)):
            assert (await stage.client.get("/api/v1/me", headers={"Host": name})).status == status, name


# Pages of a browser

FOREIGN_PAGES: dict[str, dict[str, str]] = {
    "of another host": {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    "of another host, in an old browser": {"Origin": "https://evil.example", "Sec-Fetch-Site": ""},
    "of another port": {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"},
    "without an origin": {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
    "of a name that begins alike": {"Origin": "http://127.0.0.1.evil.example", "Sec-Fetch-Site": "cross-site"},
    "with a broken origin": {"Origin": "http://[::1", "Sec-Fetch-Site": "cross-site"},
    "an image of another site": {"Origin": "", "Sec-Fetch-Site": "cross-site"},
}


@pytest.mark.parametrize("page", FOREIGN_PAGES)
async def test_the_cookie_does_not_count_for_a_page_of_another_origin(
    stage: GatewayStage, browser: Browser, page: str
) -> None:
    browser.headers = {name: value for name, value in FOREIGN_PAGES[page].items() if value}
    assert (await browser.call("me")).status == 403
    assert (await browser.call("startExecution", body=RUN_A_SHELL)).status == 403
    assert await started(stage) == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"X-CSRF-Token": ""},
        {"X-CSRF-Token": "0" * 64},
        {"X-CSRF-Token": "\udcff"},
        {"Origin": "", "Sec-Fetch-Site": ""},
        {"Origin": "", "Sec-Fetch-Site": "none"},
    ],
)
async def test_a_change_needs_more_than_the_session_cookie(
    stage: GatewayStage, browser: Browser, changed: dict[str, str]
) -> None:
    """Programs of other users on other ports of this host get the cookie too, and can send what headers they like."""
    browser.headers = {name: value for name, value in {**browser.headers, **changed}.items() if value}
    assert (await browser.call("startExecution", body=RUN_A_SHELL)).status == 403
    assert await started(stage) == 0


async def test_the_page_of_the_gateway_itself_changes_things(stage: GatewayStage, browser: Browser) -> None:
    for missing in ("Origin", "Sec-Fetch-Site"):
        kept = browser.headers
        browser.headers = {name: value for name, value in kept.items() if name != missing}
        assert (await browser.call("startExecution", body=RUN_A_SHELL)).status == 202
        browser.headers = kept
    assert await started(stage) == 2


async def test_a_token_beside_the_cookie_is_the_one_that_counts(stage: GatewayStage, browser: Browser) -> None:
    assert (await browser.call("me", headers={"Authorization": f"Bearer {TOKEN[:-1]}1"})).status == 401


async def test_a_preflight_request_gets_no_permission(stage: GatewayStage) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    async with stage.client.options(EXECUTIONS, headers=asked) as response:
        assert response.status == 405
        assert not [name for name in response.headers if name.startswith("Access-Control")]


# The link


async def opened_with(stage: GatewayStage, code: str) -> int:
    """The status of an exchange of this code."""
    headers = {"Origin": stage.url, "Sec-Fetch-Site": "same-origin"}
    async with stage.client.post("/api/v1/session", json={"code": code}, headers=headers) as response:
        assert ("Set-Cookie" in response.headers) == (response.status == 201)
        return response.status


async def new_code(stage: GatewayStage) -> str:
    async with stage.client.post("/api/v1/session/codes", headers=AS_ADMIN) as response:
        return str((await response.json())["code"])


async def test_a_code_is_used_once_however_many_try(stage: GatewayStage) -> None:
    code = await new_code(stage)
    statuses = await asyncio.gather(*(opened_with(stage, code) for _ in range(5)))
    assert sorted(statuses) == [201, 401, 401, 401, 401]


async def test_a_code_that_is_too_old_opens_nothing(stage: GatewayStage) -> None:
    code, now_ms = os.urandom(32).hex(), stage.clock.now_ms()
    await stage.sessions.add_code(StoredCode(hash_of(code), TOKEN_ID, now_ms - CODE_MS - 1, now_ms - 1))
    assert await opened_with(stage, code) == 401


@pytest.mark.parametrize("code", ["0" * 64, "x", "\ud800", "%00", "0" * 128])
async def test_an_invalid_code_opens_no_session(stage: GatewayStage, code: str) -> None:
    assert await opened_with(stage, code) in (400, 401)


async def test_a_page_of_another_origin_signs_nobody_in(stage: GatewayStage) -> None:
    """Else it could sign its reader in as the attacker, who then sees what the reader enters."""
    code = await new_code(stage)
    headers = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    async with stage.client.post("/api/v1/session", json={"code": code}, headers=headers) as response:
        assert response.status == 403
    assert await opened_with(stage, code) == 201


async def test_a_link_is_made_by_tokens_alone(stage: GatewayStage) -> None:
    assert (await stage.client.post("/api/v1/session/codes")).status == 401
