"""``noetl-stream playbook``: the group."""

from __future__ import annotations

from typing import Final

import click

from noetl_stream.cli.base.lazy import LazyGroup

CATALOG: Final = ("register", "get", "versions", "show", "explain", "diff", "delete", "graph", "statistics")
MODULES: Final = {
    "check": "playbook.check:check_files",
    "schema": "playbook.check",
    **dict.fromkeys(CATALOG, "playbook.catalog"),
    "list": "playbook.catalog:list_playbooks",
    "test": "playbook.test:test_files",
    "upgrade": "playbook.upgrade:upgrade_files",
}


@click.group(cls=LazyGroup, modules=MODULES)
def playbook() -> None:
    """Check, test, register, find and compare playbooks.

    A playbook is a FILE, or in the catalog at PATH[@VERSION], e.g. examples/airports@1.0. VERSION is its
    metadata.version or its revision; the default is the one registered last.
    """
