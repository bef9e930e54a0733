"""Nonces of runs (PROTOCOL §1 *Identity*), generated many at a time: a system call for each would cost every step."""

from __future__ import annotations

from typing import Final

from noetl_stream.ports.clock import Clock

NONCE_BYTES: Final = 6
DRAWN_AT_ONCE: Final = 256


class Nonces:
    """Generates random texts of twelve hexadecimal digits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left: list[str] = []

    def draw(self) -> str:
        if not self._left:
            digits = self._clock.random_bytes(NONCE_BYTES * DRAWN_AT_ONCE).hex()
            length = 2 * NONCE_BYTES
            self._left = [digits[at : at + length] for at in range(0, len(digits), length)]
        return self._left.pop()
