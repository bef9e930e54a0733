"""The root keychain, and the places that can read its entries (LANGUAGE §11)."""

from __future__ import annotations

import pytest
from playbook_building import checked, codes, found, plan_of, workflow

ENTRIES = """
keychain:
  - { name: pg, kind: postgres_credential }
  - { name: token, kind: env, variable: API_TOKEN }
  - name: crm
    kind: oauth2_client_credentials
    token_url: https://example.org/token
    credential: crm_client
    scopes: [read]
"""


def reading(inputs: str, before: str = "") -> str:
    """A playbook whose last task has these inputs."""
    return workflow(f"- step: start\n  tool:\n{before}    - {{ kind: noop, args: {{ {inputs} }} }}", root=ENTRIES)


def test_entries_reach_the_plan_with_their_settings() -> None:
    keychain = plan_of(reading("a: 1")).keychain
    assert list(keychain) == ["pg", "token", "crm"]
    assert [entry.kind for entry in keychain.values()] == ["postgres_credential", "env", "oauth2_client_credentials"]
    assert keychain["token"].settings == {"variable": "API_TOKEN"}
    assert keychain["crm"].settings["scopes"] == ["read"]
    assert [entry.line for entry in keychain.values()] == [6, 7, 8]


def test_a_playbook_without_keychain_has_none() -> None:
    for written in ("", "keychain:\n", "keychain: []\n"):
        assert plan_of(workflow("- step: start\n  tool: { kind: noop }", root=written)).keychain == {}


@pytest.mark.parametrize("read", ["keychain.pg", "keychain.crm.access_token", "keychain['token']", "keychain.pg.user"])
def test_tool_inputs_read_entries_by_name(read: str) -> None:
    assert codes(reading(f'a: "{{{{ {read} }}}}"')) == []


def test_an_entry_that_is_not_declared_is_found() -> None:
    [problem] = checked(reading('a: "{{ keychain.tokn }}"')).diagnostics
    assert (problem.code, problem.hint) == ("unknown_name", "did you mean `token`?")


@pytest.mark.parametrize("read", ["keychain", "keychain[workload.which]", "keychain | length", "keychain.items()"])
def test_the_keychain_is_read_by_names_only(read: str) -> None:
    assert codes(reading(f'a: "{{{{ {read} }}}}"')) == ["keychain_whole"]


OPENED = "    - { name: opened, kind: secrets }\n    - { kind: secrets, credential: stored }\n"


def test_a_secrets_task_makes_a_credential_readable_after_it() -> None:
    reads = 'a: "{{ keychain.stored }}", b: "{{ keychain.opened.user }}"'
    assert codes(reading(reads, before=OPENED)) == []
    assert codes(reading(reads)) == ["unknown_name", "unknown_name"]
    too_early = f"    - {{ kind: noop, args: {{ {reads} }} }}\n{OPENED}"
    assert codes(reading("a: 1", before=too_early)) == ["unknown_name", "unknown_name"]


def test_a_secrets_task_has_no_effect_in_other_steps() -> None:
    steps = f"- step: start\n  tool:\n{OPENED}  next: {{ arcs: [ {{ step: end }} ] }}\n"
    end = '- step: end\n  tool: { kind: noop, args: { a: "{{ keychain.stored }}" } }'
    assert codes(workflow(steps + end)) == ["unknown_name"]


def test_auth_may_name_a_credential_of_the_worker() -> None:
    text = "- step: start\n  tool: { kind: http, url: a, auth: stored_somewhere }"
    assert codes(workflow(text, root=ENTRIES)) == []


def test_bare_names_are_never_entries() -> None:
    assert codes(reading('a: "{{ token }}"')) == ["namespace_not_here"]
    assert codes(reading('a: "{{ crm }}"')) == ["unbound_name"]


def test_a_secret_written_into_the_playbook_is_warned_about() -> None:
    entry = "{ name: a, kind: oauth2_client_credentials, token_url: https://a.b/c, client_id: me, client_secret: x }"
    text = workflow("- step: start\n  tool: { kind: noop }", root=f"keychain: [ {entry} ]\n")
    [warning] = checked(text).diagnostics
    assert (warning.severity, warning.code) == ("warning", "plain_secret")
    assert found(text, "plain_secret")[0].hint == "store it as a credential and name it with `credential`"
