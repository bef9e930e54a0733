"""How many executions the triggers of a namespace start: each server has its share of the rate."""

from __future__ import annotations

from noetl_stream.model.rights import namespace_of
from noetl_stream.server.aggregates.namespace_rates import MOST_KEPT, NamespaceRates
from noetl_stream.trigger.rates import TriggerRates

NOW_MS = 1_800_000_000_000


def rates(per_minute: int = 60, share: float = 1.0) -> NamespaceRates:
    return NamespaceRates(TriggerRates(of_namespace=per_minute), lambda: share, namespace_of)


def test_the_triggers_of_a_namespace_share_its_rate_and_others_have_their_own() -> None:
    found = rates()
    found.count("shop/one", 6, NOW_MS)
    assert found.free_ms("shop/one", NOW_MS) <= NOW_MS + 1_000
    found.count("shop/two", 5, NOW_MS)
    assert found.free_ms("shop/one", NOW_MS) == NOW_MS + 2_000
    assert found.free_ms("bank/one", NOW_MS) == 0


def test_a_server_with_half_of_the_partitions_has_half_of_the_rate() -> None:
    whole, half = rates(), rates(share=0.5)
    for one in (whole, half):
        one.count("shop/one", 10, NOW_MS)
    assert half.free_ms("shop/one", NOW_MS) - NOW_MS > 2 * (whole.free_ms("shop/one", NOW_MS) - NOW_MS)


def test_a_server_that_has_no_partition_yet_divides_by_nothing() -> None:
    found = rates(share=0.0)
    found.count("shop/one", 1, NOW_MS)
    assert found.free_ms("shop/one", NOW_MS) == NOW_MS + 60_000


def test_namespaces_at_rest_are_forgotten() -> None:
    found = rates()
    for number in range(MOST_KEPT):
        found.count(f"n{number}/x", 1, NOW_MS)
    found.count("late/x", 1, NOW_MS + 60_000)
    assert found.free_ms("n0/x", NOW_MS) == 0
    assert found.free_ms("late/x", NOW_MS) > 0
