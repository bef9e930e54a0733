"""Tokens of an identity provider: which hold, whose they are, and how its keys are come by."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from access_issuer import AUDIENCE, Issuer, encoded, public_jwk
from aiohttp import web

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.oidc import (
    FRESH_S,
    KEPT_S,
    MAX_DOCUMENT_BYTES,
    REFETCH_AFTER_S,
    RETRY_AFTER_S,
    OidcProvider,
    ProviderKeys,
)
from noetl_stream.errors import Forbidden, Unauthenticated, Unreachable, UsageError
from noetl_stream.ports.stores.identities import Caller
from noetl_stream.settings.gateway_settings import OidcSettings, read_oidc

MINUTE_S = 60


@pytest.fixture
async def keys(issuer: Issuer, clock: ManualClock) -> AsyncIterator[ProviderKeys]:
    made = ProviderKeys(issuer.url, None, clock)
    yield made
    await made.close()


@pytest.fixture
def provider(issuer: Issuer, keys: ProviderKeys) -> OidcProvider:
    return OidcProvider(OidcSettings(issuer.url, AUDIENCE), keys)


@pytest.mark.parametrize(
    ("algorithm", "kid"),
    [("RS256", "rsa"), ("RS512", "rsa"), ("PS256", "rsa"), ("ES256", "ec"), ("EdDSA", "ed")],
)
async def test_a_token_signed_by_the_provider_holds(
    issuer: Issuer, provider: OidcProvider, algorithm: str, kid: str
) -> None:
    assert await provider.caller(issuer.token(algorithm, kid)) == Caller("oidc:u-1", "operator", id="oidc:u-1")
    assert issuer.paths_asked == ["/.well-known/openid-configuration", "/keys"]


def now_s() -> int:
    return int(time.time())


HEADER_WITH_A_LIST = b'{"alg": "RS256", "kid": [1]}'

BAD: dict[str, tuple[Callable[[Issuer], str], str]] = {
    "expired": (lambda issuer: issuer.token(exp=now_s() - MINUTE_S), "has expired"),
    "not yet valid": (lambda issuer: issuer.token(nbf=now_s() + 10 * MINUTE_S), "is not valid yet"),
    "issued in the future": (lambda issuer: issuer.token(iat=now_s() + 10 * MINUTE_S), "is not valid yet"),
    "for ever": (lambda issuer: issuer.token(exp=None), "is invalid"),
    "without iat": (lambda issuer: issuer.token(iat=None), "is invalid"),
    "without sub": (lambda issuer: issuer.token(sub=None), "is invalid"),
    "exp no number": (lambda issuer: issuer.token(exp="tomorrow"), "is invalid"),
    "wrong audience": (lambda issuer: issuer.token(aud="another"), r"is for another audience \(aud\)"),
    "no audience": (lambda issuer: issuer.token(aud=None), "is invalid"),
    "wrong issuer": (lambda issuer: issuer.token(iss="https://elsewhere.example"), r"is from another issuer \(iss\)"),
    "another's key": (lambda issuer: issuer.token(key="another's"), "is not signed by the provider"),
    "unknown kid": (lambda issuer: issuer.token(kid="unheard-of"), "a key the identity provider does not publish"),
    "no kid": (lambda issuer: issuer.token(kid=None), "a key the identity provider does not publish"),
    "kid of another kind": (lambda issuer: issuer.token(kid="ec"), "is not for"),
    "alg none": (lambda issuer: issuer.unsigned("none"), "is not for"),
    "alg None": (lambda issuer: issuer.unsigned("None"), "is not for"),
    "alg empty": (lambda issuer: issuer.unsigned(""), "is not for"),
    "alg HS256, its secret the public key": (lambda issuer: issuer.signed_with_public_key(), "is not for"),
    "signature of another alg": (lambda issuer: issuer.unsigned("PS256", b"x" * 256), "is not signed by the provider"),
    "unknown crit": (
        lambda issuer: issuer.token(headers={"crit": ["exp2"], "exp2": 1}),
        "not a token of the identity provider",
    ),
    "truncated": (lambda issuer: issuer.token()[:-8], "is not signed by the provider|not a token of"),
    "without signature": (lambda issuer: issuer.token().rpartition(".")[0], "not a token of the identity provider"),
    "claims exchanged": (
        lambda issuer: ".".join(
            [
                issuer.token().split(".")[0],
                issuer.unsigned("RS256", noetl_role="admin").split(".")[1],
                issuer.token().split(".")[2],
            ]
        ),
        "is not signed by the provider",
    ),
    "garbage": (lambda issuer: "garbage", "not a token of the identity provider"),
    "three parts of garbage": (lambda issuer: "a.b.c", "not a token of the identity provider"),
    "header no object": (lambda issuer: f"{encoded(b'[1]')}.e30.e30", "not a token of the identity provider"),
    "header too deep": (lambda issuer: f"{encoded(b'[' * 9000)}.e30.e30", "not a token of the identity provider"),
    "kid no text": (
        lambda issuer: f"{encoded(HEADER_WITH_A_LIST)}.e30.e30",
        "not a token of the identity provider",
    ),
}


@pytest.mark.parametrize("name", BAD)
async def test_any_other_token_is_refused(issuer: Issuer, provider: OidcProvider, name: str) -> None:
    make, reason = BAD[name]
    bearer = make(issuer)
    with pytest.raises(Unauthenticated, match=reason) as refused:
        await provider.caller(bearer)
    assert bearer not in str(refused.value)


@pytest.mark.parametrize("changes", [{"exp": -10}, {"nbf": 10}, {"iat": 10}])
async def test_clocks_may_differ_a_little(issuer: Issuer, provider: OidcProvider, changes: dict[str, int]) -> None:
    moved = {name: now_s() + seconds for name, seconds in changes.items()}
    assert (await provider.caller(issuer.token(**moved))).role == "operator"


async def test_a_token_with_several_audiences_is_accepted(issuer: Issuer, provider: OidcProvider) -> None:
    assert (await provider.caller(issuer.token(aud=["another", AUDIENCE]))).role == "operator"


async def test_a_key_for_another_purpose_is_not_used(issuer: Issuer, provider: OidcProvider) -> None:
    """Keys of shared secrets, for encryption, or for one algorithm only, are not taken for others."""
    issuer.keys = [
        {"kty": "oct", "k": encoded(b"secret" * 10), "kid": "shared"},
        public_jwk("RS256", "encrypting", use="enc"),
        public_jwk("PS256", "ps-only", alg="PS256"),
    ]
    assert (await provider.caller(issuer.token("PS256", "ps-only"))).role == "operator"
    for bad in (issuer.token("RS256", "ps-only"), issuer.token("RS256", "encrypting")):
        with pytest.raises(Unauthenticated):
            await provider.caller(bad)


async def test_unusable_keys_do_no_harm(issuer: Issuer, provider: OidcProvider) -> None:
    issuer.keys = [
        *({"kty": kind, "kid": "rsa"} for kind in ("RSA", "EC", "OKP", "", None, 7)),
        {"kty": "RSA", "kid": ["rsa"], "n": "AQAB", "e": "AQAB"},
        {"kty": "RSA", "kid": "rsa", "n": "!", "e": 5},
        "no object",  # type: ignore[list-item]
        public_jwk("RS256", "rsa"),
    ]
    assert (await provider.caller(issuer.token())).role == "operator"


async def test_a_token_without_kid_goes_with_the_key_without_kid(issuer: Issuer, provider: OidcProvider) -> None:
    issuer.keys = [public_jwk("RS256", None)]
    assert (await provider.caller(issuer.token(kid=None))).role == "operator"


# Whose it is


@pytest.mark.parametrize(
    ("claims", "principal"),
    [
        ({"email": "ann@example.com", "email_verified": True}, "oidc:ann@example.com"),
        ({"email": "ann@example.com", "email_verified": False}, "oidc:u-1"),
        ({"email": "ann@example.com", "email_verified": "true"}, "oidc:u-1"),
        ({"email": "ann@example.com"}, "oidc:u-1"),
        ({"sub": "line\nbreak" + "x" * 300}, "oidc:line?break" + "x" * 190),
    ],
)
async def test_a_principal_is_what_the_provider_has_verified(
    issuer: Issuer, provider: OidcProvider, claims: dict[str, Any], principal: str
) -> None:
    assert (await provider.caller(issuer.token(**claims))).principal == principal


@pytest.mark.parametrize(
    ("variables", "claims", "role"),
    [
        ({}, {"noetl_role": "author"}, "author"),
        ({}, {"noetl_role": ["viewer", "author", "nonsense"]}, "author"),
        ({}, {"noetl_role": ["nonsense", 7, None, {}]}, None),
        ({}, {"noetl_role": None}, None),
        ({}, {"noetl_role": "Admin"}, None),
        ({"DEFAULT_ROLE": "viewer"}, {"noetl_role": None}, "viewer"),
        ({"DEFAULT_ROLE": "viewer"}, {"noetl_role": "author"}, "author"),
        ({"ROLES": "platform=admin, data team = author"}, {"noetl_role": ["data team", "platform"]}, "admin"),
        ({"ROLES": "platform=admin"}, {"noetl_role": "admin"}, None),
        ({"ROLE_CLAIM": "realm_access.roles"}, {"realm_access": {"roles": ["operator"]}}, "operator"),
        ({"ROLE_CLAIM": "realm_access.roles"}, {"realm_access": "operator"}, None),
        ({"ROLE_CLAIM": "https://example.com/roles"}, {"https://example.com/roles": ["viewer"]}, "viewer"),
    ],
)
async def test_a_role_is_what_the_claim_stands_for(
    issuer: Issuer, keys: ProviderKeys, variables: dict[str, str], claims: dict[str, Any], role: str | None
) -> None:
    given = {"ISSUER": issuer.url, "AUDIENCE": AUDIENCE} | variables
    settings = read_oidc({f"NOETL_OIDC_{name}": value for name, value in given.items()})
    assert settings is not None
    calling = OidcProvider(settings, keys).caller(issuer.token(**claims))
    if role is None:
        with pytest.raises(Forbidden, match="oidc:u-1 has no role here"):
            await calling
    else:
        assert (await calling).role == role


# Keys


async def test_an_unknown_key_is_fetched_no_more_often_than_the_interval_allows(
    issuer: Issuer, provider: OidcProvider, clock: ManualClock
) -> None:
    await provider.caller(issuer.token())
    issuer.keys.append(public_jwk("RS256", "next"))
    for _ in range(5):
        with pytest.raises(Unauthenticated):
            await provider.caller(issuer.token(kid="next"))
    assert issuer.paths_asked.count("/keys") == 1
    clock.advance(REFETCH_AFTER_S)
    assert (await provider.caller(issuer.token(kid="next"))).role == "operator"
    assert issuer.paths_asked.count("/keys") == 2


async def test_calls_at_once_ask_once(issuer: Issuer, provider: OidcProvider) -> None:
    bearer = issuer.token()
    callers = await asyncio.gather(*(provider.caller(bearer) for _ in range(20)))
    assert len(set(callers)) == 1
    assert issuer.paths_asked.count("/keys") == 1


async def test_a_key_that_is_taken_away_is_forgotten(
    issuer: Issuer, provider: OidcProvider, keys: ProviderKeys, clock: ManualClock
) -> None:
    bearer = issuer.token()
    await provider.caller(bearer)
    issuer.keys = issuer.keys[1:]
    clock.advance(FRESH_S + 1)
    await provider.caller(bearer)  # nobody waits for a key that is known; the new ones are fetched meanwhile
    assert await keys.find("nobody's") is None  # who asks for an unknown one waits
    with pytest.raises(Unauthenticated, match="does not publish"):
        await provider.caller(bearer)


async def test_known_keys_hold_for_their_time_while_the_provider_is_away(
    issuer: Issuer, provider: OidcProvider, keys: ProviderKeys, clock: ManualClock
) -> None:
    bearer = issuer.token()
    await provider.caller(bearer)
    issuer.broken = web.Response(status=500)
    clock.advance(KEPT_S - 1)
    assert (await provider.caller(bearer)).role == "operator"
    clock.advance(2)
    with pytest.raises(Unreachable, match=r"cannot get the keys of the identity provider .* answers 500"):
        await provider.caller(bearer)
    issuer.broken = None
    clock.advance(RETRY_AFTER_S)
    assert (await provider.caller(bearer)).role == "operator"


async def test_a_provider_that_was_never_there_is_asked_now_and_then(
    issuer: Issuer, provider: OidcProvider, clock: ManualClock
) -> None:
    issuer.broken = web.Response(status=503)
    for _ in range(5):
        with pytest.raises(Unreachable, match="API tokens of this gateway still work"):
            await provider.caller(issuer.token())
    assert len(issuer.paths_asked) == 1
    issuer.broken = None
    clock.advance(RETRY_AFTER_S)
    assert (await provider.caller(issuer.token())).role == "operator"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (web.Response(text="<html>"), "Expecting value"),
        (web.Response(text="[]"), "not answer with a JSON object"),
        (web.Response(text="[" * 100_000), "recursion"),
        (web.Response(body=b" " * (MAX_DOCUMENT_BYTES + 1)), f"more than {MAX_DOCUMENT_BYTES} bytes"),
        (web.Response(status=302, headers={"Location": "/keys"}), "answers 302"),
    ],
)
async def test_an_answer_that_cannot_be_is_a_clear_error(
    issuer: Issuer, provider: OidcProvider, answer: web.Response, reason: str
) -> None:
    issuer.broken = answer
    with pytest.raises(Unreachable, match=reason):
        await provider.caller(issuer.token())


@pytest.mark.parametrize(
    ("discovery", "reason"),
    [
        ({"issuer": "https://elsewhere.example"}, "names the issuer 'https://elsewhere.example'"),
        ({"jwks_uri": None}, "no safe jwks_uri"),
        ({"jwks_uri": "file:///etc/passwd"}, "no safe jwks_uri"),
    ],
)
async def test_a_discovery_document_is_not_believed_in_everything(
    issuer: Issuer, provider: OidcProvider, discovery: dict[str, Any], reason: str
) -> None:
    issuer.discovery = discovery
    with pytest.raises(Unreachable, match=reason):
        await provider.caller(issuer.token())


async def test_keys_can_be_at_an_address_that_the_operator_says(issuer: Issuer, clock: ManualClock) -> None:
    keys = ProviderKeys("https://issuer.example", f"{issuer.url}/keys", clock)
    provider = OidcProvider(OidcSettings("https://issuer.example", AUDIENCE), keys)
    assert (await provider.caller(issuer.token(iss="https://issuer.example"))).role == "operator"
    assert issuer.paths_asked == ["/keys"]
    await keys.close()


async def test_a_provider_where_nothing_listens_is_a_clear_error(clock: ManualClock, issuer: Issuer) -> None:
    keys = ProviderKeys("http://127.0.0.1:1", None, clock)
    provider = OidcProvider(OidcSettings("http://127.0.0.1:1", AUDIENCE), keys)
    with pytest.raises(Unreachable, match=r"cannot get the keys of the identity provider http://127\.0\.0\.1:1"):
        await provider.caller(issuer.token())
    await keys.close()


NO_ACCESS_TOKENS: dict[str, tuple[Callable[[Issuer], str], str]] = {
    "nonce": (lambda issuer: issuer.token(nonce="n"), "is an ID token"),
    "at_hash": (lambda issuer: issuer.token(at_hash="h"), "is an ID token"),
    "its audience is its client": (lambda issuer: issuer.token(azp=AUDIENCE), "is an ID token"),
    "claim typ ID": (lambda issuer: issuer.token(typ="ID"), r"not an access token \(typ\)"),
    "claim typ Refresh": (lambda issuer: issuer.token(typ="Refresh"), r"not an access token \(typ\)"),
    "header typ": (lambda issuer: issuer.token(headers={"typ": "logout+jwt"}), r"not an access token \(typ\)"),
}


@pytest.mark.parametrize("name", NO_ACCESS_TOKENS)
async def test_a_token_that_is_no_access_token_is_refused(issuer: Issuer, provider: OidcProvider, name: str) -> None:
    make, reason = NO_ACCESS_TOKENS[name]
    with pytest.raises(Unauthenticated, match=reason):
        await provider.caller(make(issuer))


@pytest.mark.parametrize(
    "token",
    [
        lambda issuer: issuer.token(headers={"typ": "at+jwt"}, azp=AUDIENCE),
        lambda issuer: issuer.token(headers={"typ": "application/at+jwt"}, nonce="n"),
        lambda issuer: issuer.token(typ="Bearer", azp=AUDIENCE),
        lambda issuer: issuer.token(azp="a-web-page"),
    ],
)
async def test_access_tokens_are_accepted(
    issuer: Issuer, provider: OidcProvider, token: Callable[[Issuer], str]
) -> None:
    assert await provider.caller(token(issuer)) == Caller("oidc:u-1", "operator", id="oidc:u-1")


async def test_tokens_of_other_clients_are_refused(issuer: Issuer, keys: ProviderKeys) -> None:
    settings = OidcSettings(issuer.url, AUDIENCE, clients=frozenset({"a-web-page", "ci"}))
    provider = OidcProvider(settings, keys)
    for claims in ({"azp": "a-web-page"}, {"client_id": "ci"}):
        assert await provider.caller(issuer.token(**claims)) == Caller("oidc:u-1", "operator", id="oidc:u-1")
    for claims in ({"azp": "another"}, {"azp": "another", "client_id": "ci"}, {}):
        with pytest.raises(Unauthenticated, match=r"of a client that is not accepted \(azp\)"):
            await provider.caller(issuer.token(**claims))


@pytest.mark.parametrize(
    ("explained", "claim", "paths"),
    [
        (None, ["team/a", "/shared/"], ("team/a", "shared")),
        (None, "team/a", ("team/a",)),
        (None, ["team/a", "team/../b", "", 7], ("team/a",)),
        ({"data": ("team/data", "shared")}, ["data", "team/a"], ("team/data", "shared")),
    ],
)
async def test_a_claim_limits_callers_to_paths(
    issuer: Issuer, keys: ProviderKeys, explained: Any, claim: Any, paths: tuple[str, ...]
) -> None:
    provider = OidcProvider(OidcSettings(issuer.url, AUDIENCE, paths_claim="teams", paths=explained), keys)
    assert await provider.caller(issuer.token(teams=claim)) == Caller("oidc:u-1", "operator", paths, id="oidc:u-1")


@pytest.mark.parametrize("claim", [None, [], ["unknown"], "..", {"team": "a"}])
async def test_a_caller_without_paths_may_do_nothing_where_callers_are_limited(
    issuer: Issuer, keys: ProviderKeys, claim: Any
) -> None:
    settings = OidcSettings(issuer.url, AUDIENCE, paths_claim="teams", paths={"data": ("team/data",)})
    provider = OidcProvider(settings, keys)
    with pytest.raises(Forbidden, match="has no paths here"):
        await provider.caller(issuer.token(teams=claim))
    assert await provider.caller(issuer.token(teams=claim, noetl_role="admin")) == Caller(
        "oidc:u-1", "admin", id="oidc:u-1"
    )


def test_paths_and_clients_come_from_the_environment() -> None:
    given = {
        "NOETL_OIDC_ISSUER": "https://login.example.com",
        "NOETL_OIDC_AUDIENCE": AUDIENCE,
        "NOETL_OIDC_CLIENTS": "ci, a-web-page",
        "NOETL_OIDC_PATHS_CLAIM": "teams",
        "NOETL_OIDC_PATHS": "data team=team/data, data team=shared",
    }
    settings = read_oidc(given)
    assert settings is not None
    assert settings.clients == {"ci", "a-web-page"}
    assert settings.paths == {"data team": ("team/data", "shared")}
    for wrong in ({"NOETL_OIDC_PATHS": "data=../x"}, {"NOETL_OIDC_PATHS": "data"}, {"NOETL_OIDC_PATHS_CLAIM": ""}):
        changed = {name: value for name, value in (given | wrong).items() if value}
        with pytest.raises(UsageError, match="NOETL_OIDC_PATHS"):
            read_oidc(changed)
