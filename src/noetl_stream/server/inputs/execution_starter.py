"""Starts executions: finds the playbook of a request and its resources.

A playbook may use only what the operator's grants allow. Schemas from the catalog are pinned (LANGUAGE §10), and its
credentials must be stored (LANGUAGE §11).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from noetl_stream.engine.advance import UNLOADED, InvalidPlan, Unloaded
from noetl_stream.engine.state import RecordedFact
from noetl_stream.errors import NotFound, UsageError
from noetl_stream.model.events import ExecutionRequested, KeyScope
from noetl_stream.model.placement import PoolLabels, shown_pools
from noetl_stream.model.rights import namespace_of
from noetl_stream.model.status import KEY_TAKEN
from noetl_stream.playbook.check.calls import UNREGISTERED_SCHEMA
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.playbook.kinds.keychain import SECRETS_KIND, credential_name
from noetl_stream.playbook.plan import KeychainPlan, Plan, StepPlan
from noetl_stream.playbook.suggestions import did_you_mean
from noetl_stream.ports.stores.catalog import ADDRESS_FORM, SCHEMA, Catalog, NotRegistered, find_entry, read_address
from noetl_stream.ports.stores.store import PlaybookRow, Store
from noetl_stream.server.answers.credential_values import SecretsResponder
from noetl_stream.server.assembly import ServerParts
from noetl_stream.server.memory.plan_cache import KnownPlaybook, check_path
from noetl_stream.server.ticks.tick import PendingTick
from noetl_stream.settings.grants import EVERYTHING, Grants, Sort
from noetl_stream.settings.servers import POOL_LABELS_VARIABLE


class ExecutionStarter:
    """Adds requested executions to the memory of the server."""

    def __init__(self, parts: ServerParts) -> None:
        self._parts = parts
        self._executions = parts.executions

    async def begin(self, execution_id: str, request: ExecutionRequested) -> PlaybookRow | None:
        """Adds a requested execution with its playbook; returns the playbook if it is to be stored."""
        known = await self._parts.plans.load_if_quick(request.digest)
        if known is None:
            self._executions.begin(execution_id, UNLOADED)
            return None
        self._executions.begin(execution_id, await self._runnable_plan(execution_id, known.plan, request))
        return known.row

    async def take_playbook(self, execution_id: str, recorded: RecordedFact, tick: PendingTick) -> None:
        """Gives a parked execution the playbook that was loaded for it."""
        cached, known = self._executions.get(execution_id), recorded.value
        if cached is None or not isinstance(cached.plan, Unloaded) or not isinstance(known, KnownPlaybook):
            return
        if cached.state is not None and cached.state.request is not None:
            cached.plan = await self._runnable_plan(execution_id, known.plan, cached.state.request)
            if known.row is not None:
                tick.playbooks[known.row.digest] = known.row

    async def _runnable_plan(
        self, execution_id: str, known: Plan | InvalidPlan, request: ExecutionRequested
    ) -> Plan | InvalidPlan:
        """Returns the playbook of a request with its resources, or an invalid plan with the reason."""
        ports = self._parts.ports
        grants = ports.grants.current() if ports.grants is not None else None
        caller = await self._caller_of(request) if grants is not None else None
        placed = with_pools(check_path(known), ports.pool_labels, grants)
        plan = with_keys(check_grants(placed, grants, caller), grants)
        if request.rerun is None:  # a rerun has the schemas of its original
            plan = await with_schemas(plan, ports.catalog, grants)
        plan = self._parts.formats.with_format(await with_credentials(plan, ports.secrets, grants))
        return await with_key(plan, ports.store, execution_id, request) if request.unique else plan

    async def _caller_of(self, request: ExecutionRequested) -> str | None:
        """Returns the path of the calling playbook; ``None`` if the execution was not called."""
        if request.parent is None:
            return None
        row = await self._parts.ports.store.execution(request.parent.execution_id)
        return row.path if row is not None else ""


async def with_key(
    plan: Plan | InvalidPlan, store: Store, execution_id: str, request: ExecutionRequested
) -> Plan | InvalidPlan:
    """Returns ``plan`` if the execution now holds its unique key, or an invalid plan if another execution holds it.

    Raises:
        Unreachable: the database does not answer.
    """
    if isinstance(plan, InvalidPlan):
        return plan
    holder = await store.hold_key(plan.path, request.key, execution_id)
    if holder == execution_id:
        return plan
    text = f"execution {holder} of playbook {plan.path} has the key {request.key}"
    return InvalidPlan(text, [{"code": KEY_TAKEN, "message": text, "execution_id": holder}], KEY_TAKEN)


UNGRANTED_KINDS: Final = frozenset({"noop", "wait", "playbook", SECRETS_KIND})
"""Kinds that need no grant, since they reach nothing by themselves; calls and credentials are granted by name."""

_WORDS: Final[dict[Sort, str]] = {
    "credentials": "use the credential",
    "calls": "call the playbook",
    "pools": "run in the pool",
    "kinds": "have tasks of the kind",
}


def refusal(grants: Grants | None, path: str, sort: Sort, name: str) -> str:
    """Returns the reason why the playbook at ``path`` may not use ``name``; empty if it may."""
    if grants is None or grants.allows(path, sort, name):
        return ""
    return f"playbook {path} may not {_WORDS[sort]} `{name}`: the operator's grants do not give it that"


def check_grants(plan: Plan | InvalidPlan, grants: Grants | None, caller: str | None) -> Plan | InvalidPlan:
    """Returns ``plan``, or an invalid plan that lists the resources it was not granted.

    Args:
        caller: The path of the playbook that called it, if any.
    """
    if isinstance(plan, InvalidPlan) or grants is None:
        return plan
    problems = list(_problems(plan, grants))
    if caller is not None and (reason := refusal(grants, caller, "calls", plan.path)):
        return InvalidPlan(reason, [_diagnostic("not_granted", plan.path, 1, reason, "").to_json()])
    if not problems:
        return plan
    return _refused(problems)


def with_pools(plan: Plan | InvalidPlan, pools: PoolLabels | None, grants: Grants | None) -> Plan | InvalidPlan:
    """Returns ``plan`` with the granted pool of each step with a placement, or an invalid plan if no pool fits a step.

    Args:
        pools: The labels of pools; ``None`` ignores placements.
    """
    if isinstance(plan, InvalidPlan) or pools is None or not plan.has_placement:
        return plan
    chosen: dict[str, str] = {}
    problems = []
    for step in plan.every_step:
        if step.placement is None:
            continue
        pool = step.placement.choose(step.pool, pools, lambda one: not refusal(grants, plan.path, "pools", one))
        if pool is None:
            problems.append(_no_pool(plan, step, pools, grants))
        else:
            chosen[step.name] = pool
    return _refused(problems, f" ({problems[0].hint})") if problems else replace(plan, pools=chosen)


def _no_pool(plan: Plan, step: StepPlan, pools: PoolLabels, grants: Grants | None) -> Diagnostic:
    assert step.placement is not None
    named = f"pool `{step.placement.pool}` has not" if step.placement.pool is not None else "no pool has"
    allowed = {pool: labels for pool, labels in pools.items() if not refusal(grants, plan.path, "pools", pool)}
    shown = shown_pools(allowed) or "no pool that it may use has labels"
    hint = f"{shown}; the operator gives pools labels by {POOL_LABELS_VARIABLE}"
    return _diagnostic("no_pool", plan.path, step.line, f"step `{step.name}`: {named} {step.placement}", hint)


def with_keys(plan: Plan | InvalidPlan, grants: Grants | None) -> Plan | InvalidPlan:
    """Returns ``plan`` with the owner of its limits' keys: the namespace of its path, or all for shared keys."""
    if isinstance(plan, InvalidPlan) or not plan.has_limits:
        return plan
    if grants is None:
        return replace(plan, keys=KeyScope(namespace_of(plan.path)))
    return replace(plan, keys=KeyScope(grants.namespace_of(plan.path), grants.names_for(plan.path, "limits")))


