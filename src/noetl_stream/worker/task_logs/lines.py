"""Lines of a task's output as it arrives: cut, decoded, and without secrets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from noetl_stream.worker.secrets.run_secrets import RunSecrets
from noetl_stream.worker.worker_limits import MAX_LOG_LINE_BYTES

_LINE_END: Final = b"\n"


class TimedText(NamedTuple):
    """A line and its time, in ms since the epoch."""

    at_ms: int
    text: str


class OutputLines:
    """The lines of one stream of one attempt.

    Only the start of a line over :data:`MAX_LOG_LINE_BYTES` is kept. Lines wait here until :meth:`take`, so that a
    secret of several lines is found whole.

    Args:
        secrets: The secrets that the run has read so far, which are redacted.
    """

    def __init__(self, secrets: RunSecrets) -> None:
        self._secrets = secrets
        self._whole: list[TimedText] = []
        self._open = bytearray()
        self._cut_bytes = 0
        self._at_ms = 0

    def add(self, data: bytes, at_ms: int, room: Callable[[int], bool]) -> int:
        """Adds bytes that the task wrote; returns the number of dropped lines.

        Args:
            room: Returns whether a line of this size may be kept.
        """
        at, dropped = 0, 0
        self._at_ms = at_ms
        while (end := data.find(_LINE_END, at)) >= 0:
            self._extend(data, at, end)
            at = end + 1
            if not room(len(self._open)):
                rest = data.rfind(_LINE_END) + 1
                dropped = 1 + data.count(_LINE_END, at, rest)
                self._forget_open()
                at = rest
                break
            self._end_line()
        self._extend(data, at, len(data))
        return dropped

    def take(self, *, ended: bool = False) -> list[TimedText]:
        """Returns the lines so far, without secrets. The last ones are held back while a secret may continue in the
        next.

        Args:
            ended: Whether the output has ended: an unfinished line then counts, and none is held back.
        """
        if ended and self._open:
            self._end_line(is_whole=False)
        redactor = self._secrets.used
        if redactor is None:
            taken, self._whole = self._whole, []
            return taken
        texts = [line.text for line in self._whole]
        ready = len(texts) if ended else redactor.lines_ready(texts)
        taken, self._whole = self._whole[:ready], self._whole[ready:]
        if not taken:
            return []
        shown = redactor.text("\n".join(texts[:ready])).split("\n")
        times = [line.at_ms for line in taken]
        return [TimedText(times[min(number, ready - 1)], text) for number, text in enumerate(shown)]

    def _extend(self, data: bytes, start: int, end: int) -> None:
        room = MAX_LOG_LINE_BYTES - len(self._open)
        self._open += data[start : min(end, start + room)]
        self._cut_bytes += max(0, end - start - room)

    def _end_line(self, *, is_whole: bool = True) -> None:
        text = self._open.removesuffix(b"\r").decode("utf-8", errors="replace")
        if self._cut_bytes or not is_whole:
            redactor = self._secrets.used
            text = text if redactor is None else redactor.cut_text(text)
        if self._cut_bytes:
            text += f"… ({self._cut_bytes:,} more bytes)"
        self._forget_open()
        self._whole.append(TimedText(self._at_ms, text))

    def _forget_open(self) -> None:
        self._open.clear()
        self._cut_bytes = 0
