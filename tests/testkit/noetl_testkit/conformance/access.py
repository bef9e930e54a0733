"""Conformance of :class:`~noetl_stream.ports.stores.identities.Tokens`,
:class:`~noetl_stream.ports.stores.identities.Sessions`, :class:`~noetl_stream.ports.stores.identities.Audit` and
:class:`~noetl_stream.ports.stores.catalog.GrantsStore`, as tests to inherit.

A test class inherits :class:`TokensConformance`, :class:`SessionsConformance`, :class:`AuditConformance` or
:class:`GrantsConformance`; the module or its ``conftest.py`` provides the fixtures:

``tokens``, ``sessions``, ``audit``, ``grants``
    Empty ones. The store of ``sessions`` has the tokens ``a`` and ``b``.
"""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

import noetl_stream.operations.audit_check as checking
from noetl_stream.errors import UsageError
from noetl_stream.operations.audit_check import check_audit
from noetl_stream.ports.stores.catalog import GrantsRevision, GrantsStore
from noetl_stream.ports.stores.identities import (
    AUDIT_PERIOD_DAYS,
    MAX_CODES,
    MAX_SESSIONS,
    Audit,
    AuditedAnswer,
    AuditedCall,
    AuditEntry,
    Sessions,
    StoredCode,
    StoredSession,
    StoredToken,
    Tokens,
    hash_of,
)

PERIOD_MS = AUDIT_PERIOD_DAYS * 24 * 3600 * 1000


def stored_token(token_id: str, **changes: object) -> StoredToken:
    """A token that never expires."""
    made = StoredToken(
        id=token_id,
        name=f"name of {token_id}",
        role="operator",
        paths=("team/a", "ü"),
        secret_hash=hash_of(token_id),
        created_ms=1_000,
        created_by="ann",
    )
    return replace(made, **changes)


def attempted(principal: str = "token:ci", **changes: object) -> AuditedCall:
    """A call as received."""
    made = AuditedCall(
        at_ms=1_000,
        principal=principal,
        role="operator",
        method="POST",
        operation="cancelExecution",
        target="e-1",
        correlation_id="c-1",
        remote="127.0.0.1",
        idempotency_key="key-1",
    )
    return replace(made, **changes)


class TokensConformance:
    async def test_a_token_is_read_back(self, tokens: Tokens) -> None:
        token = stored_token("a", expires_ms=9_000)
        assert await tokens.add(token)
        assert await tokens.get("a") == token
        assert await tokens.get("b") is None

    async def test_tokens_are_listed_as_they_were_made(self, tokens: Tokens) -> None:
        for token_id, created_ms in (("c", 1), ("a", 2), ("b", 1)):
            await tokens.add(stored_token(token_id, created_ms=created_ms))
        assert [token.id for token in await tokens.list_all()] == ["b", "c", "a"]

    async def test_a_name_is_taken_until_its_token_is_revoked(self, tokens: Tokens) -> None:
        assert await tokens.add(stored_token("a", name="ci"))
        assert not await tokens.add(stored_token("b", name="ci"))
        assert await tokens.get("b") is None
        await tokens.revoke("a", 5_000, "bob")
        assert await tokens.add(stored_token("b", name="ci"))

    async def test_an_id_is_given_once(self, tokens: Tokens) -> None:
        assert await tokens.add(stored_token("a"))
        await tokens.revoke("a", 5_000, "bob")
        assert not await tokens.add(stored_token("a", name="another"))

    async def test_one_of_two_concurrent_writers_gets_the_name(self, tokens: Tokens) -> None:
        adding = [tokens.add(stored_token(token_id, name="ci")) for token_id in "abcd"]
        assert sorted(await asyncio.gather(*adding)) == [False, False, False, True]

    async def test_the_first_revocation_stays(self, tokens: Tokens) -> None:
        await tokens.add(stored_token("a"))
        assert await tokens.revoke("a", 5_000, "bob")
        assert await tokens.revoke("a", 6_000, "eve")
        assert await tokens.get("a") == stored_token("a", revoked_ms=5_000, revoked_by="bob")

    async def test_an_unknown_token_cannot_be_revoked(self, tokens: Tokens) -> None:
        assert not await tokens.revoke("a", 5_000, "bob")

    async def test_a_use_is_noted_unless_one_is_noted_since(self, tokens: Tokens) -> None:
        await tokens.add(stored_token("a"))
        noted = []
        for at_ms in (100_000, 130_000, 160_000, 160_001):
            await tokens.use("a", at_ms, at_ms - 60_000)
            found = await tokens.get("a")
            assert found is not None
            noted.append(found.last_used_ms)
        assert noted == [100_000, 100_000, 100_000, 160_001]


def new_session(number: int, created_ms: int = 1_000) -> StoredSession:
    """A session that a code is to open."""
    return StoredSession(hash_of(f"session {number}"), hash_of("csrf"), "", created_ms, created_ms + 9_000)