def _problems(plan: Plan, grants: Grants) -> Iterator[Diagnostic]:
    for sort, name, line in dict.fromkeys(_named_resources(plan)):
        reason = refusal(grants, plan.path, sort, name)
        if reason:
            names = ", ".join(name for name in grants.names_for(plan.path, sort) if name != EVERYTHING)
            yield _diagnostic("not_granted", plan.path, line, reason, f"it may use {names or 'none'}")


def _named_resources(plan: Plan) -> Iterator[tuple[Sort, str, int]]:
    """Yields the resources of a plan that need a grant, with lines. Names made by templates are checked when used."""
    for entry in plan.keychain.values():
        credential = credential_name(entry.name, entry.kind, entry.settings)
        if credential is not None:
            yield "credentials", credential, entry.line
    for step in plan.every_step:
        if step.tasks:
            yield "pools", plan.pools.get(step.name, step.pool), step.line
        for task in step.tasks:
            if task.kind not in UNGRANTED_KINDS:
                yield "kinds", task.kind, task.line


async def with_schemas(plan: Plan | InvalidPlan, catalog: Catalog, grants: Grants | None) -> Plan | InvalidPlan:
    """Returns ``plan`` with the digests of its schemas, or an invalid plan if one is not registered or not granted.

    The database is queried only if it names any.

    Raises:
        Unreachable: the database does not answer.
    """
    if isinstance(plan, InvalidPlan):
        return plan
    pinned: dict[str, str] = {}
    for address, line in _schema_addresses(plan):
        try:
            pinned.setdefault(address, await _digest_of(address, plan, catalog, grants))
        except (NotFound, UsageError) as error:
            message = f"the result schema `{address}`: {error.message}"
            return _refused([_diagnostic(UNREGISTERED_SCHEMA, plan.path, line, message, error.hint)])
    return replace(plan, schemas=pinned) if pinned else plan


