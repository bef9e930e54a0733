"""LANGUAGE §16: each node of an older playbook is in what it becomes, or a note shows it."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from random import Random
from typing import Any

import pytest
from random_legacy import draw, written
from ruamel.yaml import YAML
from upgrade_pairs import LEGACY, dumped, pairs, upgraded, whole

from effort import in_gate
from noetl_stream.playbook.diagnostics import InvalidPlaybook
from noetl_stream.playbook.upgrade.rules import RULES

Way = tuple[str | int, ...]

SECRETS = ("keychain", "auth")
"""Keys below which values may be secrets: notes name their keys alone."""
PART = 40
GROUPS = 60


@cache
def trees() -> tuple[tuple[str, Any], ...]:
    """Older playbooks: examples, those before each rule, and random ones."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in LEGACY} | {one.name: one.before for one in pairs()}
    for seed in range(20):
        random = Random(f"nothing lost {seed}")
        texts[f"random {seed}"] = written(draw(random), random)
    yaml = YAML(typ="safe", pure=True)
    return tuple((name, yaml.load(text)) for name, text in texts.items())


def nodes(node: Any, way: Way = ()) -> Iterator[Way]:
    """The ways to all mappings and scalars of a playbook."""
    if isinstance(node, dict | list):
        for key, inner in node.items() if isinstance(node, dict) else enumerate(node):
            yield from nodes(inner, (*way, key))
    if not isinstance(node, list):
        yield way


def marked(tree: Any, way: Way) -> tuple[str, list[str]]:
    """The playbook with something at this place that no dialect knows, and the texts by which one would find it."""
    tree = deepcopy(tree)
    around, node = tree, tree
    for key in way:
        around, node = node, node[key]
    if isinstance(node, dict):
        node["zzkey"] = "zzvalue"
        return dumped(tree), ["zzkey"] if any(key in SECRETS for key in way) else ["zzkey", "zzvalue"]
    around[way[-1]] = "{{ zzvalue }}" if isinstance(node, str) and "{{" in node else "zzvalue"
    return dumped(tree), [] if any(key in SECRETS for key in way[:-1]) else ["zzvalue"]


def group(number: int) -> list[tuple[str, Way]]:
    every = [(index, way) for index, (_, tree) in enumerate(trees()) for way in nodes(tree)]
    return [(trees()[index][0], way) for index, way in Random(f"group {number}").sample(every, PART)]


@pytest.mark.parametrize("number", in_gate(list(range(GROUPS)), one_of=60))
def test_a_key_that_no_dialect_knows_is_kept_or_shown_by_a_note(number: int) -> None:
    by_name = dict(trees())
    for name, way in group(number):
        text, wanted = marked(by_name[name], way)
        try:
            found = upgraded(text)
        except InvalidPlaybook:
            continue
        said = found.text + "\n".join(note.message for note in found.notes)
        assert [want for want in wanted if want not in said] == [], (name, way)


@pytest.mark.parametrize("rule", in_gate(RULES, one_of=3), ids=lambda rule: rule.__name__)
def test_without_a_rule_its_form_stays(rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from noetl_stream.playbook.upgrade import upgrade

    own = [one.before for one in pairs() if one.rule == rule.__name__]
    whole = [upgraded(before) for before in own]
    monkeypatch.setattr(upgrade, "RULES", tuple(one for one in RULES if one is not rule))
    assert [upgraded(before) for before in own] != whole


@pytest.mark.parametrize(
    "secret", ["{ sas: zzsecret }", "[ { token: zzsecret } ]", "[ zzsecret ]", "{ key: { k: zzsecret } }"]
)
@pytest.mark.parametrize("kind", ["python", "duckdb"])
def test_a_possible_secret_is_shown_in_no_note(kind: str, secret: str) -> None:
    """Notes stand in the file and on the terminal."""
    found = upgraded(whole(f"- step: start\n  tool: {{ kind: {kind}, auth: {secret}, command: select 1 as n }}\n"))
    assert "zzsecret" not in "".join(note.message for note in found.notes)
