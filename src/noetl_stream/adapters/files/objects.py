"""Files in object storage: S3 and compatible services, Google Cloud Storage, Azure.

Credentials, region and endpoint come from the variables that these services' own tools read; ``obstore`` reads them.
Its errors are reworded: they may contain a signed address.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import obstore
from obstore.exceptions import BaseError
from obstore.store import from_url

from noetl_stream.errors import NoetlError, NotFound, Unreachable, UsageError
from noetl_stream.ports.streams.blobs import MISSING_CODES
from noetl_stream.sealing.chunk_reader import SizedReader, buffered
from noetl_stream.settings.places import ObjectAddress
from noetl_stream.settings.sources.process_environment import object_encryption, object_endpoints

if TYPE_CHECKING:
    from obstore import WritableFile

REQUEST_S: Final = 60
RETRY_S: Final = 20
MAX_RETRIES: Final = 7
PART_BYTES: Final = 32 << 20
"""The size of an upload's parts: S3 takes 10,000, which allows files of up to 312 GiB."""

PARTS_AT_ONCE: Final = 2
READ_BYTES: Final = 8 << 20
PART_READ_BYTES: Final = 64 << 10
"""The bytes of one read of a part: DuckDB reads the end of a file and the columns that a query needs."""

CREDENTIALS_HINT: Final = "look at the AWS_…, GOOGLE_… or AZURE_… variables, or the role of the machine"

_METADATA_SERVERS: Final = ("169.254.169.254", "metadata.google.internal")
_STATUS: Final = re.compile(r"status code: ([0-9]{3})")
_CODE: Final = re.compile(r"<Code>(\w{1,60})</Code>")
_NUMBER: Final = re.compile(r"\(os error ([0-9]{1,4})\)")
_NO_BUCKET: Final = re.compile(r"NoSuchBucket|specified bucket does not exist|ContainerNotFound", re.IGNORECASE)
_LEFT_OUT: Final = re.compile(r"Generic \w{1,40} error: |\w{1,20}://\S+|[A-Za-z0-9+/=_-]{24,}")
"""The parts of an error that are not shown: addresses may be signed, and long words may be keys."""


def open_bucket(address: ObjectAddress, retry_s: float) -> Any:
    """Opens the object store at an address. It retries failed requests for ``retry_s`` seconds.

    Raises:
        UsageError: a variable of the service is invalid.
    """
    object_encryption(address.scheme)
    over_http = [url.startswith("http://") for url in object_endpoints()]
    with reworded(str(address)):
        return from_url(
            str(address),
            client_options={
                "connect_timeout": timedelta(seconds=5),
                "timeout": timedelta(seconds=REQUEST_S),
                **({"allow_http": True} if any(over_http) else {}),
            },
            retry_config={"max_retries": MAX_RETRIES, "retry_timeout": timedelta(seconds=retry_s)},
        )


@contextmanager
def reworded(place: str) -> Iterator[None]:
    """Converts ``obstore``'s errors about a place to those of :class:`~noetl_stream.ports.files.Files`."""
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        raise _error_of(place, str(error), is_missing=isinstance(error, FileNotFoundError)) from None


def _error_of(place: str, text: str, *, is_missing: bool) -> NoetlError:
    """Returns the error for a message of ``obstore``. The full message is long and may contain secrets."""
    found, code, number = _STATUS.search(text), _CODE.search(text), _NUMBER.search(text)
    status = "" if found is None else found[1]
    answer = f"{status} {code[1]}" if code else status
    if any(server in text for server in _METADATA_SERVERS):
        return UsageError(f"there are no credentials for {place}", hint=CREDENTIALS_HINT)
    if _NO_BUCKET.search(text):
        bucket = place.partition("://")[2].partition("/")[0]
        return UsageError(f"{place}: there is no bucket {bucket!r}", hint="make the bucket, or correct its name")
    if status in ("401", "403"):
        return UsageError(f"{place}: access is refused ({answer})", hint=CREDENTIALS_HINT)
    if status == "404" and "performing GET" in text and (code is None or code[1] not in MISSING_CODES):
        return Unreachable(f"{place}: object storage answers {answer}")
    if status == "404" or is_missing:
        return NotFound(f"{place} is not there")
    if status.startswith(("3", "4")):
        hint = "look at AWS_REGION and AWS_ENDPOINT_URL"
        return UsageError(f"{place}: the request is refused ({answer})", hint=hint)
    if status:
        return Unreachable(f"{place}: object storage answers {answer}")
    if "HTTP error" in text or "timed out" in text:
        return Unreachable(f"{place}: object storage does not answer", hint="look at the network and the endpoint")
    if number is not None:
        return UsageError(f"{place}: {os.strerror(int(number[1]))}", hint="look at the folder, its owner and its disk")
    line = _LEFT_OUT.sub("", text.partition("\n")[0])[:200]
    return UsageError(f"{place}: {line}", hint=CREDENTIALS_HINT)


