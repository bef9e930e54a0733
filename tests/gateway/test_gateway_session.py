"""A browser signs in with a code, acts with the rights of the token behind it, and signs out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http.cookies import SimpleCookie

import pytest
from aiohttp import ClientSession, DummyCookieJar
from gateway_browser import Browser
from gateway_stage import GatewayStage
from openapi_checks import Described

from noetl_stream.gateway.access.authentication import CACHED_S, CODE_MS, SESSION_MS
from noetl_stream.ports.stores.identities import MAX_CODES, MAX_SESSIONS
from noetl_stream.settings.gateway_settings import GatewayLimits
from noetl_testkit.waiting import until_it_is


@pytest.fixture
async def browser(stage: GatewayStage, api: Described) -> AsyncIterator[Browser]:
    async with ClientSession(stage.url, cookie_jar=DummyCookieJar()) as client:
        yield Browser(stage.url, Described(client, api.document))


async def code_of(api: Described) -> str:
    return str((await api.call("createSignInCode")).body["code"])


async def test_a_browser_acts_with_the_rights_of_the_token_that_signed_it_in(api: Described, browser: Browser) -> None:
    assert (await browser.call("me")).status == 401
    signed_in = await browser.sign_in(await code_of(api))
    assert signed_in.status == 201
    morsel = SimpleCookie(signed_in.headers["Set-Cookie"]).popitem()[1]
    assert (morsel["httponly"], morsel["samesite"], morsel["path"], morsel["secure"]) == (True, "Strict", "/api", "")
    assert int(morsel["max-age"]) * 1000 == SESSION_MS
    me = (await browser.call("me")).body
    assert (me["principal"], me["role"], me["paths"]) == ("token:local", "admin", [])
    assert {"me", "cancelExecution", "createToken"} <= set(me["operations"])
    assert me["expires"] == signed_in.body["expires"]
    assert (await browser.call("createToken", body={"name": "ci", "role": "viewer"})).status == 201
    entries = (await api.call("listAudit", query={"principal": "token:local"})).body["items"]
    assert [entry["operation"] for entry in entries] == ["createToken", "createSignInCode"]


async def test_a_caller_learns_what_its_role_allows(api: Described) -> None:
    given = {"name": "eve", "role": "viewer", "paths": ["team/a"], "expires": "2120-01-01T00:00:00.000Z"}
    made = await api.call("createToken", body=given)
    me = (await api.call("me", headers={"Authorization": f"Bearer {made.body['secret']}"})).body
    assert (me["principal"], me["role"], me["paths"]) == ("token:eve", "viewer", ["team/a"])
    assert me["expires"] == "2120-01-01T00:00:00.000+00:00"
    assert "getExecution" in me["operations"]
    assert "cancelExecution" not in me["operations"]


async def test_signing_out_ends_the_session_and_removes_the_cookie(api: Described, browser: Browser) -> None:
    await browser.sign_in(await code_of(api))
    kept = browser.cookie
    signed_out = await browser.call("signOut")
    assert (signed_out.status, browser.cookie.partition("=")[2]) == (204, "")
    assert "Max-Age=0" in signed_out.headers["Set-Cookie"]
    browser.cookie = kept
    assert (await browser.call("me")).status == 401


async def test_a_revoked_token_ends_its_sessions(api: Described, browser: Browser, stage: GatewayStage) -> None:
    made = await api.call("createToken", body={"name": "ann", "role": "viewer"})
    as_ann = {"Authorization": f"Bearer {made.body['secret']}"}
    code = (await api.call("createSignInCode", headers=as_ann)).body["code"]
    await stage.tokens.revoke(made.body["id"], 1, "test")
    assert (await browser.sign_in(code)).status == 201

    async def status() -> int:
        return (await browser.call("me")).status

    await until_it_is(401, status, timeout_s=CACHED_S + 10)


async def test_a_session_cannot_prolong_itself(api: Described, browser: Browser) -> None:
    await browser.sign_in(await code_of(api))
    refused = await browser.call("createSignInCode")
    assert (refused.status, "only an API token" in refused.body["detail"]) == (403, True)


async def test_a_session_survives_its_gateway(stage: GatewayStage, api: Described, browser: Browser) -> None:
    await browser.sign_in(await code_of(api))
    other = GatewayStage(GatewayLimits())
    other.sessions = stage.sessions
    async with other.open(), ClientSession(other.url, cookie_jar=DummyCookieJar()) as client:
        elsewhere = Browser(other.url, Described(client, api.document))
        name = f"noetl_session_{other.url.rpartition(':')[2]}"
        elsewhere.cookie = f"{name}={browser.cookie.partition('=')[2]}"
        assert (await elsewhere.call("me")).body["principal"] == "token:local"


async def test_codes_and_sessions_of_a_token_are_bounded(api: Described, browser: Browser) -> None:
    codes = [await code_of(api) for _ in range(MAX_CODES + 1)]
    assert (await browser.sign_in(codes[0])).status == 401
    first = await browser.sign_in(codes[1])
    assert first.status == 201
    kept = browser.cookie
    for _ in range(MAX_SESSIONS):
        browser.cookie = ""
        assert (await browser.sign_in(await code_of(api))).status == 201
    browser.cookie = kept
    assert (await browser.call("me")).status == 401


async def test_an_answer_kept_for_a_repeated_call_has_no_code(api: Described) -> None:
    key = {"Idempotency-Key": "k-1"}
    first = await api.call("createSignInCode", headers=key)
    again = await api.call("createSignInCode", headers=key)
    assert (first.body["code"] is not None, "code" in again.body) == (True, False)


def test_times_of_a_session_are_short() -> None:
    assert CODE_MS == 10 * 60 * 1000
    assert SESSION_MS == 12 * 3600 * 1000
