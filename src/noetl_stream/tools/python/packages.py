"""The folders of a worker with the packages of bundles, from which children import."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Final

from noetl_stream.model.bundles import PACKAGES, BundleRefused, files_of
from noetl_stream.tools.children.mounts import remove_folder
from noetl_stream.tools.contract import OWN_TROUBLE, ToolCall, ToolFailure, beginning
from noetl_stream.tools.scratch.folders import made_folder, remove_folders_left

KEPT_BYTES: Final = 256 * 1024 * 1024
"""The bytes of bundles that stay unpacked. Bundles imported by living children stay in any case."""

_PREFIX: Final = "noetl-packages-"


class PackageFolders:
    """Unpacks each bundle once into a folder of its own, which appears when it is complete.

    The folders are this process's: they go with it, and nobody else's bundles are ever among them. Those of processes
    that were killed go with the next start.

    Args:
        used: Returns the folders that living children import from.
    """

    def __init__(self, used: Callable[[], Collection[str]], *, kept_bytes: int = KEPT_BYTES) -> None:
        remove_folders_left(_PREFIX)
        self._used, self._kept_bytes = used, kept_bytes
        self._root, self._lock = "", -1
        self._sizes: dict[str, int] = {}
        self._running: Counter[str] = Counter()
        self._unpacking = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def of(self, call: ToolCall) -> AsyncIterator[str]:
        """Yields the folder of the call's packages; empty if it has none. It stays as long as the context.

        Raises:
            ToolFailure: ``bundle_lost``: they cannot be read, or are no bundle.
            WorkerUnfit: There is no room for them.
        """
        if not call.bundle:
            yield ""
            return
        digest = call.bundle.rpartition("@")[2]
        self._running[digest] += 1
        try:
            async with self._unpacking:
                if digest not in self._sizes:
                    await self._unpack(digest, call)
                self._sizes[digest] = self._sizes.pop(digest)  # now the last used
            yield self._folder(digest)
        finally:
            self._running[digest] -= 1

    async def close(self) -> None:
        """Removes the folders."""
        if self._root:
            await asyncio.to_thread(remove_folder, self._root)
            os.close(self._lock)
            self._root, self._sizes = "", {}

    async def _unpack(self, digest: str, call: ToolCall) -> None:
        data = await call.read_bundle()
        with beginning("unpack the packages of a bundle", OWN_TROUBLE):
            await self._make_room(len(data))
            try:
                await asyncio.to_thread(self._write, digest, data)
            except BundleRefused as error:
                raise ToolFailure.of("bundle_lost", f"the packages {call.bundle} are damaged: {error}") from None
        self._sizes[digest] = len(data)

    async def _make_room(self, size: int) -> None:
        """Removes the folders that were unused for the longest time."""
        used = self._used()
        for digest in list(self._sizes):
            if sum(self._sizes.values()) + size <= self._kept_bytes:
                return
            if not self._running[digest] and self._folder(digest) not in used:
                del self._sizes[digest]
                await asyncio.to_thread(remove_folder, str(Path(self._root, digest)))

    def _folder(self, digest: str) -> str:
        return str(Path(self._root, digest, PACKAGES))

    def _write(self, digest: str, data: bytes) -> None:
        files = files_of(data)
        if not self._root:
            self._root, self._lock = made_folder(_PREFIX)
            Path(self._root).chmod(0o711)  # so that children reach theirs, by name
        unfinished = Path(tempfile.mkdtemp(dir=self._root))
        try:
            (unfinished / PACKAGES).mkdir()
            for name, content in files.items():
                file = unfinished / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            for path in (unfinished, *unfinished.rglob("*")):
                path.chmod(0o755 if path.is_dir() else 0o644)
            os.rename(unfinished, Path(self._root, digest))  # noqa: PTH104
        finally:
            remove_folder(str(unfinished))
