"""Protects the limits of a process that serves others, which code of its user may try to change (``prlimit(2)``)."""

from __future__ import annotations

import contextlib
import os
import resource
from typing import Final

from noetl_stream.tools.children.linux import write_at_once

_KINDS: Final = {
    name: getattr(resource, name)
    for name in (f"RLIMIT_{kind}" for kind in ("AS", "CPU", "DATA", "FSIZE", "NOFILE", "NPROC", "STACK"))
}
"""The resource limits without which a process could not serve others."""

_NICE: Final = 5
"""The nice value added to that of the worker: a third of the processor time where both want all of it."""

_KILLED_FIRST: Final = 500
"""Added to the badness for which the kernel chooses what to kill when memory is short: half of the machine's memory."""


class LimitsLowered(Exception):
    """Another process has lowered hard limits of this one, which cannot be undone. The text names them."""


class OwnLimits:
    """The present limits of this process, to be kept."""

    def __init__(self) -> None:
        self._kept = {name: resource.getrlimit(kind) for name, kind in _KINDS.items()}

    def restore(self) -> None:
        """Undoes changes of soft limits by other processes.

        Raises:
            LimitsLowered: Hard limits were lowered.
        """
        lowered = []
        for name, kept in self._kept.items():
            found = resource.getrlimit(_KINDS[name])
            if found == kept:
                continue
            if found[1] == kept[1]:
                resource.setrlimit(_KINDS[name], kept)
            else:
                lowered.append(f"{name} is {found[1]} and was {kept[1]}")
        if lowered:
            raise LimitsLowered("; ".join(lowered))


def yield_to_others() -> None:
    """Lets the worker and other processes of the machine pass this one at the processor, and outlive it when memory is
    short.
    """
    os.nice(_NICE)
    with contextlib.suppress(OSError):  # not on macOS
        write_at_once("/proc/self/oom_score_adj", str(_KILLED_FIRST))


def limit_cpu_time(seconds: int) -> None:
    """Limits the further CPU time of this process: it ends with ``SIGXCPU``, and is killed a second later."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    end_s = int(used.ru_utime + used.ru_stime) + 1 + seconds
    limit(resource.RLIMIT_CPU, end_s, end_s + 1)


def cpu_bounds(seconds: int) -> tuple[int, int]:
    """The CPU limits of a newly forked process, for :func:`resource.setrlimit`. See :func:`limit_cpu_time`."""
    return _bounds(resource.RLIMIT_CPU, seconds + 1, seconds + 2)


def limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Limits this process for good, as far as it may still raise the limit."""
    with contextlib.suppress(ValueError):  # macOS refuses some values
        resource.setrlimit(kind, _bounds(kind, soft, soft if hard is None else hard))


def _bounds(kind: int, soft: int, hard: int) -> tuple[int, int]:
    given = resource.getrlimit(kind)[1]
    return (soft, hard) if given == resource.RLIM_INFINITY else (min(soft, given), min(hard, given))
