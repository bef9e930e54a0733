"""Each rewrite rule by its pairs: what a playbook was, and what it becomes (LANGUAGE §16)."""

from __future__ import annotations

import pytest
from upgrade_pairs import Pair, pairs, upgraded

from effort import in_gate
from noetl_stream.playbook.upgrade.roundtrip import MARK
from noetl_stream.playbook.upgrade.rules import RULES


def by_name(pair: Pair) -> str:
    return pair.name


def test_every_rule_has_a_pair() -> None:
    """A rule without a pair is not tested."""
    assert {rule.__name__ for rule in RULES} == {pair.rule for pair in pairs()}


@pytest.mark.parametrize("pair", pairs(), ids=by_name)
def test_a_rule_rewrites_its_form(pair: Pair) -> None:
    """The playbook before becomes the one after, and a note names the rule."""
    found = upgraded(pair.before)

    assert pair.after == found.text
    assert pair.rule in {note.rule for note in found.notes}


@pytest.mark.parametrize("pair", in_gate(pairs(), one_of=3), ids=by_name)
def test_an_upgraded_playbook_is_not_changed_by_another_upgrade(pair: Pair) -> None:
    """Upgrading again changes nothing, and what was to decide still is."""
    once = upgraded(pair.before)
    again = upgraded(once.text)

    assert once.text == again.text
    assert once.is_done == again.is_done


@pytest.mark.parametrize("pair", pairs(), ids=by_name)
def test_an_upgraded_playbook_passes_check_or_names_the_open_decisions(pair: Pair) -> None:
    """Errors are left only where a comment names a decision."""
    found = upgraded(pair.before)

    assert found.passes or MARK in found.text
    assert (MARK in found.text) == any(note.kind == "decide" for note in found.notes)


OF_A_TOKEN = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: t, path: t/t }
keychain: [ { name: api, kind: bearer, token: abc } ]
workflow:
  - step: start
    tool: { kind: http, url: https://example.org, headers: { Authorization: "Bearer {{ token('api') }}" } }
"""


def test_the_key_of_a_stored_token_is_named() -> None:
    """`token('api')` becomes `keychain.api.access_token`, which a credential stored as it was does not have."""
    found = upgraded(OF_A_TOKEN)

    assert "keychain.api.access_token" in found.text
    assert any("under `access_token`" in note.message for note in found.notes if note.rule == "token_calls")
