"""API tokens: made, shown once, checked, revoked; and the audit as people read it."""

from __future__ import annotations

import asyncio
from typing import get_args

import pytest
from msgspec.structs import replace

from noetl_stream.adapters.clock import ManualClock, SystemClock
from noetl_stream.errors import Conflict, NotFound, Unauthenticated, Unreachable, UsageError
from noetl_stream.gateway.access.authentication import (
    CACHED_S,
    CACHED_TOKENS,
    USE_NOTED_EVERY_MS,
    Authentication,
)
from noetl_stream.model.envelope import iso
from noetl_stream.model.rights import ROLES, Role, covers, includes_role
from noetl_stream.operations.access import DirectAccess
from noetl_stream.ports.operations.access import MOST_SEARCHED, NewToken
from noetl_stream.ports.operations.verbs import plain
from noetl_stream.ports.stores.identities import TOKEN_TEXT, AuditedAnswer, CallCredentials, Caller, StoredToken
from noetl_stream.settings.gateway_settings import OidcSettings
from noetl_testkit.conformance.access import attempted
from noetl_testkit.memory.access import MemoryAudit, MemorySessions, MemoryTokens

OPERATOR = NewToken("ci", "operator", ("team/a",))


class CountedTokens(MemoryTokens):
    """Counts how often it is asked; ``away`` makes it unreachable for writing."""

    def __init__(self) -> None:
        super().__init__()
        self.lookups = 0
        self.uses = 0
        self.away = False

    async def get(self, token_id: str) -> StoredToken | None:
        self.lookups += 1
        return await super().get(token_id)

    async def use(self, token_id: str, at_ms: int, unless_since_ms: int) -> None:
        self.uses += 1
        if self.away:
            raise Unreachable("away")
        await super().use(token_id, at_ms, unless_since_ms)


@pytest.fixture
def tokens() -> CountedTokens:
    return CountedTokens()


@pytest.fixture
def authentication(tokens: CountedTokens, clock: ManualClock) -> Authentication:
    return Authentication(tokens, MemorySessions(), clock)


async def made(keeper: DirectAccess, new: NewToken = OPERATOR) -> str:
    return str((await keeper.create_token(new, "ann")).secret)


def bearer(token: str) -> str:
    return f"Bearer {token}"


# Making them


async def test_a_token_is_shown_once_and_only_its_hash_is_kept(
    keeper: DirectAccess, tokens: MemoryTokens, clock: ManualClock
) -> None:
    shown = await keeper.create_token(replace(OPERATOR, expires_ms=clock.now_ms() + 1000), "ann")
    assert shown.secret is not None
    spelt = TOKEN_TEXT.fullmatch(shown.secret)
    assert spelt is not None
    (listed,) = await keeper.tokens()
    assert plain(shown) == plain(listed) | {"secret": shown.secret}
    assert plain(listed) == {
        "id": spelt[1],
        "name": "ci",
        "role": "operator",
        "paths": ["team/a"],
        "created": iso(clock.now_ms()),
        "created_by": "ann",
        "expires": iso(clock.now_ms() + 1000),
        "last_used": None,
        "revoked": None,
        "revoked_by": None,
    }
    assert spelt[2] not in repr(await tokens.list_all()) + repr(listed)


