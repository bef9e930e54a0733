"""What has no older form stays byte for byte, and what cannot be rewritten is said, whatever it is."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from ruamel.yaml import YAML
from upgrade_pairs import HEAD, LEGACY, dumped, pairs, upgraded, whole

from effort import in_gate
from noetl_stream.playbook.diagnostics import OLDER_FORMS, InvalidPlaybook
from noetl_stream.playbook.upgrade.roundtrip import MARK

TESTS = Path(__file__).parents[1]
ACCEPTED = {"labelled"}
"""Playbooks in forms that are accepted, and that the converter writes in their first form."""
PRESENT = [
    path
    for folder in (TESTS.parent / "playbooks", TESTS / "playbook" / "accepted")
    for path in sorted(folder.glob("*.yaml"))
    if path.stem not in ACCEPTED and "." not in path.stem
]
BROKEN = sorted((TESTS / "playbook" / "broken").glob("*.yaml"))

ODD = (
    *(None, True, 7, 1.5, "", "text", "{{ a.b }}", "{{ (", [], {}, [1], {"a": 1}, {1: 2, "a*(": [1]}, ["a", "b"]),
    *([[{"kind": "noop"}]], {"kind": []}),
)


@pytest.mark.parametrize("path", PRESENT, ids=lambda path: path.stem)
def test_a_playbook_of_the_present_language_is_left_alone(path: Path) -> None:
    """Not a byte changes, and there is nothing to say."""
    text = path.read_text(encoding="utf-8")
    found = upgraded(text)

    assert (found.text, found.notes) == (text, ())


OWN_NAMES = """\
workload: { result: 1, attempt: 2, item: 3, context: 4, job: { uuid: 5 } }
workflow:
  - step: rows
    tool: { kind: duckdb, command: select 1 as n }
    next: { arcs: [ { step: each, args: { rows: [ { n: 1 } ] } } ] }
  - step: each
    loop: { in: [1, 2], iterator: number }
    tool:
      - name: list
        kind: noop
        args:
          text: "{% for one in [1, 2] %}{{ loop.index }}{% endfor %}"
          names: "{{ item + attempt + context + job.uuid }}"
          first: "{{ rows[0].n }}"
        spec:
          policy:
            rules:
              - when: "{{ outcome.status == 'error' and attempt > 1 }}"
                then: { do: fail }
              - else: { then: { do: continue, set_iter: { seen: "{{ result }}" } } }
      - kind: python
        code: |
          return "{{ loop.index }} {{ job.uuid }}"
"""


def test_names_that_a_playbook_declares_are_its_own() -> None:
    """A name of an older dialect is one only where the playbook does not use it for something else."""
    text = HEAD + OWN_NAMES
    found = upgraded(text)

    assert (found.text, found.notes, found.passes) == (text, (), True)


def test_lines_that_no_rule_is_about_keep_their_layout() -> None:
    """Quotes, spacing, folds and blank lines stay, however unusual."""
    step = (
        "  - step:   start\n"
        "    desc: 'a  b'   # why\n\n\n"
        "    tool:  {kind:   noop,args: { a : [1,2],\n"
        '               b: "x" }}\n'
    )
    text = f"{HEAD}\n# all\nworkflow:\n{step}    next: end\n  - step: end\n    tool: {{ kind: noop }}\n"
    found = upgraded(text)

    after = "    next:\n      arcs:\n        - { step: end }\n"
    assert found.text == text.replace("    next: end\n", after)


def test_line_ends_of_windows_stay() -> None:
    """A file with CRLF has no other line end afterwards."""
    before = whole("- step: start\n  tool: { kind: noop }\n  next: end\n- step: end\n").replace("\n", "\r\n")
    after = upgraded(before).text

    assert after.count("\r\n") == after.count("\n") > before.count("\n")


@pytest.mark.parametrize("path", in_gate(BROKEN, one_of=4), ids=lambda path: path.stem)
def test_an_older_form_that_stays_is_named_at_its_place(path: Path) -> None:
    """Where no rule knows the way, a comment says that a person must decide, once."""
    try:
        found = upgraded(path.read_text(encoding="utf-8"))
    except InvalidPlaybook:
        return
    left = [one for one in found.diagnostics if one.code in OLDER_FORMS and one.severity == "error"]

    assert not left or MARK in found.text
    assert upgraded(found.text).text == found.text


def _places(node: Any) -> list[tuple[Any, Any]]:
    """All places in a collection, as container and key."""
    keys = list(node.items() if isinstance(node, dict) else enumerate(node)) if isinstance(node, dict | list) else []
    return [(node, key) for key, _ in keys] + [place for _, inner in keys for place in _places(inner)]


def _spoil(tree: Any, random: Random) -> None:
    """Puts something odd somewhere into a playbook, or an alias of another place of it."""
    places = _places(tree)
    (container, key), (other, name) = random.choice(places), random.choice(places)
    is_around = any(inner is container for inner, _ in _places(other[name])) or other[name] is container
    container[key] = random.choice(ODD) if is_around or random.random() < 0.7 else other[name]


@pytest.mark.parametrize("seed", in_gate(list(range(100)), one_of=30))
def test_every_playbook_is_upgraded_or_refused_whatever_its_values(seed: int) -> None:
    """Values of the wrong kind and aliases at any place are left to `check`; none is a traceback."""
    random = Random(f"odd {seed}")
    texts = [*(path.read_text(encoding="utf-8") for path in LEGACY), *(pair.before for pair in pairs())]
    for text in random.sample(texts, 20):
        tree = YAML(typ="safe", pure=True).load(text)
        _spoil(tree, random)
        try:
            found = upgraded(dumped(tree))
        except InvalidPlaybook as refused:
            assert refused.diagnostics
        else:
            assert found.is_done or found.diagnostics or found.notes
