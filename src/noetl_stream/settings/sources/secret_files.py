"""Settings from files: ``NOETL_NATS_NKEY_FILE`` names the file that holds ``NOETL_NATS_NKEY``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from noetl_stream.errors import UsageError

FILE_SUFFIX: Final = "_FILE"
MAX_BYTES: Final = 64 * 1024


def with_files(given: Mapping[str, str], variables: Iterable[str]) -> dict[str, str]:
    """``given``, with each variable that names a file replaced by its content.

    Raises:
        UsageError: A file cannot be read, is empty or over 64 KiB, or its variable is set as well.
    """
    found = dict(given)
    for variable in variables:
        path = found.pop(variable + FILE_SUFFIX, None)
        if path is None:
            continue
        if variable in found:
            raise UsageError(f"{variable} and {variable}{FILE_SUFFIX} are both set", hint="remove one of them")
        found[variable] = _read(variable + FILE_SUFFIX, Path(path))
    return found


def _read(variable: str, path: Path) -> str:
    try:
        if path.exists() and not path.is_file():  # reading a pipe may not end
            raise UsageError(f"{variable} names {path}, which is not a file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        text = content.decode().strip()
    except OSError as error:
        hint = "this process has to be able to read it"
        raise UsageError(f"{variable} names {path}: {error.strerror}", hint=hint) from None
    except ValueError:
        raise UsageError(f"{variable} names {path}, which is not UTF-8 text") from None
    if not text or len(content) > MAX_BYTES:
        extent = "is empty" if not text else f"has more than {MAX_BYTES} bytes"
        raise UsageError(f"{variable} names {path}, which {extent}", hint="write the value of the setting into it")
    return text