def stored_code(text: str, token_id: str = "a", created_ms: int = 1_000) -> StoredCode:
    """A code that holds for five seconds."""
    return StoredCode(hash_of(text), token_id, created_ms, created_ms + 5_000)


class SessionsConformance:
    async def test_a_code_opens_one_session_of_its_token(self, sessions: Sessions) -> None:
        await sessions.add_code(stored_code("code"))
        assert await sessions.redeem(hash_of("code"), new_session(1)) == "a"
        assert await sessions.get(hash_of("session 1")) == replace(new_session(1), token_id="a")
        assert await sessions.redeem(hash_of("code"), new_session(2)) is None
        assert await sessions.get(hash_of("session 2")) is None

    async def test_one_of_two_concurrent_exchanges_gets_the_session(self, sessions: Sessions) -> None:
        await sessions.add_code(stored_code("code"))
        opening = [sessions.redeem(hash_of("code"), new_session(number)) for number in range(4)]
        assert sorted(await asyncio.gather(*opening), key=str) == [None, None, None, "a"]

    async def test_a_code_ends_to_the_millisecond(self, sessions: Sessions) -> None:
        for text in ("late", "in time"):
            await sessions.add_code(stored_code(text))
        assert await sessions.redeem(hash_of("late"), new_session(1, 6_000)) is None
        assert await sessions.redeem(hash_of("in time"), new_session(2, 5_999)) == "a"

    async def test_an_unknown_code_opens_nothing(self, sessions: Sessions) -> None:
        assert await sessions.redeem(hash_of("unknown"), new_session(1)) is None

    async def test_a_session_that_was_ended_is_gone(self, sessions: Sessions) -> None:
        await sessions.add_code(stored_code("code"))
        await sessions.redeem(hash_of("code"), new_session(1))
        for _ in range(2):
            await sessions.end(hash_of("session 1"))
            assert await sessions.get(hash_of("session 1")) is None

    async def test_the_newest_codes_of_a_token_stay(self, sessions: Sessions) -> None:
        await sessions.add_code(stored_code("other's", "b", 1_000))
        for number in range(MAX_CODES + 1):
            await sessions.add_code(stored_code(f"code {number}", "a", 1_001 + number))
        assert await sessions.redeem(hash_of("code 0"), new_session(0, 1_500)) is None
        assert await sessions.redeem(hash_of("code 1"), new_session(1, 1_500)) == "a"
        assert await sessions.redeem(hash_of("other's"), new_session(2, 1_500)) == "b"

    async def test_the_newest_sessions_of_a_token_stay(self, sessions: Sessions) -> None:
        await sessions.add_code(stored_code("other's", "b"))
        await sessions.redeem(hash_of("other's"), new_session(1_000))
        for number in range(MAX_SESSIONS + 1):
            await sessions.add_code(stored_code(f"code {number}", "a", 1_000 + number))
            await sessions.redeem(hash_of(f"code {number}"), new_session(number, 1_000 + number))
        kept = [await sessions.get(hash_of(f"session {number}")) is not None for number in (0, 1, 20, 1_000)]
        assert kept == [False, True, True, True]