class ObjectFiles:
    """:class:`~noetl_stream.ports.files.Files` that are objects; the port documents the methods.

    Raises:
        UsageError: a variable of the service is invalid.
    """

    def __init__(self, address: ObjectAddress) -> None:
        self._address = address
        self.place = str(address)
        self.name = self.place.rpartition("/")[2]
        self._store = open_bucket(address, RETRY_S)

    def below(self, name: str) -> ObjectFiles:
        prefix = f"{self._address.prefix}/{name}".lstrip("/")
        return ObjectFiles(ObjectAddress(self._address.scheme, self._address.bucket, prefix))

    def sizes(self, under: str = "") -> dict[str, int]:
        with self.errors():
            return {one["path"]: one["size"] for batch in obstore.list(self._store, under or None) for one in batch}

    def open(self, name: str) -> BinaryIO:
        with self.errors(name):
            size = obstore.head(self._store, name)["size"]
        return self._reader(name, size, READ_BYTES)

    def create(self, name: str) -> _NewObject:
        with self.errors(name):
            opened = obstore.open_writer(self._store, name, buffer_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
        return _NewObject(self, name, opened)

    def put(self, made: Path, name: str) -> None:
        """Uploads a file, and checks the object by reading it."""
        with made.open("rb") as file:
            written = _digest(file)
        with self.errors(name):
            obstore.put(self._store, name, made, max_concurrency=PARTS_AT_ONCE)
        with self.open(name) as there:
            if _digest(there) == written:
                return
        self.remove(name)
        raise NoetlError(f"{self.place}/{name} does not hold what was written to it")

    def remove(self, name: str) -> None:
        with self.errors(name):
            obstore.delete(self._store, name)

    def scratch(self) -> TemporaryDirectory[str]:
        """Makes a folder for unfinished files."""
        return TemporaryDirectory(prefix="noetl-files-", ignore_cleanup_errors=True)

    def open_parts(self, name: str, size: int) -> BinaryIO:
        """Opens an object of this size for random reads."""
        return self._reader(name, size, PART_READ_BYTES)

    def read(self, name: str, start: int, end: int) -> memoryview:
        with self.errors(name):
            return memoryview(obstore.get_range(self._store, name, start=start, end=end))

    def _reader(self, name: str, size: int, buffer_bytes: int) -> BinaryIO:
        return buffered(_ObjectReader(self, name, size), buffer_bytes)

    def errors(self, name: str | None = None) -> AbstractContextManager[None]:
        """Turns ``obstore``'s errors into those of :class:`~noetl_stream.ports.files.Files`."""
        return reworded(self.place if name is None else f"{self.place}/{name}")


class _NewObject:
    """Uploads an object in parts, which :meth:`close` joins."""

    def __init__(self, files: ObjectFiles, name: str, opened: WritableFile) -> None:
        self._files = files
        self._name = name
        self._opened = opened

    def write(self, data: bytes) -> int:
        with self._files.errors(self._name):
            return self._opened.write(data)

    def close(self) -> None:
        with self._files.errors(self._name):
            self._opened.close()

    def abandon(self) -> None:
        with contextlib.suppress(BaseError, OSError):
            self._opened.__exit__(NoetlError, NoetlError("abandoned"), None)


class _ObjectReader(SizedReader):
    """Reads an object by byte ranges."""

    def __init__(self, files: ObjectFiles, name: str, size: int) -> None:
        super().__init__(size)
        self._files = files
        self._name = name

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self.size)
        if self._at >= end:
            return 0
        data = self._files.read(self._name, self._at, end)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _digest(file: BinaryIO) -> bytes:
    digest = sha256()
    while piece := file.read(READ_BYTES):
        digest.update(piece)
    return digest.digest()
