"""The errors of ``obstore`` as task errors. Its messages are not shown: they hold addresses, which may be signed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from noetl_stream.tools.contract import ToolFailure

_STATUS: Final = re.compile(r"status code: ([0-9]{3})")
_CODE: Final = re.compile(r"<Code>(\w{1,60})</Code>|\"code\": ?\"?(\w{1,60})")
_NUMBER: Final = re.compile(r"\(os error ([0-9]{1,4})\)")
_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound", "specified bucket does not exist")
_CONFLICTS: Final = ("409", "412")
_SLOW_DOWN: Final = "429"
_GATEWAYS: Final = ("502", "504")
"""The answers of the worker's own proxy when it cannot connect."""
_CERTIFICATE: Final = "InvalidCertificate("
_UNREACHABLE: Final = ("HTTP error", "timed out", "error sending request")


class FileNotThere(ToolFailure):
    """The failure ``not_found`` for one file."""


class Conflict(ToolFailure):
    """The failure ``conflict``: another writer was first."""


@contextmanager
def failures_of(place: object) -> Iterator[None]:
    """Converts the errors of ``obstore`` about a place to failures.

    Raises:
        ToolFailure: ``not_found``, ``conflict``, ``refused``, ``connection``, ``invalid_input``.
    """
    try:
        yield
    except (BaseError, OSError, ValueError, NotImplementedError) as error:
        raise _failure(place, error) from None


def _failure(place: object, error: Exception) -> ToolFailure:
    text = str(error)
    found, codes = _STATUS.search(text), _CODE.search(text)
    status = "" if found is None else found[1]
    code = "" if codes is None else codes[1] or codes[2]
    answer = f"{status} {code}".strip()
    if any(words in text for words in _NO_BUCKET):
        return ToolFailure.of("not_found", f"{place}: there is no such bucket", code=code or None)
    if isinstance(error, FileNotFoundError) or status == "404":
        return FileNotThere.of("not_found", f"{place} is not there", code=code or None)
    if isinstance(error, AlreadyExistsError | PreconditionError | FileExistsError) or status in _CONFLICTS:
        return conflict(place, code)
    if isinstance(error, PermissionError):
        return ToolFailure.of("refused", f"{place}: access is refused")
    if isinstance(error, ConnectionError | TimeoutError):
        return ToolFailure.of("connection", f"{place}: {error or 'the server does not answer'}", retryable=True)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in ("401", "403"):
        return ToolFailure.of("refused", f"{place}: access is refused ({answer})", code=code or status or None)
    if isinstance(error, NotSupportedError | NotImplementedError):
        return ToolFailure.of("invalid_input", f"{place}: its storage cannot do that")
    if status.startswith("5") or status == _SLOW_DOWN:
        says = f"cannot be reached ({answer})" if status in _GATEWAYS else f"answers {answer}"
        message = f"{place}: the storage {says}"
        return ToolFailure.of("connection", message, retryable=True, code=code or status)
    if status:
        return ToolFailure.of("refused", f"{place}: the request is refused ({answer})", code=code or status)
    if _CERTIFICATE in text:
        return ToolFailure.of("connection", f"{place}: the certificate of the storage is refused")
    if any(words in text for words in _UNREACHABLE):
        return ToolFailure.of("connection", f"{place}: the storage does not answer", retryable=True)
    if number := _NUMBER.search(text):
        return ToolFailure.of("refused", f"{place}: {os.strerror(int(number[1]))}")
    if type(error) is OSError:  # of a server whose texts hold no addresses
        return ToolFailure.of("refused", f"{place}: {error}")
    return ToolFailure.of("refused", f"{place}: the storage refused the request", code=type(error).__name__)


def conflict(place: object, code: str = "") -> Conflict:
    """The failure of a write whose condition does not hold."""
    return Conflict.of("conflict", f"{place} was written by another: the condition does not hold", code=code or None)
