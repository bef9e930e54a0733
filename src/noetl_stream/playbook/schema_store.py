"""The JSON Schema of playbooks in the form that JSON Schema Store takes: a file of its repository, and an entry of its
catalog, from which editors learn which files the schema is for."""

from __future__ import annotations

from typing import Any, Final

STORE_URL: Final = "https://json.schemastore.org/noetl-playbook.json"
"""The address of the file ``noetl-playbook.json`` in the store."""

CATALOG_ENTRY: Final[dict[str, Any]] = {
    "name": "NoETL playbook",
    "description": "Playbook of a durable workflow of noetl-stream",
    "fileMatch": ["*.noetl.yaml", "*.noetl.yml"],
    "url": STORE_URL,
}
"""The entry of the store's catalog. Its file names are for playbooks alone: folders called ``playbooks`` are Ansible's
there.
"""


def with_store_address(schema: dict[str, Any]) -> dict[str, Any]:
    """Adds to the schema the address that it has in the store."""
    return {"$id": STORE_URL, **schema}
