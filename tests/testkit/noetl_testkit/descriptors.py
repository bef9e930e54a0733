"""Uses up the descriptors of this process, for tests of what happens to a worker without any."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator

_FEW = 64


@contextlib.contextmanager
def few_descriptors() -> Iterator[None]:
    """Lets this process have only a few more descriptors than it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + _FEW, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Takes those that are left, within :func:`few_descriptors`."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            while True:
                held.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        yield
