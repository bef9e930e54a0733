"""The playbook of a new execution: found, and checked before anything is published (LANGUAGE §9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl_stream.concurrency import SharedLoads
from noetl_stream.errors import (
    VALUE_FAULTS,
    EvaluationEnded,
    NotFound,
    PlaybookRefused,
    Unreachable,
    UsageError,
    WorkloadRefused,
)
from noetl_stream.lru import LruCache
from noetl_stream.model.ids import digest_of
from noetl_stream.model.json import codec
from noetl_stream.model.json.values import deep_merge
from noetl_stream.model.limits import Limits
from noetl_stream.operations.bundles import require_locks
from noetl_stream.ports.evaluator import Evaluator
from noetl_stream.ports.operations.executions import Start
from noetl_stream.ports.operations.playbooks import SchemaKind
from noetl_stream.ports.stores.catalog import PLAYBOOK, Catalog, find_entry, read_address
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.streams.blobs import Blobs

if TYPE_CHECKING:  # starting a registered playbook does not wait for the compiler
    from noetl_stream.playbook.compile.compiler import CheckResult, Schemas
    from noetl_stream.playbook.kinds.spec import Kinds
    from noetl_stream.playbook.plan import Plan
    from noetl_stream.playbook.workload import WorkloadSchema

PLANS_KEPT: Final = 256


class SubmittedText(msgspec.Struct, frozen=True, gc=False):
    """The text of a playbook. ``name`` appears in diagnostics. ``stored``: whether it is already in the store."""

    name: str
    source: str
    stored: bool


class CheckedText(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The part of a checked playbook that a request needs, as in its plan."""

    digest: str
    path: str
    workload: Mapping[str, Any]
    schema: dict[str, Any] | None = None

    @property
    def workload_schema(self) -> WorkloadSchema | None:
        if self.schema is None:
            return None
        from noetl_stream.playbook.workload import WorkloadSchema  # most playbooks have none

        return WorkloadSchema(self.schema)


class PlaybookChecker:
    """Checks playbooks like a server here, and caches their plans.

    Args:
        kinds: Called when the first playbook is checked.
        limits: Of the operator; a playbook may lower them.
        checked: Checked before with the same kinds and limits.
        needs_locks: True if the requirements of tasks must be locked.
    """

    def __init__(
        self,
        kinds: Callable[[], Kinds],
        limits: Limits,
        checked: Iterable[CheckedText] = (),
        *,
        needs_locks: bool = True,
    ) -> None:
        self._kinds = kinds
        self._needs_locks = needs_locks
        self._limits = limits
        self._plans: LruCache[str, Plan] = LruCache(PLANS_KEPT)
        self._compiling: SharedLoads[str, Plan] = SharedLoads()
        self._checked = {one.digest: one for one in checked}
        self._schemas: dict[SchemaKind, dict[str, Any]] = {}

    async def check(self, source: str | bytes, name: str) -> CheckResult:
        """The diagnostics and the plan of a text. Runs in another thread, since it may take long."""
        from noetl_stream.playbook.compile.compiler import check

        return await asyncio.to_thread(check, source, self._kinds(), file=name, limits=self._limits)

    async def schema(self, kind: SchemaKind) -> dict[str, Any]:
        """The JSON Schema of valid documents of a kind; made once."""
        from noetl_stream.playbook.schedule.schedule_document import schedule_schema
        from noetl_stream.playbook.schema import playbook_schema
        from noetl_stream.playbook.trigger.trigger_document import trigger_schema

        if kind not in self._schemas:
            made: dict[SchemaKind, Callable[[], dict[str, Any]]] = {
                "Playbook": partial(playbook_schema, self._kinds(), self._limits),
                "Schedule": schedule_schema,
                "Trigger": trigger_schema,
            }
            self._schemas[kind] = await asyncio.to_thread(made[kind])
        return self._schemas[kind]

    def known(self, digest: str) -> Plan | None:
        """The cached plan of a playbook, if there is one."""
        return self._plans.get(digest)

    def checked(self, digest: str) -> Plan | CheckedText | None:
        """The cached plan or check of a playbook, if there is one."""
        return self._plans.get(digest) or self._checked.get(digest)

    async def check_document(
        self, source: bytes, name: str, schemas: Schemas | None = None, *, proves: bool = False
    ) -> CheckResult:
        """:meth:`check` for any document of the catalog; see :func:`~noetl_stream.playbook.compile.compiler.check`."""
        from noetl_stream.playbook.compile.compiler import check_document

        return await asyncio.to_thread(
            check_document, source, self._kinds(), file=name, limits=self._limits, schemas=schemas, proves=proves
        )

    async def plan(self, source: str, name: str) -> Plan:
        """The plan of a text.

        Raises:
            PlaybookRefused: it has errors.
        """
        digest = digest_of(source)

        async def compiled() -> Plan:
            plan = self.plan_of(await self.check(source, name), name)
            self._plans.put(digest, plan)
            return plan

        return self._plans.get(digest) or await self._compiling.get(digest, compiled)

    async def require_locks(self, blobs: Blobs, plan: Plan, name: str) -> None:
        """Calls :func:`~noetl_stream.operations.bundles.require_locks` if locks are needed.

        Raises:
            UsageError: a lock is missing.
        """
        if self._needs_locks:
            await require_locks(blobs, plan, name)

    def plan_of(self, checked: CheckResult, name: str) -> Plan:
        """The plan of a checked text.

        Raises:
            PlaybookRefused: it has errors.
        """
        if checked.plan is not None:
            return checked.plan
        raise refusal_of(checked, name)