class AuditConformance:
    async def test_a_call_is_on_record_before_it_is_answered(self, audit: Audit) -> None:
        number = await audit.begin(attempted())
        assert await audit.page(10, None, None) == [AuditEntry(number, attempted(), None)]
        await audit.answer(number, AuditedAnswer(202, "", "e-2"))
        assert await audit.page(10, None, None) == [AuditEntry(number, attempted(), AuditedAnswer(202, "", "e-2"))]

    async def test_a_refusal_is_written_at_once(self, audit: Audit) -> None:
        await audit.add(attempted("", role=""), AuditedAnswer(401, "this needs a token"))
        (entry,) = await audit.page(10, None, None)
        assert (entry.attempt, entry.answer) == (attempted("", role=""), AuditedAnswer(401, "this needs a token"))

    async def test_an_answer_stays(self, audit: Audit) -> None:
        number = await audit.begin(attempted())
        await audit.answer(number, AuditedAnswer(200))
        await audit.answer(number, AuditedAnswer(500))
        assert (await audit.page(1, None, None))[0].answer == AuditedAnswer(200)

    async def test_a_refusal_stands_for_others_too(self, audit: Audit) -> None:
        await audit.add(attempted(), AuditedAnswer(401, "unknown token", left_out=10_000))
        assert (await audit.page(1, None, None))[0].answer == AuditedAnswer(401, "unknown token", left_out=10_000)

    async def test_entries_go_when_their_whole_period_is_old(self, audit: Audit) -> None:
        for at_ms in (PERIOD_MS - 1, PERIOD_MS, 2 * PERIOD_MS - 1, 2 * PERIOD_MS):
            await audit.add(attempted(at_ms=at_ms, target=str(at_ms)), AuditedAnswer(200))
        await audit.trim(2 * PERIOD_MS - 1)
        assert await _targets(audit) == [PERIOD_MS, 2 * PERIOD_MS - 1, 2 * PERIOD_MS]
        await audit.trim(2 * PERIOD_MS)
        assert await _targets(audit) == [2 * PERIOD_MS]
        await audit.add(attempted(at_ms=1, target="1"), AuditedAnswer(200))
        assert await _targets(audit) == [2 * PERIOD_MS, 1], "a period that was deleted takes entries again"

    async def test_pages_go_from_new_to_old(self, audit: Audit) -> None:
        numbers = [await audit.begin(attempted(target=str(n))) for n in range(5)]
        first = await audit.page(2, None, None)
        second = await audit.page(2, first[-1].number, None)
        third = await audit.page(2, second[-1].number, None)
        assert [entry.attempt.target for entry in [*first, *second, *third]] == ["4", "3", "2", "1", "0"]
        assert [entry.number for entry in [*first, *second, *third]] == numbers[::-1]
        assert await audit.page(2, numbers[0], None) == []

    async def test_the_calls_of_one_principal_can_be_asked_for(self, audit: Audit) -> None:
        for principal in ("ann", "bob", "ann", ""):
            await audit.begin(attempted(principal))
        found = await audit.page(10, None, "ann")
        assert [entry.attempt.principal for entry in found] == ["ann", "ann"]
        assert await audit.page(10, found[-1].number, "ann") == []
        assert len(await audit.page(10, None, "")) == 1

    async def test_the_chains_say_that_nothing_was_changed(self, audit: Audit) -> None:
        for at_ms in (1, 1, 2, PERIOD_MS):
            number = await audit.begin(attempted(at_ms=at_ms, target='a "quoted"\tü \x7f target'))
            await audit.answer(number, AuditedAnswer(200, "as Ünal said"))
        await audit.begin(attempted())
        found = await check_audit(audit, None)
        assert (found.checked, found.faults, found.next) == (9, [], None)

    async def test_what_was_trimmed_is_not_missing(self, audit: Audit) -> None:
        for at_ms in (1, 1, PERIOD_MS):
            await audit.add(attempted(at_ms=at_ms), AuditedAnswer(200))
        await audit.trim(PERIOD_MS)
        assert (await check_audit(audit, None)).faults == []
        await audit.add(attempted(at_ms=1), AuditedAnswer(200))
        found = await check_audit(audit, None)
        assert (found.checked, found.faults) == (4, [])

    async def test_a_long_audit_is_checked_page_by_page(self, audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(checking, "READ_AT_ONCE", 2)
        monkeypatch.setattr(checking, "MOST_SEARCHED", 2)
        for _ in range(7):
            await audit.add(attempted(), AuditedAnswer(200))
        found = [await check_audit(audit, None)]
        while found[-1].next is not None:
            found.append(await check_audit(audit, found[-1].next))
        assert sum(page.checked for page in found) == 14
        assert [fault for page in found for fault in page.faults] == []

    @pytest.mark.parametrize("cursor", ["", "W10", "W251bGwsMV0", "WzEsLTFd"])
    async def test_a_cursor_of_another_list_is_refused(self, audit: Audit, cursor: str) -> None:
        with pytest.raises(UsageError, match="is not a cursor"):
            await check_audit(audit, cursor)


async def _targets(audit: Audit) -> list[int]:
    """Oldest first."""
    return [int(entry.attempt.target) for entry in reversed(await audit.page(100, None, None))]


def grants_revision(revision: int, **changes: object) -> GrantsRevision:
    """A revision of grants that nobody has."""
    return replace(GrantsRevision(revision, "grants: []\n", 1_000 + revision, "token:boss"), **changes)


class GrantsConformance:
    async def test_before_any_revision_there_are_no_grants(self, grants: GrantsStore) -> None:
        assert (await grants.latest(), await grants.get(1)) == (None, None)

    async def test_the_latest_revision_is_read_unless_it_is_known(self, grants: GrantsStore) -> None:
        first, second = grants_revision(1), grants_revision(2, source="grants:\n- {paths: [ü]}\n")
        assert await grants.add(first) and await grants.latest() == first
        assert await grants.add(second)
        assert [await grants.latest(known) for known in (None, first, second)] == [second, second, None]
        assert [await grants.get(number) for number in (1, 2, 3)] == [first, second, None]
        lost = replace(second, registered_ms=7)
        assert await grants.latest(lost) == second, "one that was lost with a database is not this one"

    async def test_only_the_revision_after_the_latest_is_added(self, grants: GrantsStore) -> None:
        assert not await grants.add(grants_revision(2))
        assert await grants.add(grants_revision(1))
        for number in (1, 3):
            assert not await grants.add(grants_revision(number, registered_by="ann"))
        assert await grants.latest() == grants_revision(1)

    async def test_of_two_who_add_one_revision_at_once_one_does(self, grants: GrantsStore) -> None:
        added = await asyncio.gather(*(grants.add(grants_revision(1, registered_by=by)) for by in ("ann", "bob")))
        assert sorted(added) == [False, True]
