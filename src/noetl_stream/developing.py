"""The whole stack in the foreground: what ``noetl-stream dev`` keeps up."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable

from noetl_stream.errors import NoetlError
from noetl_stream.hosting import Place, embedded_endpoint, open_place, prepare_embedded
from noetl_stream.processes import Supervised
from noetl_stream.settings import Settings

log = logging.getLogger(__name__)

WATCH_S = 1.0


async def develop(settings: Settings, *, servers: int, workers: int, slots: int, say: Callable[[str], object]) -> None:
    """Keeps everything up until SIGINT or SIGTERM, then ends it in order."""
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    with open_place(settings) as place:
        await prepare_embedded(place)
        children = [Supervised(f"server {n}", ["server"], place) for n in range(1, servers + 1)]
        worker = ["worker", "--pool", settings.pool, "--slots", str(slots)]
        children += [Supervised(f"worker {n}", worker, place) for n in range(1, workers + 1)]
        tasks = [asyncio.create_task(child.run()) for child in children]
        tasks.append(asyncio.create_task(_watch(settings, place)))
        try:
            for line in _address(place):
                say(line)
            await ending.wait()
            log.info("stopping")
        finally:
            await asyncio.gather(*(child.stop() for child in reversed(children)))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _watch(settings: Settings, place: Place) -> None:
    """Starts the embedded servers again when they die."""
    embedded = place.embedded
    while embedded is not None:
        await asyncio.sleep(WATCH_S)
        try:
            for name in await asyncio.to_thread(embedded.revive):
                log.warning("%s had died: started again", name)
                place.endpoint = embedded_endpoint(embedded, settings)
        except NoetlError as error:
            log.error("%s", error)


def _address(place: Place) -> list[str]:
    lines = ["noetl-stream is up. Ctrl-C ends it."]
    if place.embedded is not None:
        lines.append(f"  home      {place.embedded.address.home}")
    lines.append(f"  NATS      {place.endpoint.nats_url}")
    lines.append(f"  Postgres  {place.endpoint.postgres_dsn}")
    home = f" --home {place.embedded.address.home}" if place.embedded is not None else ""
    lines.append(f"  run a playbook: noetl-stream run FILE{home}")
    return lines
