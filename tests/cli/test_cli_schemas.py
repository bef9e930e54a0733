"""``kind: Schema`` on a stack that is up: registered, checked with, and what a mismatch looks like (LANGUAGE §10)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cli_program import HEAD, only_json
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")

SCHEMA = """apiVersion: noetl.io/v2
kind: Schema
metadata: { name: customer, path: typed/customer }
spec: { type: object, properties: { name: { type: string }, age: { type: integer } } }
"""
PLAYBOOK = f"""{HEAD}metadata: {{ name: typed, path: typed/flow }}
workload: {{ age: 36 }}
workflow:
  - step: start
    tool:
      - name: fetch
        kind: noop
        args: {{ name: Ada, age: "{{{{ workload.age }}}}" }}
        spec: {{ result: {{ schema: {{ path: typed/customer }} }} }}
      - {{ name: use, kind: noop, args: {{ says: "{{{{ fetch.name }}}}" }} }}
"""


def test_a_registered_schema_is_what_results_must_match(shared_home: Path, playbook: Callable[..., Path]) -> None:
    schema, flow = playbook(SCHEMA, "schema.yaml"), playbook(PLAYBOOK)
    target = ["--home", shared_home]
    unknown = noetl("run", flow, *target)
    assert (unknown.returncode, "no schema typed/customer in the catalog" in unknown.stderr) == (2, True)

    assert noetl("playbook", "register", schema, flow, *target).returncode == 0
    shown = {one["path"]: one["kind"] for one in only_json(noetl("playbook", "list", *target, "-o", "json"))}
    assert (shown["typed/customer"], shown["typed/flow"]) == ("Schema", "Playbook")

    assert noetl("run", "typed/flow", *target).returncode == 0
    failed = only_json(noetl("run", "typed/flow", "--set", "age=old", *target, "-o", "json"))
    assert (failed["status"], failed["error"]["kind"], failed["error"]["code"]) == ("failed", "schema_mismatch", "/age")
    assert "old" not in failed["error"]["message"]

    refused = noetl("run", "typed/customer", *target)
    assert (refused.returncode, "typed/customer is a schema, not a playbook" in refused.stderr) == (2, True)


def test_a_playbook_is_checked_with_the_schemas_among_the_files(playbook: Callable[..., Path]) -> None:
    schema = playbook(SCHEMA, "schema.yaml")
    misspelt = playbook(PLAYBOOK.replace("fetch.name", "fetch.nmae"))
    assert noetl("playbook", "check", misspelt).stdout == f"{misspelt}: ok\n"
    found = noetl("playbook", "check", schema, misspelt)
    assert "warning[unknown_result_key]" in found.stdout and "did you mean `name`?" in found.stdout
    broken = playbook(SCHEMA.replace("properties:", "propertis:"), "broken.yaml")
    assert noetl("playbook", "check", broken).returncode == 2
    assert noetl("run", schema).returncode == 2
