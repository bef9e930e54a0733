"""A small HTTP API with real data and real moods: the airports of ``vega-datasets``, page by page.

``GET /airports/{region}?page=1&pageSize=50`` answers ``{"data": […], "paging": {"page", "hasMore"}}``. Some pages
answer 429 with ``retry-after``, some 503, each the first time it is asked for. An unknown region is a 404.

    python playbooks/airports_api.py --port 8099
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import csv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from aiohttp import web

REGIONS = {
    "northeast": "CT ME MA NH RI VT NJ NY PA",
    "midwest": "IL IN MI OH WI IA KS MN MO NE ND SD",
    "south": "DE FL GA MD NC SC VA DC WV AL KY MS TN AR LA OK TX",
    "west": "AZ CO ID MT NV NM UT WY CA OR WA",
    "beyond": "",
}
"""States of each region; ``beyond`` is everything else (Alaska, Hawaii, the islands)."""

TOO_MANY_EVERY = 7
UNAVAILABLE_EVERY = 5


def read_airports() -> list[dict[str, Any]]:
    """The data set: one mapping an airport, coordinates as numbers."""
    try:
        package = distribution("vega-datasets")
    except PackageNotFoundError:
        raise SystemExit("the airports come with another package: pip install --no-deps vega-datasets") from None
    # Found as a file: importing the package would need pandas.
    file = Path(str(package.locate_file("vega_datasets/_data/airports.csv")))
    with file.open(encoding="utf-8") as lines:
        rows: list[dict[str, Any]] = list(csv.DictReader(lines))
    for row in rows:
        row["latitude"], row["longitude"] = float(row["latitude"]), float(row["longitude"])
    return rows


def by_region(airports: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The airports of each region."""
    region_of = {state: region for region, states in REGIONS.items() for state in states.split()}
    found: dict[str, list[dict[str, Any]]] = {region: [] for region in REGIONS}
    for airport in airports:
        found[region_of.get(airport["state"], "beyond")].append(airport)
    return found


class AirportsApi:
    """Serves pages and, once a page, a mood."""

    def __init__(self) -> None:
        self.regions = by_region(read_airports())
        self._asked: set[tuple[str, int]] = set()

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/airports/{region}", self.page)
        return application

    async def page(self, request: web.Request) -> web.Response:
        region = request.match_info["region"]
        airports = self.regions.get(region)
        if airports is None:
            return web.json_response({"error": f"no region {region}"}, status=404)
        page = int(request.query.get("page", "1"))
        size = min(int(request.query.get("pageSize", "50")), 200)
        if (region, page) not in self._asked:
            self._asked.add((region, page))
            if page % TOO_MANY_EVERY == 2:
                return web.json_response({"error": "slow down"}, status=429, headers={"retry-after": "1"})
            if page % UNAVAILABLE_EVERY == 3:
                return web.json_response({"error": "out for coffee"}, status=503)
        begin = (page - 1) * size
        more = begin + size < len(airports)
        return web.json_response({"data": airports[begin : begin + size], "paging": {"page": page, "hasMore": more}})


async def serve(port: int) -> None:
    """Serves until cancelled; prints its address once it listens, so that a parent knows a free port that was taken."""
    runner = web.AppRunner(AirportsApi().application(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print("http://{}:{}".format(*runner.addresses[0]), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8099, help="0 takes a free one")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(parser.parse_args().port))
