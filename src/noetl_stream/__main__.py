"""The program ``noetl-stream``: startup before a command loads, and the end after it, kept fast for short commands."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress


def program() -> None:
    """Runs the command line and ends the process.

    Imports leave no garbage, and looking for it takes a tenth of a short command: collection starts with the command's
    work. The process then exits at once, without the interpreter freeing what the system frees anyway.
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
