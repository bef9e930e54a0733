"""The schemas that a playbook names in the catalog, pinned when its execution starts (LANGUAGE §10)."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from noetl_stream.engine.advance import InvalidPlan
from noetl_stream.errors import NotFound, UsageError
from noetl_stream.playbook.check.calls import UNREGISTERED_SCHEMA
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.stores.catalog import ADDRESS_FORM, SCHEMA, Catalog, NotRegistered, find_entry, read_address
from noetl_stream.settings.grants import Grants


async def with_schemas(plan: Plan | InvalidPlan, catalog: Catalog, grants: Grants | None) -> Plan | InvalidPlan:
    """Returns ``plan`` with the digests of its schemas, or why it cannot run: one is not registered or not granted.

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
            return InvalidPlan(f"line {line}: {message}", [_diagnostic(plan, line, message, error.hint).to_json()])
    return replace(plan, schemas=pinned) if pinned else plan


def _schema_addresses(plan: Plan) -> Iterator[tuple[str, int]]:
    for step in plan.steps.values():
        if step.schemas:
            yield from ((task.schema.address, task.line) for task in step.tasks if task.schema and task.schema.address)


async def _digest_of(text: str, plan: Plan, catalog: Catalog, grants: Grants | None) -> str:
    """Looks up the digest of a schema.

    Raises:
        NotFound: the schema is not registered, or not granted; schemas that are not granted are not suggested.
        UsageError: the text is no address of a schema, or an ambiguous one.
    """
    address = read_address(text)
    if address is None:
        raise UsageError("is not an address in the catalog", hint=f"use {ADDRESS_FORM}")
    # Before the lookup, so as not to reveal schemas that may not be used.
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


def _diagnostic(plan: Plan, line: int, message: str, hint: str | None) -> Diagnostic:
    return Diagnostic(
        severity="error",
        code=UNREGISTERED_SCHEMA,
        message=message,
        hint=hint,
        file=plan.path,
        line=line,
        column=1,
        pointer="",
    )
