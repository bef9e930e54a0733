"""Lock files of tasks' requirements: the versions and hashes of all packages of an environment, found by uv.

A project keeps them in its folder ``locks``, so that each deployment uses the same; after one is deleted, the next
deployment uses the newest versions. The bundle contains those that its playbooks name.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from noetl_stream.errors import UsageError
from noetl_stream.settings.children import SDISTS_VARIABLE
from noetl_stream.settings.sources.environment import environment_settings
from noetl_stream.tools.python.environments.interpreters import uv_program
from noetl_stream.tools.python.environments.requirements import Requirements

LOCK_S: Final = 600
"""The time in which uv must find versions, in seconds."""

_OPTIONS: Final = (
    *("--universal", "--generate-hashes", "--no-header", "--no-annotate", "--no-python-downloads", "--quiet"),
    *("--no-sources", "--no-progress"),
)
_CAUSE: Final = re.compile(r"^(?:error|  cause): ", re.MULTILINE)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class RequiringTask(NamedTuple):
    """A task with requirements, and its line in a file."""

    name: str
    source: str
    line: int

    def of(self, *requires: str) -> str:
        """The file and line of the first of these requirements, as far as it is found."""
        wanted = [one.replace(" ", "") for one in requires]
        lines = enumerate(self.source.splitlines(), 1)
        found = (number for number, line in lines for one in wanted if one in line.replace(" ", ""))
        return f"{self.name}:{next(found, self.line)}"


def locks_of(required: Mapping[Requirements, RequiringTask], folder: Path | None, *, keep: bool) -> dict[str, bytes]:
    """The locks of requirements, by their names in a bundle.

    Args:
        required: The requirements, with their places.
        folder: The folder in which locks are kept; ``None`` for none.
        keep: Whether new ones are kept there.

    Raises:
        UsageError: there are no such versions, the index does not answer, or uv is not installed.
    """
    found = {}
    for one, place in required.items():
        file = None if folder is None else folder / one.lock_name
        if file is not None and file.exists():
            found[one.lock_name] = file.read_bytes()
            continue
        found[one.lock_name] = made = _locked(one, place)
        if file is not None and keep:
            part = file.with_suffix(f".{os.getpid()}")
            try:
                file.parent.mkdir(exist_ok=True)
                part.write_bytes(made)
                part.replace(file)  # atomic: another command may write it at the same time
            except OSError as error:
                with suppress(OSError):
                    part.unlink()
                raise UsageError(f"{file}: cannot be written: {error.strerror}") from None
    return found


def _locked(wanted: Requirements, place: RequiringTask) -> bytes:
    words = [_uv(place), "pip", "compile", "-", *_OPTIONS, "--python-version", wanted.least_python]
    words += ["--python", sys.executable, *_where()]
    try:
        made = subprocess.run(
            words, input="\n".join(wanted.requires), capture_output=True, text=True, timeout=LOCK_S, check=True
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"{place.of()}: the index of packages did not answer within {LOCK_S} s") from None
    except subprocess.CalledProcessError as error:
        raise _refused(error.stderr, wanted, place) from None
    about = "; ".join((*wanted.requires, *([f"Python {wanted.python}"] if wanted.python else ())))
    return f"# {about}\n{made.stdout}".encode()


def _where() -> Sequence[str]:
    settings = environment_settings()
    options = [] if settings.sdists else ["--no-build"]
    if settings.constraints:
        options += ["--constraint", settings.constraints]
    if os.path.isabs(settings.index):  # noqa: PTH117
        return [*options, "--no-config", "--no-index", "--find-links", settings.index]
    if settings.index:
        return [*options, "--no-config", "--default-index", settings.index]
    return options  # that of the machine's own settings of uv


def _uv(place: RequiringTask) -> str:
    try:
        return uv_program()
    except FileNotFoundError:
        hint = "install it: pip install uv, or noetl-stream in place of noetl-stream-cli"
        raise UsageError(
            f"{place.of()}: what the task requires is locked by uv, which is not here", hint=hint
        ) from None


def _refused(said: str, wanted: Requirements, place: RequiringTask) -> UsageError:
    why = " ".join(_CAUSE.sub("", said).split())
    named = [
        one for one in wanted.requires if (found := _NAME.match(one)) and re.search(rf"\b{re.escape(found[0])}\b", why)
    ]
    what, at = ", ".join(named or wanted.requires), place.of(*named)
    if re.search("request failed|failed to fetch|error sending request", why, re.IGNORECASE):
        return UsageError(f"{at}: {what}: the index of packages does not answer: {why}")
    hint = "change the versions in `requires`"
    if "no-build" in said or "source distribution" in said:
        hint = f"name a version with a wheel; the operator may allow others with {SDISTS_VARIABLE}=on"
    return UsageError(f"{at}: {what}: cannot be locked: {why}", hint=hint)