async def refuse_workload(
    playbook: Plan | CheckedText, given: Mapping[str, Any], evaluator: Evaluator | None = None
) -> None:
    """Refuses a workload like a server.

    Args:
        evaluator: Makes long comparisons. Without it, this process makes them at any cost.

    Raises:
        WorkloadRefused: the workload with the given values does not match the playbook's schema.
    """
    if (schema := playbook.workload_schema) is None:
        return
    workload = deep_merge(playbook.workload, dict(given))
    if evaluator is None:
        refused = schema.refusal(workload)
    elif schema.comparisons(workload) is not None:
        refused = schema.mismatch(workload)
    else:
        refused = await _refusal_elsewhere(schema, workload, evaluator)
    if refused is not None:
        raise refused


async def _refusal_elsewhere(
    schema: WorkloadSchema, workload: dict[str, Any], evaluator: Evaluator
) -> WorkloadRefused | None:
    """The reason for refusing the workload, if any; if it cannot be determined here, a server decides."""
    from noetl_stream.engine import choices  # most workloads are compared here

    try:
        found = await evaluator.evaluate(codec.encode(choices.ask_of_workload(schema, workload)))
        return choices.refusal_in(choices.decode_answers(found).chosen[choices.WORKLOAD])
    except (EvaluationEnded, Unreachable, *VALUE_FAULTS):
        return None


def refusal_of(checked: CheckResult, name: str) -> PlaybookRefused:
    """The error for refusing a text with errors."""
    first = next(one for one in checked.diagnostics if one.severity == "error")
    found = [diagnostic.to_json() for diagnostic in checked.diagnostics]
    return PlaybookRefused(f"{name}:{first.line}: {first.message}", found, hint=first.hint)


async def find_playbook(wanted: Start, store: Store, catalog: Catalog) -> SubmittedText:
    """The text to start.

    Raises:
        UsageError: not exactly one of ``playbook``, ``digest`` and ``path`` is given, or a version without a path.
        NotFound: the path, version or digest does not exist.
    """
    given = [name for name in ("playbook", "digest", "path") if getattr(wanted, name) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise UsageError(f"give exactly one of playbook, digest and path, not {found}")
    if wanted.version is not None and wanted.path is None:
        raise UsageError("a version needs a path")
    if wanted.playbook is not None:
        return SubmittedText("playbook", wanted.playbook, stored=False)
    digest, name = wanted.digest or "", f"digest {wanted.digest}"
    if wanted.path is not None:
        text = wanted.path if wanted.version is None else f"{wanted.path}@{wanted.version}"
        address = read_address(text)
        if address is None:
            raise NotFound(f"{text!r} is not an address in the catalog")
        entry = await find_entry(catalog, address, PLAYBOOK)
        digest, name = entry.digest, f"{entry.path}@{entry.known_as}"
    row = await store.playbook(digest)
    if row is None:
        hint = "use the SHA-256 of the text of a playbook that was registered or run"
        raise NotFound(f"no playbook with digest {digest}", hint=hint)
    return SubmittedText(name, row.source, stored=True)
