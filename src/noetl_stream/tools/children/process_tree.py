"""Finds the children of processes."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterator
from typing import Final

_KERNEL_LISTS_CHILDREN: Final = os.path.exists("/proc/thread-self/children")  # noqa: PTH110
_OWN: Final = "/proc/self"
_READ_BYTES: Final = 64 * 1024


class ChildrenList:
    """The children of one process, whichever of its threads started them, for frequent reads.

    Args:
        process_id: The process; by default this one.

    The kernel lists children by thread, in files that are cheap to read again but costly to open. They therefore stay
    open until the number of threads changes or one of the threads has ended.
    """

    def __init__(self, process_id: int | None = None) -> None:
        self._process_id = process_id
        # In a namespace without its own /proc, the system's one has other numbers for its processes.
        self._is_translated = process_id is None and _is_known_by_another_number()
        self._folder: int | None = None
        self._files: list[int] = []

    def read(self) -> list[int]:
        """Returns the process ids of the children; none if the process has ended."""
        if not _KERNEL_LISTS_CHILDREN:
            return _listed_by_psutil(self._process_id or os.getpid())
        found = self._listed()
        return [*_own_numbers(found)] if self._is_translated else found

    def has_more_than(self, number: int) -> bool:
        """Returns whether there are more children than ``number``."""
        return len(self._listed() if _KERNEL_LISTS_CHILDREN else self.read()) > number

    def _listed(self) -> list[int]:
        with contextlib.suppress(OSError):
            return self._read() if self._is_open() else self._read_again()
        with contextlib.suppress(OSError):
            return self._read_again()
        return []

    def close(self) -> None:
        for file in self._descriptors():
            os.close(file)
        self._folder, self._files = None, []

    def _is_open(self) -> bool:
        return self._folder is not None and os.fstat(self._folder).st_nlink == len(self._files) + 2

    def _read_again(self) -> list[int]:
        self.close()
        path = f"/proc/{self._process_id or 'self'}/task"
        self._folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        for thread in os.listdir(path):  # noqa: PTH208
            with contextlib.suppress(FileNotFoundError):  # it has ended meanwhile
                self._files.append(os.open(f"{path}/{thread}/children", os.O_RDONLY))
        return self._read()

    def _read(self) -> list[int]:
        return [int(child) for file in self._files for child in os.pread(file, _READ_BYTES, 0).split()]

    def _descriptors(self) -> Iterator[int]:
        yield from self._files
        if self._folder is not None:
            yield self._folder


def kill_adopted(children: ChildrenList, own: Collection[int] = ()) -> bool:
    """Kills and reaps the children of this process but its own: orphans that it adopted. Returns whether none is left.

    If some are left, a signal tells when the next can be reaped.
    """
    while children.has_more_than(len(own)):
        adopted = [process_id for process_id in children.read() if process_id not in own]
        if not sum(map(_killed_and_reaped, adopted)):
            return False
    return True


def _killed_and_reaped(process_id: int) -> bool:
    with contextlib.suppress(OSError):
        os.kill(process_id, signal.SIGKILL)
        return os.waitpid(process_id, os.WNOHANG)[0] != 0
    return False


def _is_known_by_another_number() -> bool:
    return _KERNEL_LISTS_CHILDREN and os.readlink(_OWN) != str(os.getpid())  # noqa: PTH115


def _own_numbers(process_ids: Collection[int]) -> Iterator[int]:
    """Yields the numbers in this namespace of processes that ``/proc`` names by those of another one."""
    for process_id in process_ids:
        with contextlib.suppress(OSError), open(f"/proc/{process_id}/status", "rb") as file:  # noqa: PTH123
            yield from (int(line.split()[-1]) for line in file if line.startswith(b"NSpid:"))


def _listed_by_psutil(process_id: int) -> list[int]:
    import psutil  # large: the zygote never needs it on Linux

    with contextlib.suppress(psutil.Error):
        return [child.pid for child in psutil.Process(process_id).children()]
    return []
