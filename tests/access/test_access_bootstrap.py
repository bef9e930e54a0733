"""The bootstrap token: made where nobody has a token, good for one thing, revoked when an admin has a token."""

from __future__ import annotations

import pytest
from access_stack import Stack

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.errors import UsageError
from noetl_stream.gateway.access.authentication import CACHED_S, Authentication
from noetl_stream.gateway.access.guard import require_way_in
from noetl_stream.operations.access import ensure_bootstrap_token
from noetl_stream.ports.operations.access import NewToken
from noetl_stream.ports.stores.identities import BOOTSTRAP_NAME, TOKEN_TEXT, StoredToken, hash_of, token_text


class Kept:
    """A text, and how often it was written. ``fails`` makes the next write the last thing that is done."""

    def __init__(self, text: str | None = None) -> None:
        self.text = text
        self.written = 0
        self.fails = False

    async def read(self) -> str | None:
        return self.text

    async def write(self, text: str) -> None:
        self.text, self.written = text, self.written + 1
        if self.fails:
            raise InterruptedError


@pytest.fixture
def stack(clock: ManualClock) -> Stack:
    return Stack(clock)


async def ensure(stack: Stack, kept: Kept) -> StoredToken | None:
    return await ensure_bootstrap_token(kept, stack.tokens, stack.audit, stack.clock)


async def valid(stack: Stack) -> set[str]:
    return {token.name for token in await stack.tokens.list_all() if token.holds(stack.clock.now_ms())}


async def test_an_installation_without_a_token_gets_one_that_lets_gateways_start(stack: Stack) -> None:
    kept = Kept()
    made = await ensure(stack, kept)
    assert made is not None and kept.text is not None
    spelt = TOKEN_TEXT.fullmatch(kept.text)
    assert spelt is not None and (spelt[1], hash_of(spelt[2])) == (made.id, made.secret_hash)
    await require_way_in("0.0.0.0", stack.tokens, stack.clock.now_ms(), provider=False)
    (entry,) = await stack.audit.page(10, None, None)
    assert (entry.attempt.operation, entry.attempt.target) == ("createToken", BOOTSTRAP_NAME)


async def test_a_second_bootstrap_makes_no_second_token(stack: Stack) -> None:
    kept = Kept()
    await ensure(stack, kept)
    assert await ensure(stack, kept) is None
    assert (kept.written, len(await stack.tokens.list_all())) == (1, 1)


async def test_an_attempt_that_ended_after_it_wrote_the_text_is_completed(stack: Stack) -> None:
    kept = Kept()
    kept.fails = True
    with pytest.raises(InterruptedError):
        await ensure(stack, kept)
    assert await stack.tokens.list_all() == []
    kept.fails = False
    assert await ensure(stack, kept) is not None
    assert kept.written == 1


async def test_a_text_that_an_operator_has_put_there_is_taken(stack: Stack) -> None:
    kept = Kept(token_text("0" * 16, "1" * 64) + "\n")
    made = await ensure(stack, kept)
    assert made is not None and (made.id, kept.written) == ("0" * 16, 0)


@pytest.mark.parametrize("text", [None, "lost", token_text("0" * 16, "2" * 64)])
async def test_a_token_whose_text_is_lost_or_another_is_replaced(stack: Stack, text: str | None) -> None:
    await ensure(stack, Kept(token_text("0" * 16, "1" * 64)))
    kept = Kept(text)
    made = await ensure(stack, kept)
    assert made is not None and made.id != "0" * 16 and kept.written == 1
    assert await valid(stack) == {BOOTSTRAP_NAME}


async def test_nothing_is_made_where_an_admin_has_a_token(stack: Stack) -> None:
    await stack.keeper.create_token(NewToken("ann", "admin"), "ann")
    kept = Kept()
    assert await ensure(stack, kept) is None
    assert kept.text is None


async def test_the_command_ends_after_storing_one_admin_token(stack: Stack) -> None:
    await ensure(stack, Kept())
    await stack.keeper.create_token(NewToken("ci", "operator"), "ann")
    assert await valid(stack) == {BOOTSTRAP_NAME, "ci"}
    await stack.keeper.create_token(NewToken("ann", "admin"), "ann")
    assert await valid(stack) == {"ci", "ann"}


async def test_a_text_whose_token_was_revoked_opens_nothing_again(stack: Stack, clock: ManualClock) -> None:
    kept = Kept()
    first = await ensure(stack, kept)
    await stack.keeper.create_token(NewToken("ann", "admin", expires_ms=clock.now_ms() + 1000), "ann")
    clock.advance(2)
    second = await ensure(stack, kept)
    assert first is not None and second is not None and first.id != second.id
    assert kept.written == 2


async def test_through_a_gateway_it_creates_one_token_of_an_admin_and_then_opens_nothing(
    stack: Stack, clock: ManualClock
) -> None:
    kept = Kept()
    await ensure(stack, kept)
    headers = {"Authorization": f"Bearer {kept.text}"}
    async with stack.gateway(Authentication(stack.tokens, stack.sessions, clock)) as client:
        for method, path in (
            ("GET", "/executions"),
            ("GET", "/tokens"),
            ("POST", "/session/codes"),
        ):
            async with client.request(method, f"/api/v1{path}", headers=headers) as refused:
                told = await refused.text()
                assert refused.status == 403 and "token create NAME --role admin" in told, path
        async with client.post("/api/v1/tokens", headers=headers, json={"name": "ci", "role": "viewer"}) as refused:
            assert refused.status == 403 and "give it the role admin" in await refused.text()
        async with client.post("/api/v1/tokens", headers=headers, json={"name": "ann", "role": "admin"}) as made:
            assert made.status == 201
            own = {"Authorization": f"Bearer {(await made.json())['secret']}"}
        clock.advance(CACHED_S + 1)
        async with client.get("/api/v1/tokens", headers=own) as listed:
            assert listed.status == 200
        async with client.post("/api/v1/tokens", headers=headers, json={"name": "eve", "role": "admin"}) as refused:
            assert refused.status == 401


async def test_no_other_token_has_its_name(stack: Stack) -> None:
    with pytest.raises(UsageError, match="is not a valid token name"):
        await stack.keeper.create_token(NewToken(BOOTSTRAP_NAME, "admin"), "eve")