async def test_two_tokens_have_nothing_in_common() -> None:
    keeper = DirectAccess(MemoryTokens(), MemoryAudit(), SystemClock())
    first, second = [TOKEN_TEXT.fullmatch(await made(keeper, NewToken(name, "viewer"))) for name in "ab"]
    assert first is not None and second is not None
    assert first[1] != second[1] and first[2] != second[2]
    assert len(bytes.fromhex(first[2])) == 32


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (NewToken("", "viewer"), "not a valid token name"),
        (NewToken("-x", "viewer"), "not a valid token name"),
        (NewToken("line\n", "viewer"), "not a valid token name"),
        (NewToken("x" * 65, "viewer"), "not a valid token name"),
        (NewToken("x", "root"), "is not a role"),  # type: ignore[arg-type]
        (NewToken("x", "viewer", ("",)), "must be paths of playbooks"),
        (NewToken("x", "viewer", ("a/../b",)), "must be paths of playbooks"),
        (NewToken("x", "viewer", ("a",) * 101), "must be paths of playbooks"),
        (NewToken("x", "admin", ("a",)), "an admin token cannot be limited to paths"),
        (NewToken("x", "viewer", (), 1), "expire in the past"),
        (NewToken("x", "viewer", (), 10**15), "after the year 9999"),
    ],
)
async def test_an_invalid_token_is_refused(keeper: DirectAccess, new: NewToken, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        await keeper.create_token(new, "ann")
    assert await keeper.tokens() == []


async def test_a_name_is_free_again_when_its_token_is_revoked(keeper: DirectAccess, clock: ManualClock) -> None:
    await made(keeper)
    with pytest.raises(Conflict, match="token 'ci' already exists"):
        await made(keeper)
    await keeper.revoke_token((await keeper.tokens())[0].id, "bob")
    clock.advance(1)
    await made(keeper)
    assert [(token.name, token.revoked_by) for token in await keeper.tokens()] == [("ci", "bob"), ("ci", None)]


async def test_a_token_that_does_not_exist_cannot_be_revoked(keeper: DirectAccess) -> None:
    with pytest.raises(NotFound, match="token 'x' not found"):
        await keeper.revoke_token("x", "bob")


# Checking them


async def test_a_token_says_who_calls(keeper: DirectAccess, authentication: Authentication) -> None:
    token = await made(keeper)
    for header in (f"Bearer {token}", f"bearer {token}", f"Bearer   {token} "):
        caller = await authentication.caller(CallCredentials(header))
        assert caller.expires_ms is not None
        who = Caller("token:ci", "operator", ("team/a",), f"token:{token.split('_')[1]}")
        assert caller == replace(who, expires_ms=caller.expires_ms)


@pytest.mark.parametrize(
    "change",
    [
        lambda token: token[:-1],
        lambda token: token + "0",
        lambda token: token[:-64] + "0" * 64,
        lambda token: token[:-64] + token[-64:].upper(),
        lambda token: token.replace("noetl_", "noetl_0", 1),
        lambda token: "noetl_" + "0" * 16 + token[22:],
        lambda token: token + "\n",
        lambda token: "noetl_",
        lambda token: token.replace("noetl_", "NOETL_"),
        lambda token: "ü" + token,
        lambda token: "\udcff",
        lambda token: "x" * 20_000,
        lambda token: "",
    ],
)
async def test_any_other_text_is_refused_without_being_repeated(
    keeper: DirectAccess, authentication: Authentication, change: object
) -> None:
    token = change(await made(keeper))  # type: ignore[operator]
    with pytest.raises(Unauthenticated) as refused:
        await authentication.caller(
            CallCredentials("Bearer " + token if token.strip() == token else f"Bearer x{token}")
        )
    assert len(token) < 7 or token not in str(refused.value)


@pytest.mark.parametrize("header", ["", "Bearer", "Basic YTpi", "noetl_0_0"])
async def test_any_other_header_is_refused(authentication: Authentication, header: str) -> None:
    with pytest.raises(Unauthenticated, match="is not a bearer token"):
        await authentication.caller(CallCredentials(header))


async def test_a_request_without_a_token_has_no_caller(authentication: Authentication) -> None:
    with pytest.raises(Unauthenticated, match="a token is required"):
        await authentication.caller(CallCredentials())


@pytest.mark.parametrize("cookie", ["", "0" * 64, "0" * 63, "\udcff" * 64, "x" * 100_000])
async def test_a_cookie_that_no_sign_in_has_set_is_refused(authentication: Authentication, cookie: str) -> None:
    with pytest.raises(Unauthenticated, match="the browser session has ended"):
        await authentication.caller(CallCredentials(session=cookie))


async def test_a_token_ends_to_the_millisecond(
    keeper: DirectAccess, authentication: Authentication, clock: ManualClock
) -> None:
    token = await made(keeper, NewToken("ci", "viewer", (), clock.now_ms() + 1000))
    clock.advance(0.999)
    await authentication.caller(CallCredentials(bearer(token)))
    clock.advance(0.001)
    with pytest.raises(Unauthenticated, match=r"the token ci \([0-9a-f]{16}\) has expired"):
        await authentication.caller(CallCredentials(bearer(token)))


async def test_a_revoked_token_holds_two_seconds_at_most(
    keeper: DirectAccess, authentication: Authentication, clock: ManualClock, tokens: CountedTokens
) -> None:
    token = await made(keeper)
    for _ in range(5):
        await authentication.caller(CallCredentials(bearer(token)))
    assert tokens.lookups == 1
    await keeper.revoke_token((await keeper.tokens())[0].id, "bob")
    clock.advance(CACHED_S)
    with pytest.raises(Unauthenticated, match="was revoked"):
        await authentication.caller(CallCredentials(bearer(token)))


async def test_guessed_ids_do_not_fill_the_memory(authentication: Authentication, tokens: CountedTokens) -> None:
    async def lookups_of(number: int) -> int:
        before = tokens.lookups
        with pytest.raises(Unauthenticated):
            await authentication.caller(CallCredentials(f"Bearer noetl_{number:016x}_{0:064x}"))
        return tokens.lookups - before

    for number in range(CACHED_TOKENS + 1):
        assert await lookups_of(number) == 1
    assert await lookups_of(CACHED_TOKENS) == 0, "the latest is remembered"
    assert await lookups_of(0) == 1, "the oldest is not"


async def test_a_use_is_noted_once_a_minute(
    keeper: DirectAccess, authentication: Authentication, clock: ManualClock, tokens: CountedTokens
) -> None:
    token = await made(keeper)
    began_ms = clock.now_ms()
    await asyncio.gather(*(authentication.caller(CallCredentials(bearer(token))) for _ in range(5)))
    assert tokens.uses == 1
    clock.advance(USE_NOTED_EVERY_MS / 1000)
    await authentication.caller(CallCredentials(bearer(token)))
    assert (tokens.uses, (await keeper.tokens())[0].last_used) == (1, iso(began_ms))
    clock.advance(0.001)
    await authentication.caller(CallCredentials(bearer(token)))
    assert (tokens.uses, (await keeper.tokens())[0].last_used) == (2, iso(clock.now_ms()))


async def test_a_use_that_cannot_be_noted_is_let_in(
    keeper: DirectAccess, authentication: Authentication, tokens: CountedTokens
) -> None:
    token = await made(keeper)
    tokens.away = True
    assert (await authentication.caller(CallCredentials(bearer(token)))).principal == "token:ci"


# Roles and paths


def test_each_role_has_the_rights_of_the_lower_ones() -> None:
    may = {role: [least for least in ROLES if includes_role(role, least)] for role in ROLES}
    assert may == {
        "viewer": ["viewer"],
        "operator": ["viewer", "operator"],
        "author": ["viewer", "operator", "author"],
        "admin": ["viewer", "operator", "author", "admin"],
    }


def test_the_claims_of_an_identity_provider_may_name_each_role() -> None:
    assert get_args(Role) == ROLES
    assert OidcSettings("", "").roles == {role: role for role in ROLES}


def test_a_path_covers_the_paths_below_it_and_not_those_with_the_same_prefix() -> None:
    paths = ("team/a", "demo")
    candidates = ["team/a", "team/a/b/c", "demo/x", "team/ab", "team", "demonstration", "Team/a", ""]
    assert [path for path in candidates if covers(paths, path)] == ["team/a", "team/a/b/c", "demo/x"]
    assert all(covers((), path) for path in candidates)


# The audit as it is read


async def test_the_audit_is_read_page_by_page(keeper: DirectAccess, audit: MemoryAudit) -> None:
    await audit.add(attempted("ann", at_ms=1_750_000_000_000), AuditedAnswer(403, "no"))
    for target in "12":
        await audit.begin(attempted("bob", target=target))
    first = await keeper.audit(2, None)
    assert [entry.target for entry in first.items] == ["2", "1"]
    second = await keeper.audit(2, first.next)
    assert second.next is None
    assert plain(second.items) == [
        {
            "number": 1,
            "at": "2025-06-15T15:06:40.000+00:00",
            "principal": "ann",
            "role": "operator",
            "method": "POST",
            "operation": "cancelExecution",
            "target": "e-1",
            "correlation_id": "c-1",
            "remote": "127.0.0.1",
            "idempotency_key": "key-1",
            "status": 403,
            "reason": "no",
            "made": "",
            "left_out": 0,
        }
    ]
    assert [entry.status for entry in first.items] == [None, None]
    assert len((await keeper.audit(10, None, "bob")).items) == 2


async def test_a_cursor_of_something_else_is_refused(keeper: DirectAccess) -> None:
    with pytest.raises(UsageError, match="not a cursor of this list"):
        await keeper.audit(1, "x")


async def test_the_audit_is_searched_by_what_was_done_to_what_and_whether_it_was_refused(
    keeper: DirectAccess, audit: MemoryAudit
) -> None:
    for number in range(MOST_SEARCHED):
        await audit.add(attempted(operation="cancelExecution", target=f"e-{number}"), AuditedAnswer(202))
    await audit.add(attempted(operation="readCredential", target="shop"), AuditedAnswer(200))
    await audit.add(attempted(operation="readCredential", target="shop"), AuditedAnswer(403))

    found = await keeper.audit(1, None, operation="readCredential", target="shop")
    assert [one.status for one in found.items] == [403]
    found = await keeper.audit(10, found.next, operation="readCredential")
    assert ([one.status for one in found.items], found.next is None) == ([200], False)
    rest = await keeper.audit(10, found.next, operation="readCredential")
    assert (rest.items, rest.next) == ([], None)
    assert [one.target for one in (await keeper.audit(10, None, refused=True)).items] == ["shop"]
    assert [one.target for one in (await keeper.audit(2, None, refused=False)).items] == ["shop", "e-9999"]


async def test_a_search_of_the_audit_ends_and_says_where_it_goes_on(keeper: DirectAccess, audit: MemoryAudit) -> None:
    await audit.add(attempted(target="first"), AuditedAnswer(200))
    for number in range(MOST_SEARCHED):
        await audit.add(attempted(target=f"e-{number}"), AuditedAnswer(202))

    page = await keeper.audit(10, None, target="first")
    assert page.items == [] and page.next is not None
    assert [one.target for one in (await keeper.audit(10, page.next, target="first")).items] == ["first"]
