"""The bundles of playbooks, with the lock files of their tasks' requirements."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from noetl_stream.errors import BlobMissing, UsageError
from noetl_stream.model.bundles import files_of, is_bundle
from noetl_stream.ports.streams.blobs import Blobs
from noetl_stream.protocol.subjects import bundle_key

if TYPE_CHECKING:  # imported late: starting a playbook of the catalog does not need it
    from noetl_stream.playbook.plan import Plan


async def read_bundle(blobs: Blobs, name: str) -> bytes | None:
    """Returns a bundle; ``None`` if it is missing or damaged."""
    with suppress(BlobMissing):
        data = await blobs.get(bundle_key(name))
        return data if is_bundle(name, data) else None
    return None


async def require_locks(blobs: Blobs, plan: Plan, name: str) -> None:
    """Refuses a playbook with a task whose requirements no lock of its bundle is for.

    Raises:
        UsageError: The first such task.
    """
    from noetl_stream.tools.python.environments.requirements import required_by  # read commands load no tools

    required = await asyncio.to_thread(required_by, plan)  # it parses code
    data = await read_bundle(blobs, plan.bundle) if required and plan.bundle else None
    files = {} if data is None else await asyncio.to_thread(files_of, data)
    for one, line in required.items():
        if one.lock_name not in files:
            what = ", ".join(one.requires) or f"Python {one.python}"
            hint = (
                "`noetl-stream deploy` and `run FILE` lock what tasks require, and hand the lock in with the playbook"
            )
            raise UsageError(f"{name}:{line}: the task requires {what}, and nothing locks that", hint=hint)
