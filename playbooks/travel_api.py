"""A travel agency's HTTP API, small and moody: what most of the playbooks here talk to.

It knows cities and hotels, sells trips, exports in jobs, limits its callers, is down in places, and forgets everything
when it ends. What it answers follows from what it was asked before, never from the clock.

    python playbooks/travel_api.py --port 8098
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import hmac
import itertools
import json
from typing import Any

from aiohttp import web

HOTELS = {"Lisbon": {"Aurora": 2, "Tejo": 1}, "Oslo": {"Fjord": 3}, "Quito": {}}
"""Cities with their hotels, and how many pages of rooms each has."""
ROOMS_A_PAGE = 3

PARTNER_TOKEN = "letters-to-a-partner"
SIGNING_KEY = "a-key-to-sign-with"
"""What the partner's part of this API knows of its callers."""

ASKED_BEFORE_DONE = 2
NEVER_S = 3600.0

ORDERS = {"1001": 200, "1002": 422, "1003": 404, "1004": 503}
"""Orders by number, and the status that asking for each has."""
MIRRORS = {"amber": 1.0812, "birch": 1.0812}
"""Exchange rates by mirror. ``sloth`` never answers, any other is down."""

routes = web.RouteTableDef()


class Agency:
    """What the API remembers."""

    def __init__(self) -> None:
        self.bookings: dict[str, dict[str, Any]] = {}
        self.messages: list[dict[str, Any]] = []
        self.jobs: dict[str, int] = {}
        self.priced: set[str] = set()
        self.numbers = itertools.count(1)

    def application(self) -> web.Application:
        application = web.Application(client_max_size=8 * 1024 * 1024)
        application[AGENCY] = self
        application.add_routes(routes)
        return application


AGENCY = web.AppKey("agency", Agency)


