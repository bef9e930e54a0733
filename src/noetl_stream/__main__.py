"""The program ``noetl-stream``: what happens before a command loads and after it ends, which short ones notice."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress


def program() -> None:
    """Runs the command line and ends the process.

    What imports make is no garbage: looking for some takes a tenth of a read command, so collection waits for the
    command's work. The interpreter's own end frees what the process's end frees at once.
    """
    gc.disable()
    from noetl_stream.cli.main import main

    try:
        main()
    except SystemExit as ended:
        code = ended.code
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):
            stream.flush()
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    program()
