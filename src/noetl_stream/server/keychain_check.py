"""Checks before a workflow starts that the credentials its keychain names exist (LANGUAGE §11)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from noetl_stream.engine.advance import InvalidPlan
from noetl_stream.playbook.diagnostics import Diagnostic, did_you_mean
from noetl_stream.playbook.kinds.keychain import credential_name
from noetl_stream.playbook.plan import KeychainPlan, Plan
from noetl_stream.server.responders.secrets import SecretsResponder


async def with_credentials(plan: Plan | InvalidPlan, secrets: SecretsResponder | None) -> Plan | InvalidPlan:
    """``plan``, or why it cannot run: its keychain names a credential that does not exist.

    The database is queried only if the keychain names any.

    Raises:
        Unreachable: the database does not answer.
    """
    if isinstance(plan, InvalidPlan) or secrets is None:
        return plan
    if not any(needed_credential(entry) for entry in plan.keychain.values()):
        return plan
    missing = missing_credentials(plan.keychain, await secrets.names(), plan.path)
    if not missing:
        return plan
    reason = f"line {missing[0].line}: {missing[0].message} ({missing[0].hint})"
    return InvalidPlan(reason, [diagnostic.to_json() for diagnostic in missing])


def missing_credentials(
    keychain: Mapping[str, KeychainPlan], known: Collection[str], file: str = ""
) -> list[Diagnostic]:
    """An error for each entry whose credential is not ``known``. Entries of other kinds are resolved on the worker."""
    found = []
    for entry in keychain.values():
        name = needed_credential(entry)
        if name is None or name in known:
            continue
        near = did_you_mean(name, known)
        hint = f"{near + ' ' if near else ''}store it: `noetl-stream credential set {name}`"
        message = f"the keychain's `{entry.name}` needs the credential `{name}`, which is not stored"
        found.append(
            Diagnostic(
                severity="error",
                code="missing_credential",
                message=message,
                hint=hint,
                file=file,
                line=entry.line,
                column=1,
                pointer="/keychain",
            )
        )
    return found


def needed_credential(entry: KeychainPlan) -> str | None:
    """The stored credential ``entry`` needs; ``None`` if its kind needs none."""
    return credential_name(entry.name, entry.kind, entry.settings)
