"""Whether a gateway is open: by its address, by what the operator says, by who could come in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.access import MemoryTokens
from noetl_stream.client.access import DirectAccess
from noetl_stream.errors import UsageError
from noetl_stream.gateway.access.guard import Wish, decide_open_mode
from noetl_stream.ports.operations.access import NewToken
from noetl_stream.settings.environment import Settings
from noetl_stream.settings.oidc import OIDC_VARIABLES, OidcSettings

LOOPBACK = ["127.0.0.1", "127.9.9.9", "::1", "localhost"]
ELSEWHERE = ["0.0.0.0", "::", "", "192.168.1.5", "gateway.example", "localhost.example", "127.0.0.1.example"]


@pytest.mark.parametrize("host", LOOPBACK)
async def test_a_gateway_on_a_loopback_address_is_open_and_says_so(tokens: MemoryTokens, host: str) -> None:
    opening = await decide_open_mode(host, None, tokens, 0, provider=False)
    assert opening == (True, "open: callers without a token are admin `local`")


@pytest.mark.parametrize("host", ELSEWHERE)
async def test_a_gateway_on_any_other_address_needs_a_decision_to_start(tokens: MemoryTokens, host: str) -> None:
    with pytest.raises(UsageError, match="no admin token exists to open it") as refused:
        await decide_open_mode(host, None, tokens, 0, provider=False)
    for way in ("token create", "NOETL_OIDC_ISSUER", "NOETL_GATEWAY_AUTH=open"):
        assert way in str(refused.value)


@pytest.mark.parametrize("host", ELSEWHERE)
async def test_an_open_gateway_logs_a_warning(tokens: MemoryTokens, host: str) -> None:
    opening = await decide_open_mode(host, "open", tokens, 0, provider=True)
    assert opening.open_to_all
    assert "anyone who can reach this address may do everything" in opening.sentence


@pytest.mark.parametrize(
    ("host", "wish", "provider"),
    [("0.0.0.0", None, True), ("127.0.0.1", None, True), ("127.0.0.1", "required", True), ("", "required", True)],
)
async def test_with_an_identity_provider_it_is_closed(
    tokens: MemoryTokens, host: str, wish: Wish | None, provider: bool
) -> None:
    assert not (await decide_open_mode(host, wish, tokens, 0, provider=provider)).open_to_all


@pytest.mark.parametrize(("host", "wish"), [("0.0.0.0", None), ("127.0.0.1", "required"), ("0.0.0.0", "required")])
async def test_only_a_token_of_an_admin_that_holds_opens_it(
    keeper: DirectAccess, tokens: MemoryTokens, clock: ManualClock, host: str, wish: Wish | None
) -> None:
    async def refused() -> bool:
        try:
            return (await decide_open_mode(host, wish, tokens, clock.now_ms(), provider=False)).open_to_all
        except UsageError:
            return True

    assert await refused()
    await keeper.create_token(NewToken("author", "author"), "ann")
    await keeper.create_token(NewToken("soon-over", "admin", (), clock.now_ms() + 1000), "ann")
    assert not await refused()
    clock.advance(1)
    assert await refused()
    admin = await keeper.create_token(NewToken("admin", "admin"), "ann")
    assert not await refused()
    await keeper.revoke_token(admin.id, "ann")
    assert await refused()


# What the environment says

PROVIDER = {"NOETL_OIDC_ISSUER": "https://issuer.example", "NOETL_OIDC_AUDIENCE": "noetl"}


def test_without_settings_no_provider_is_used() -> None:
    settings = Settings.from_environment({})
    assert (settings.oidc, settings.gateway_auth) == (None, None)


def test_a_provider_and_a_wish_are_read() -> None:
    settings = Settings.from_environment(PROVIDER | {"NOETL_GATEWAY_AUTH": "Required"})
    assert settings.oidc == OidcSettings("https://issuer.example", "noetl")
    assert settings.gateway_auth == "required"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"NOETL_GATEWAY_AUTH": "maybe"}, "NOETL_GATEWAY_AUTH"),
        ({"NOETL_OIDC_ISSUER": "https://issuer.example"}, "NOETL_OIDC_AUDIENCE"),
        ({"NOETL_OIDC_AUDIENCE": "noetl"}, "NOETL_OIDC_ISSUER"),
        ({"NOETL_OIDC_DEFAULT_ROLE": "viewer"}, "NOETL_OIDC_ISSUER"),
        (PROVIDER | {"NOETL_OIDC_ISSUER": "http://issuer.example"}, "NOETL_OIDC_ISSUER"),
        (PROVIDER | {"NOETL_OIDC_ISSUER": "https://"}, "NOETL_OIDC_ISSUER"),
        (PROVIDER | {"NOETL_OIDC_ISSUER": "https://[::1"}, "NOETL_OIDC_ISSUER"),
        (PROVIDER | {"NOETL_OIDC_ISSUER": "file://localhost/x"}, "NOETL_OIDC_ISSUER"),
        (PROVIDER | {"NOETL_OIDC_JWKS_URL": "http://10.0.0.1/keys"}, "NOETL_OIDC_JWKS_URL"),
        (PROVIDER | {"NOETL_OIDC_ROLES": "platform"}, "NOETL_OIDC_ROLES"),
        (PROVIDER | {"NOETL_OIDC_ROLES": "platform=root"}, "NOETL_OIDC_ROLES"),
        (PROVIDER | {"NOETL_OIDC_DEFAULT_ROLE": "root"}, "NOETL_OIDC_DEFAULT_ROLE"),
    ],
)
def test_an_invalid_value_is_refused_by_name(given: dict[str, str], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        Settings.from_environment(given)


@pytest.mark.parametrize("address", ["http://localhost:9000/realms/x", "http://127.0.0.1:1", "http://[::1]:1"])
def test_a_provider_on_this_machine_may_speak_plainly(address: str) -> None:
    settings = Settings.from_environment(PROVIDER | {"NOETL_OIDC_ISSUER": address})
    assert settings.oidc is not None and settings.oidc.issuer == address


def test_the_document_has_every_variable_of_a_provider() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "access.md").read_text()
    documented = re.findall(r"^\| `NOETL_OIDC_([A-Z_]+)` \| `?([^|`]+)`? \|", text, re.MULTILINE)
    assert [name for name, _ in documented] == list(OIDC_VARIABLES)
    assert dict(documented)["ROLE_CLAIM"] == OidcSettings("", "").role_claim