def _schema_addresses(plan: Plan) -> Iterator[tuple[str, int]]:
    for step in plan.every_step:
        if step.schemas:
            yield from ((task.schema.address, task.line) for task in step.tasks if task.schema and task.schema.address)


async def _digest_of(text: str, plan: Plan, catalog: Catalog, grants: Grants | None) -> str:
    """Returns the digest of a schema.

    Raises:
        NotFound: the schema is not registered, or not granted; schemas that are not granted are not suggested.
        UsageError: the text is no address of a schema, or an ambiguous one.
    """
    address = read_address(text)
    if address is None:
        raise UsageError("is not an address in the catalog", hint=f"use {ADDRESS_FORM}")
    # Before the lookup, so that ungranted schemas are not revealed.
    if not _may_use(plan, address.path, grants):
        raise NotFound("the operator's grants do not let the playbook use it")
    try:
        return (await find_entry(catalog, address, SCHEMA)).digest
    except NotRegistered as error:
        if error.near and not _may_use(plan, error.near, grants):
            raise NotFound(error.message) from None
        raise


def _may_use(plan: Plan, path: str, grants: Grants | None) -> bool:
    return grants is None or grants.allows(plan.path, "calls", path)


async def with_credentials(
    plan: Plan | InvalidPlan, secrets: SecretsResponder | None, grants: Grants | None = None
) -> Plan | InvalidPlan:
    """Returns ``plan``, or an invalid plan if its keychain names a credential that does not exist.

    The database is queried only if the keychain names any. Names that the playbook was not granted are not suggested.

    Raises:
        Unreachable: the database does not answer.
    """
    if isinstance(plan, InvalidPlan) or secrets is None:
        return plan
    if not any(_needed_credential(entry) for entry in plan.keychain.values()):
        return plan
    names = await secrets.names()
    known = {name for name in names if grants is None or grants.allows(plan.path, "credentials", name)}
    missing = missing_credentials(plan.keychain, known, plan.path)
    if not missing:
        return plan
    return _refused(missing, f" ({missing[0].hint})")


def missing_credentials(
    keychain: Mapping[str, KeychainPlan], known: Collection[str], file: str = ""
) -> list[Diagnostic]:
    """Returns an error for each keychain entry whose credential is not ``known``; workers resolve other kinds."""
    found = []
    for entry in keychain.values():
        name = _needed_credential(entry)
        if name is None or name in known:
            continue
        near = did_you_mean(name, known)
        hint = f"{near + ' ' if near else ''}store it: `noetl-stream credential set {name}`"
        message = f"the keychain's `{entry.name}` needs the credential `{name}`, which is not stored"
        found.append(_diagnostic("missing_credential", file, entry.line, message, hint, "/keychain"))
    return found


def _needed_credential(entry: KeychainPlan) -> str | None:
    return credential_name(entry.name, entry.kind, entry.settings)


def _refused(problems: Sequence[Diagnostic], more: str = "") -> InvalidPlan:
    first = problems[0]
    return InvalidPlan(f"line {first.line}: {first.message}{more}", [problem.to_json() for problem in problems])


def _diagnostic(code: str, file: str, line: int, message: str, hint: str | None, pointer: str = "") -> Diagnostic:
    return Diagnostic(
        severity="error", code=code, message=message, hint=hint, file=file, line=line, column=1, pointer=pointer
    )
