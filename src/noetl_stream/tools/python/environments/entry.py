"""The entry of a template (:mod:`~noetl_stream.tools.python.child`) that the interpreter of an environment runs.

It and what it imports need the standard library alone: :data:`MODULES` are all that exists of noetl-stream there.
"""

from __future__ import annotations

import contextlib
import os
import sys
from importlib import import_module
from typing import Final

from noetl_stream.tools.children.linux import adopt_orphans, hide_process
from noetl_stream.tools.python import child, job

MODULES: Final = (
    *("tools.convert", "tools.python.environments.entry"),
    *(f"tools.children.{name}" for name in ("frames", "landlock", "linux", "mounts", "own_limits", "process_tree")),
    *(
        "tools.children.view",
        "tools.scratch.task_files",
        "tools.python.ahead",
        "tools.python.annotations",
        "tools.python.child",
    ),
    *(f"tools.python.{name}" for name in ("code_compiler", "event_loop", "job", "line", "output")),
)
"""The modules of noetl-stream that the interpreter of an environment has."""

START: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    "from noetl_stream.tools.python.environments.entry import main; del sys.path[0]; main(sys.argv[2:])"
)
"""The program that interpreters run, with the folder of the modules and the arguments of :func:`main`."""


def main(arguments: list[str]) -> None:
    """Serves the channel that is standard input.

    Args:
        arguments: The seconds of CPU time of a job, then folders to import from.
    """
    hide_process()
    adopt_orphans()
    cpu_s, *folders = arguments
    channel = os.dup(0)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    sys.argv[:] = [""]
    job.in_environment = True
    sys.path += folders
    for module in child.PRELOADED:
        with contextlib.suppress(ImportError):
            import_module(module)
    child.prepare()
    child.serve(channel, int(cpu_s))
