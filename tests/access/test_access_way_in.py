"""A gateway that nobody could use does not start; the settings of an identity provider, of names and of proxies."""

from __future__ import annotations

import asyncio
import re
from ipaddress import ip_network
from pathlib import Path

import pytest

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.errors import UsageError
from noetl_stream.gateway.access.guard import WAY_IN_AGAIN_S, require_way_in, until_way_in
from noetl_stream.operations.access import DirectAccess
from noetl_stream.ports.operations.access import NewToken
from noetl_stream.settings.gateway_settings import OIDC_VARIABLES, OidcSettings
from noetl_stream.settings.sources.environment import Settings
from noetl_testkit.memory.access import MemoryTokens
from noetl_testkit.waiting import TIMEOUT_S, until


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "0.0.0.0", ""])
async def test_a_gateway_that_nobody_could_use_does_not_start(tokens: MemoryTokens, host: str) -> None:
    with pytest.raises(UsageError, match="there is no admin token") as refused:
        await require_way_in(host, tokens, 0, provider=False)
    for way in ("token create", "NOETL_OIDC_ISSUER"):
        assert way in str(refused.value)


async def test_a_gateway_with_an_identity_provider_starts_without_a_token(tokens: MemoryTokens) -> None:
    await require_way_in("127.0.0.1", tokens, 0, provider=True)
    assert await tokens.list_all() == []


async def test_only_a_valid_admin_token_lets_a_gateway_start(
    keeper: DirectAccess, tokens: MemoryTokens, clock: ManualClock
) -> None:
    async def starts() -> bool:
        try:
            await require_way_in("127.0.0.1", tokens, clock.now_ms(), provider=False)
        except UsageError:
            return False
        return True

    assert not await starts()
    await keeper.create_token(NewToken("author", "author"), "ann")
    assert not await starts()
    await keeper.create_token(NewToken("soon-over", "admin", (), clock.now_ms() + 1000), "ann")
    assert await starts()
    clock.advance(1)
    assert not await starts()
    admin = await keeper.create_token(NewToken("admin", "admin"), "ann")
    assert await starts()
    await keeper.revoke_token(admin.id, "ann")
    assert not await starts()


async def test_a_gateway_that_is_probed_waits_for_the_first_token(
    keeper: DirectAccess, tokens: MemoryTokens, clock: ManualClock
) -> None:
    told: list[str] = []
    waiting = asyncio.create_task(until_way_in("0.0.0.0", tokens, clock, provider=False, waits=told.append))
    for _ in range(3):
        await until(lambda: clock.sleepers == 1)
        clock.advance(WAY_IN_AGAIN_S)
    assert told == ["nobody could use a gateway on 0.0.0.0: there is no admin token"]
    await until(lambda: clock.sleepers == 1)
    await keeper.create_token(NewToken("admin", "admin"), "ann")
    clock.advance(WAY_IN_AGAIN_S)
    await asyncio.wait_for(waiting, TIMEOUT_S)


PROVIDER = {"NOETL_OIDC_ISSUER": "https://issuer.example", "NOETL_OIDC_AUDIENCE": "noetl"}


def test_without_settings_no_provider_is_used() -> None:
    settings = Settings.from_environment({})
    assert (settings.oidc, settings.gateway_hosts, settings.gateway_proxies) == (None, frozenset(), ())


def test_a_provider_names_and_proxies_are_read() -> None:
    given = {"NOETL_GATEWAY_HOSTS": "Noetl.example.com, gateway", "NOETL_GATEWAY_TRUSTED_PROXIES": "10.0.0.7,fd00::/8"}
    settings = Settings.from_environment(PROVIDER | given)
    assert settings.oidc == OidcSettings("https://issuer.example", "noetl")
    assert settings.gateway_hosts == {"noetl.example.com", "gateway"}
    assert settings.gateway_proxies == (ip_network("10.0.0.7/32"), ip_network("fd00::/8"))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"NOETL_GATEWAY_HOSTS": "https://noetl.example.com"}, "NOETL_GATEWAY_HOSTS"),
        ({"NOETL_GATEWAY_HOSTS": "*.example.com"}, "NOETL_GATEWAY_HOSTS"),
        ({"NOETL_GATEWAY_TRUSTED_PROXIES": "10.0.0.7/8"}, "NOETL_GATEWAY_TRUSTED_PROXIES"),
        ({"NOETL_GATEWAY_TRUSTED_PROXIES": "proxy.example"}, "NOETL_GATEWAY_TRUSTED_PROXIES"),
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
