"""The process that evaluates templates: reads questions from its input and writes answers to its output.

It has no environment and no other open files. Its memory, time and files are limited, and it writes no file. On Linux
it reads no file but those of Python, and reaches no process and no network: it is the server's user, but code that
escaped from a template could do nothing with that. It ends with its parent, which closes its input.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from noetl_stream.engine.choices import answer_json
from noetl_stream.tools.children.landlock import READ, Grant, landlock_version, restrict_self
from noetl_stream.tools.children.linux import refuse_new_privileges
from noetl_stream.tools.children.seccomp import TO_OTHERS, filters_calls, refuse_calls

HEADER_BYTES: Final = 8
"""The length of a message's header, which is the length of the message."""

MAX_MEMORY_BYTES: Final = 1024 * 1024 * 1024
MAX_CPU_S: Final = 120
MAX_FILES: Final = 16
"""The most files that the process may open: enough to import a module of Python late."""


_SYSTEM_FOLDERS: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo")
_PACKAGE_FOLDERS: Final = frozenset({"site-packages", "dist-packages"})


def main() -> None:
    """Answers questions until the input ends."""
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    confine_self()
    _limit(resource.RLIMIT_AS, MAX_MEMORY_BYTES)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_NOFILE, MAX_FILES)
    _limit(resource.RLIMIT_CORE, 0)
    while (size := questions.read(HEADER_BYTES)) != b"":
        _allow_cpu(MAX_CPU_S)
        _write(answers, answer_json(questions.read(int.from_bytes(size, "big"))))


def confine_self() -> None:
    """Takes everything from this process but memory, its pipes and the files of Python, as far as the system can."""
    if sys.platform != "linux":
        return
    refuse_new_privileges()
    if version := landlock_version():
        restrict_self((Grant(path, READ) for path in _python_folders()), version)
    if filters_calls():
        refuse_calls(TO_OTHERS)


def _python_folders() -> Iterator[str]:
    """Yields where modules are imported late from: never just any folder of the path, which may be one with keys."""
    yield from (*_SYSTEM_FOLDERS, sys.prefix, sys.base_prefix, sys.exec_prefix, str(Path(__file__).parents[2]))
    yield from (entry for entry in sys.path if Path(entry).name in _PACKAGE_FOLDERS)


def _write(answers: BinaryIO, answer: bytes) -> None:
    answers.write(len(answer).to_bytes(HEADER_BYTES, "big") + answer)
    answers.flush()


def _limit(kind: int, most: int) -> None:
    """Lowers a resource limit for good, if the system has it."""
    _, hard = resource.getrlimit(kind)
    lowered = most if hard == resource.RLIM_INFINITY else min(most, hard)
    try:
        resource.setrlimit(kind, (lowered, lowered))
    except (OSError, ValueError):
        return  # macOS has no limit on the address space; the time limit of the parent remains


def _allow_cpu(seconds: int) -> None:
    """Limits the CPU time of the next answer: the process ends even without a parent to stop it."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(usage.ru_utime + usage.ru_stime) + seconds, hard))


if __name__ == "__main__":
    main()