def refuse(status: int, why: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": why}, status=status, headers=headers)


@routes.get("/cities")
async def cities(request: web.Request) -> web.Response:
    """Cities, with their hotels and the number of pages each has."""
    return web.json_response(
        [
            {"name": city, "hotels": [{"name": name, "pages": pages} for name, pages in hotels.items()]}
            for city, hotels in HOTELS.items()
        ]
    )


@routes.get("/hotels/{hotel}/rooms")
async def rooms(request: web.Request) -> web.Response:
    """One page of rooms."""
    hotel, page = request.match_info["hotel"], int(request.query.get("page", "1"))
    numbers = range(page * 100 + 1, page * 100 + 1 + ROOMS_A_PAGE)
    return web.json_response([{"room": f"{hotel} {n}", "price": 60 + (n * 7 + len(hotel)) % 50} for n in numbers])


@routes.get("/trips")
async def trips(request: web.Request) -> web.Response:
    """Sold trips, as many as asked for."""
    wanted = request.query.get("customer")
    made = (
        {
            "trip": n,
            "customer": ("ada", "grace", "linus")[n % 3],
            "city": ("Lisbon", "Oslo", "Quito", "Lisbon")[n % 4],
            "nights": 1 + n % 6,
            "price": 80 + 15 * (n % 9),
        }
        for n in range(int(request.query.get("count", "120")))
    )
    return web.json_response([trip for trip in made if wanted in (None, trip["customer"])])


@routes.get("/checks/{check}")
async def check(request: web.Request) -> web.Response:
    """Whether a customer passes a check: ``mallory`` has no credit, ``eve`` is a fraud."""
    failing = {"credit": "mallory", "fraud": "eve"}
    return web.json_response({"ok": request.query["customer"] != failing.get(request.match_info["check"])})


@routes.post("/bookings")
async def book(request: web.Request) -> web.Response:
    """Books ``{kind, trip}``; there are no limousines. The same idempotency key books once."""
    agency, asked = request.app[AGENCY], await request.json()
    if asked["kind"] == "limousine":
        return refuse(409, "no limousine is free")
    key = hashlib.sha256(request.headers["Idempotency-Key"].encode()).hexdigest()[:12]
    agency.bookings[key] = asked
    return web.json_response({"booking": key, **asked}, status=201)


@routes.get("/bookings")
async def booked(request: web.Request) -> web.Response:
    """The kinds booked for a trip."""
    kept = request.app[AGENCY].bookings.values()
    return web.json_response([each["kind"] for each in kept if each["trip"] == request.query["trip"]])


@routes.delete("/bookings/{booking}")
async def cancel(request: web.Request) -> web.Response:
    """Cancels a booking; one that is gone stays gone."""
    request.app[AGENCY].bookings.pop(request.match_info["booking"], None)
    return web.Response(status=204)


@routes.post("/exports")
async def export(request: web.Request) -> web.Response:
    """Begins an export, which is done when it has been asked for a few times."""
    agency = request.app[AGENCY]
    job = f"job-{next(agency.numbers)}"
    agency.jobs[job] = 0
    return web.json_response({"job": job}, status=202)


@routes.get("/exports/{job}")
async def export_state(request: web.Request) -> web.Response:
    """How far an export is."""
    agency, job = request.app[AGENCY], request.match_info["job"]
    agency.jobs[job] += 1
    if agency.jobs[job] <= ASKED_BEFORE_DONE:
        return web.json_response({"state": "running"})
    return web.json_response({"state": "done", "rows": 42})


@routes.get("/prices/{city}")
async def price(request: web.Request) -> web.Response:
    """A price. Every second city is answered 429 when it is asked for the first time."""
    priced, city = request.app[AGENCY].priced, request.match_info["city"]
    if city not in priced:
        priced.add(city)
        if len(priced) % 2 == 0:
            return refuse(429, "slow down", {"retry-after": "1"})
    return web.json_response({"city": city, "price": 100 + 10 * len(city)})


@routes.get("/orders/{order}")
async def order(request: web.Request) -> web.Response:
    """An order: found, not found, in a state that needs a person, or not now."""
    number = request.match_info["order"]
    status = ORDERS.get(number, 404)
    return web.json_response({"order": number}) if status == 200 else refuse(status, f"order {number}: {status}")


@routes.get("/mirrors/{mirror}/rate")
async def rate(request: web.Request) -> web.Response:
    """The rate as one mirror has it."""
    mirror = request.match_info["mirror"]
    if mirror == "sloth":
        await asyncio.sleep(NEVER_S)
    mirrored = MIRRORS.get(mirror)
    return refuse(503, "down") if mirrored is None else web.json_response({"rate": mirrored})


@routes.get("/health")
async def health(request: web.Request) -> web.Response:
    return web.json_response({"healthy": True})


@routes.post("/messages")
async def message(request: web.Request) -> web.Response:
    """Sends ``{to, text}``, where ``to`` is an address."""
    sent = await request.json()
    if "@" not in sent["to"]:
        return refuse(400, f"{sent['to']} is not an address")
    agency = request.app[AGENCY]
    agency.messages.append(sent)
    return web.json_response({"sent": sent["to"]}, status=201)


@routes.get("/tickets")
async def tickets(request: web.Request) -> web.Response:
    """Support tickets, two at a time: ``{tickets, next}``, where ``next`` is null on the last page."""
    subjects = ("refund please", "nice trip", "lost luggage, urgent", "where is my invoice", "urgent: wrong hotel")
    begin = int(request.query.get("from", "0"))
    end = begin + 2
    found = [{"ticket": begin + n, "subject": subject} for n, subject in enumerate(subjects[begin:end])]
    return web.json_response({"tickets": found, "next": end if end < len(subjects) else None})


@routes.get("/logs/{number}")
async def log_file(request: web.Request) -> web.Response:
    """A log file: a level, a service and a duration in each line."""
    number = int(request.match_info["number"])
    lines = [
        f"{('info', 'info', 'warning', 'error')[(n + number) % 4]} {('search', 'booking')[n % 2]} {10 * number + n} ms"
        for n in range(20)
    ]
    return web.Response(text="\n".join(lines))


@routes.post("/partner/orders")
async def partner_order(request: web.Request) -> web.Response:
    """Takes an order from a partner who has the token, and whose signature of the body is right."""
    body = await request.read()
    if request.headers.get("Authorization") != f"Bearer {PARTNER_TOKEN}":
        return refuse(401, "who are you?")
    signed = hmac.new(SIGNING_KEY.encode(), body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(request.headers.get("X-Signature", ""), signed):
        return refuse(403, "the signature is wrong")
    return web.json_response({"accepted": json.loads(body)["order"]}, status=201)


async def serve(port: int) -> None:
    """Serves until cancelled; prints its address once it listens."""
    runner = web.AppRunner(Agency().application(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print("http://{}:{}".format(*runner.addresses[0]), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8098, help="0 takes a free one")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(parser.parse_args().port))
