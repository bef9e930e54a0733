"""Every SQLSTATE that has a rule, raised by a real Postgres."""

from __future__ import annotations

from typing import Any

import pytest

from noetl_stream.adapters.postgres.connections.database import Database, separate_connection
from noetl_stream.adapters.postgres.connections.failures import RULES, rule_of
from noetl_stream.adapters.postgres.statements import Statement
from noetl_stream.adapters.treatments import Treatment
from noetl_stream.errors import (
    Fenced,
    JournalConflict,
    LoginRefused,
    NoetlError,
    NotReady,
    PayloadRefused,
    Unreachable,
)
from noetl_testkit.waiting import TIMEOUT_S

AGAIN = ("40001", "40P01", "55P03")
WAITED = (
    *("08", "25006", "25P03", "53", "53100", "53200", "53300", "55", "57", "57014", "57P01", "57P03", "58"),
    *("XX", "XX001", "XX002"),
)
EXPECTED: dict[str, type[NoetlError]] = {
    "NF001": Fenced,
    "23505": JournalConflict,
    **dict.fromkeys(("21", "22", "23", "54"), PayloadRefused),
    **dict.fromkeys(("28", "28P01", "3D000"), LoginRefused),
    **dict.fromkeys(("3F000", "42501", "42703", "42704", "42883", "42P01"), NotReady),
    **dict.fromkeys((*AGAIN, *WAITED), Unreachable),
}


async def raised(server: Any, state: str) -> NoetlError:
    """What a caller gets of a statement that ends with this SQLSTATE, or one of this class."""
    failing = f"do $$ begin raise exception 'its words' using errcode = '{state:0<5}'; end $$"
    with pytest.raises(NoetlError) as caught:
        async with separate_connection(server.dsn("postgres"), "test") as connection:
            await connection.execute(failing)
    return caught.value


def test_every_rule_is_expected_by_these_tests() -> None:
    assert EXPECTED.keys() == RULES.keys()
    for treatment, states in ((Treatment.AGAIN, AGAIN), (Treatment.WAITED, WAITED)):
        assert {state for state, rule in RULES.items() if rule.treatment is treatment} == set(states)


@pytest.mark.parametrize("state", sorted(EXPECTED))
async def test_each_state_is_an_error_that_says_what_to_do(postgres_server: Any, state: str) -> None:
    error, rule = await raised(postgres_server, state), RULES[state]
    assert type(error) is EXPECTED[state]
    if rule.treatment is not Treatment.HANDLED and state != "23505":
        assert f"refuses: {rule.meaning} (its words)" in error.message
        assert error.hint == rule.hint is not None


async def test_a_state_without_a_rule_is_waited_for_and_names_its_number(postgres_server: Any) -> None:
    error = await raised(postgres_server, "0A000")
    assert type(error) is Unreachable and "its words (SQLSTATE 0A000)" in error.message
    assert rule_of("0A000").treatment is Treatment.WAITED


@pytest.mark.parametrize("state", AGAIN)
async def test_a_rolled_back_statement_is_retried_by_its_caller(empty_dsn: str, state: str) -> None:
    """A sequence keeps its value when the transaction is rolled back."""
    database = await Database.open(empty_dsn, "test", patience_s=TIMEOUT_S)
    failing_once = f"""
        create sequence tries;
        create function once() returns bigint language plpgsql as $$
        declare number bigint := nextval('tries');
        begin
            if number = 1 then raise exception 'its words' using errcode = '{state}'; end if;
            return number;
        end $$
    """
    connection = await database.connect()
    await connection.execute(failing_once)
    await connection.close()
    assert (await database.fetch_statement(Statement("select once()", ()), {}))[0][0] == 2
    await database.close()
