"""An execution that is asked about: its row, and the plan of its playbook."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from noetl_stream.errors import NotFound, PlaybookRefused
from noetl_stream.model.ids import is_valid_id
from noetl_stream.operations.executions.prepare import PlaybookChecker
from noetl_stream.ports.stores.store import ExecutionRow, Store

if TYPE_CHECKING:
    from noetl_stream.playbook.plan import Plan


async def known_row(store: Store, execution_id: str) -> ExecutionRow:
    """The row of an execution.

    Raises:
        NotFound: there is no such execution.
    """
    row = await store.execution(execution_id) if is_valid_id(execution_id) else None
    if row is None:
        raise NotFound(f"execution {execution_id} not found")
    return row


async def known_plan(store: Store, checking: PlaybookChecker, row: ExecutionRow) -> Plan | None:
    """The plan of its playbook; ``None`` if that does not compile here."""
    known = checking.known(row.digest)
    if known is not None:
        return known
    playbook = await store.playbook(row.digest)
    if playbook is not None:
        with contextlib.suppress(PlaybookRefused):
            return await checking.plan(playbook.source, row.path)
    return None
