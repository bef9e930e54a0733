"""Checks every broken playbook in its own process and prints the cost. A test runs this script.

Each line of output is ``name seconds peak_bytes exit_code``. A signal ends a child that exceeds its resource limits.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

from broken_generated import GENERATED
from playbook_kinds import KINDS

from noetl_stream.playbook.compile.compiler import check

FOLDER = Path(__file__).with_name("broken")
MOST_CPU_S = 20
MOST_ADDRESSES_BYTES = 1024 * 1024 * 1024


def in_a_child(text: str | bytes) -> tuple[float, int, int]:
    """Seconds, peak bytes and exit code of a process that checks ``text``: 0 if it has errors, 1 if not."""
    began = time.perf_counter()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
        resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES_BYTES, MOST_ADDRESSES_BYTES))
        code = 70
        try:
            code = int(check(text, KINDS).ok)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(code)
    _, status, used = os.wait4(child, 0)
    return time.perf_counter() - began, used.ru_maxrss * 1024, os.waitstatus_to_exitcode(status)


def main() -> None:
    """Prints one line per broken playbook."""
    cases: dict[str, str | bytes] = {path.name: path.read_bytes() for path in sorted(FOLDER.glob("*.yaml"))}
    cases |= {broken.name: broken.text for broken in GENERATED}
    for name, text in cases.items():
        seconds, peak_bytes, code = in_a_child(text)
        print(name, f"{seconds:.3f}", peak_bytes, code)


if __name__ == "__main__":
    main()
