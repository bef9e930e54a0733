"""Renews the leases of all running commands from a separate thread (PROTOCOL §3 *Order*)."""

from __future__ import annotations

import logging
import threading

from noetl_stream.errors import NoetlError
from noetl_stream.ports.command_queue import Delivery

log = logging.getLogger(__name__)


class LeaseKeeper:
    """One thread for all deliveries, so that code blocking the event loop costs no lease.

    Args:
        interval_s: Seconds between two renewals.
    """

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._held: dict[int, Delivery] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_closed, name="leases", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hold(self, delivery: Delivery) -> None:
        with self._lock:
            self._held[id(delivery)] = delivery

    def release(self, delivery: Delivery) -> None:
        with self._lock:
            self._held.pop(id(delivery), None)

    def close(self) -> None:
        """Ends the thread; leases still held are no longer renewed."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def renew(self) -> None:
        """Renews all held leases now."""
        with self._lock:
            held = list(self._held.values())
        for delivery in held:
            try:
                delivery.in_progress()
            except NoetlError as error:
                log.warning("cannot renew a lease: %s", error)

    def _renew_until_closed(self) -> None:
        while not self._closing.wait(self.interval_s):
            self.renew()
