"""The JSON Schema of playbooks in the form that JSON Schema Store takes: a file of its repository, and an entry of its
catalog, from which editors learn which files the schema is for."""

from __future__ import annotations

from typing import Any, Final

STORE_URL: Final = "https://json.schemastore.org/noetl-playbook.json"
"""Where the store serves the file ``noetl-playbook.json``."""

CATALOG_ENTRY: Final[dict[str, Any]] = {
    "name": "NoETL playbook",
    "description": "Playbook of a durable workflow of noetl-stream",
    "fileMatch": ["*.noetl.yaml", "*.noetl.yml"],
    "url": STORE_URL,
}
"""Names that are for playbooks alone: folders called ``playbooks`` are Ansible's in the catalog."""


def stored_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema under the address that it has in the store."""
    return {"$id": STORE_URL, **schema}
