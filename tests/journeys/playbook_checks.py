"""Checks of what playbooks leave behind, after they have ended."""

from __future__ import annotations

import asyncio
import json
import tarfile
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from playbook_stage import Ended, Scenario, Stage

from airports_api import read_airports
from noetl_stream.ports.operations.verbs import plain
from travel_api import PARTNER_TOKEN, SIGNING_KEY

AIRPORTS = 3376
INLINE_BYTES = 64 * 1024
EVERY_S = 0.3


def airports_by_state() -> list[dict[str, Any]]:
    """All airports, then the ten states with most of them."""
    latitudes: dict[str, list[float]] = {}
    for airport in read_airports():
        latitudes.setdefault(airport["state"], []).append(airport["latitude"])
    states = sorted(latitudes.items(), key=lambda state: (-len(state[1]), state[0]))[:10]
    means = sum(len(found) * round(fmean(found), 2) for found in latitudes.values())
    everywhere = {"state": "all", "airports": AIRPORTS, "mean_latitude": round(means / AIRPORTS, 2)}
    return [everywhere] + [
        {"state": state, "airports": len(found), "mean_latitude": round(fmean(found), 2)} for state, found in states
    ]


async def every_airport_is_stored(stage: Stage, ended: Ended) -> None:
    stored = await stage.rows("SELECT iata, name FROM airports")
    assert {row["iata"]: row["name"] for row in stored} == {each["iata"]: each["name"] for each in read_airports()}


async def three_calls_came_too_early(stage: Stage, ended: Ended) -> None:
    assert ended.steps[0].retries == 3


async def three_requests_arrived(stage: Stage, ended: Ended) -> None:
    assert ended.steps[0].retries == 2


async def every_booking_is_cancelled(stage: Stage, ended: Ended) -> None:
    steps = [step.step for step in ended.steps]
    assert steps == ["book_flight", "book_hotel", "book_car", "cancel_hotel", "cancel_flight", "apologise"]
    assert "oslo-2" not in {booking["trip"] for booking in stage.agency.bookings.values()}


async def all_three_are_booked(stage: Stage, ended: Ended) -> None:
    booked = [booking["kind"] for booking in stage.agency.bookings.values() if booking["trip"] == "lisbon-7"]
    assert booked == ["flight", "hotel", "car"]


async def the_invoices_are_stored(stage: Stage, ended: Ended) -> None:
    rows = await stage.rows("SELECT customer, trips, total::float8 FROM invoices ORDER BY customer")
    assert [(row["customer"], row["trips"]) for row in rows] == [("ada", 40), ("grace", 40), ("linus", 40)]
    assert sum(row["total"] for row in rows) == ended.result["total"]


async def the_sums_are_stored(stage: Stage, ended: Ended) -> None:
    rows = await stage.rows(
        "SELECT city, trips, revenue, mean_nights::float8 FROM revenue_by_city ORDER BY revenue DESC"
    )
    assert rows == ended.result["cities"]


async def no_outcome_is_in_the_journal(stage: Stage, ended: Ended) -> None:
    journal = await stage.connected.store.journal(ended.execution_id)
    assert max(len(row.data) for row in journal) < INLINE_BYTES


async def all_circuits_ran(stage: Stage, ended: Ended) -> None:
    assert [(step.step, step.status) for step in ended.steps] == [
        ("angles", "done"),
        ("sweep", "done"),
        ("chart", "done"),
    ]


async def the_large_result_went_by_reference(stage: Stage, ended: Ended) -> None:
    journal = await stage.connected.store.journal(ended.execution_id)
    assert max(len(row.data) for row in journal) < INLINE_BYTES
    names = [row.name for row in journal]
    since = names[names.index("execution.started") :]  # before it, a server that is busy awaits the playbook as well
    assert [name for name in since if name.startswith("reference.")] == ["reference.awaited", "reference.resolved"]


async def no_secret_is_in_the_journal(stage: Stage, ended: Ended) -> None:
    journal = await stage.connected.store.journal(ended.execution_id)
    written = b"".join(row.data for row in journal).decode() + json.dumps(plain(ended))
    assert PARTNER_TOKEN not in written
    assert SIGNING_KEY not in written


async def the_moments_are_written_down(stage: Stage, ended: Ended) -> None:
    query = (
        "SELECT look, extract(epoch FROM moment)::float8 AS moment FROM health_looks WHERE execution_id = $1 ORDER BY 1"
    )
    looks = await stage.rows(query, ended.execution_id)
    assert [look["look"] for look in looks] == [0, 1, 2]
    for moment, later in pairwise(look["moment"] for look in looks):
        assert later - moment > EVERY_S * 0.9


async def the_others_got_the_message(stage: Stage, ended: Ended) -> None:
    got = [message["to"] for message in stage.agency.messages if message["text"] == "Your trip begins tomorrow"]
    assert sorted(got) == ["ada@example.com", "grace@example.com", "linus@example.com"]


async def both_were_notified_and_it_is_audited(stage: Stage, ended: Ended) -> None:
    got = {message["to"]: message["text"] for message in stage.agency.messages}
    assert (got["eva@example.com"], got["sales@example.com"]) == ("Welcome aboard", "eva is with us")
    query = "SELECT what, customer FROM audit_lines WHERE execution_id = $1 ORDER BY what"
    assert await stage.rows(query, ended.execution_id) == [
        {"what": "handed over", "customer": "eva"},
        {"what": "welcomed", "customer": "eva"},
    ]


async def everybody_is_notified_and_no_change_is_lost(stage: Stage, ended: Ended) -> None:
    """Then four change one setting at the same moment."""
    assert stage.team.notifications == [{"key": "shop", "revision": ended.result["revision"]}]
    prices = {"winter": 80, "spring": 95, "summer": 140, "autumn": 110}
    changes = [{"key": "seasons", "change": {season: price}} for season, price in prices.items()]
    others = await asyncio.gather(*(stage.play(Scenario("nats_settings", None, change)) for change in changes))
    assert [(other.status, other.error) for other in others] == [("completed", None)] * len(prices)
    assert await stage.team.setting("seasons") == {"discount_percent": 10, **prices}


async def the_archive_is_whole(stage: Stage, ended: Ended) -> None:
    archive = Path(ended.result["archive"])
    with tarfile.open(archive) as packed:
        assert sum(member.isfile() for member in packed) == ended.result["files"]
    await asyncio.to_thread(archive.unlink)


async def there_is_no_archive(stage: Stage, ended: Ended) -> None:
    assert ended.error.kind == "exit_status"
    assert [step.step for step in ended.steps] == ["pack", "remove"]
