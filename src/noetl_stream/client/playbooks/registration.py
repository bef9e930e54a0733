"""What the catalog keeps of a playbook: where it stands, and what its ``metadata`` says (LANGUAGE §1)."""

from __future__ import annotations

from noetl_stream.errors import UsageError
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.plan import Plan
from noetl_stream.playbook.yaml.source import read_source
from noetl_stream.ports.catalog import CatalogEntry, is_path, is_version

PART_HINT = "up to 256 printable characters, without white space and `@`"


def entry_of(source: str, plan: Plan, *, registered_ms: int, registered_by: str) -> CatalogEntry:
    """The entry to register for a text that compiled to ``plan``.

    Raises:
        UsageError: nobody could address it: its path or version has characters that stand for something else there.
    """
    if not is_path(plan.path):
        raise UsageError(f"{plan.path!r} cannot be a path in the catalog", hint=f"names with `/` between, {PART_HINT}")
    if plan.version is not None and not is_version(plan.version):
        raise UsageError(f"{plan.version!r} cannot be a version in the catalog", hint=f"{PART_HINT}, no `#` first")
    read = read_source(source, Problems(plan.path))
    assert read is not None  # it compiled
    metadata = read.root.plain()["metadata"]
    return CatalogEntry(
        path=plan.path,
        version=plan.version,
        revision=0,
        digest=plan.digest,
        name=plan.name,
        description=metadata.get("description"),
        labels=metadata.get("labels") or {},
        tags=metadata.get("tags") or [],
        registered_ms=registered_ms,
        registered_by=registered_by,
    )
