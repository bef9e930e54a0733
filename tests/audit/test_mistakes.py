"""``check`` answers a mistake as a colleague would: what is wrong, where, and what to write instead."""

from __future__ import annotations

import pytest
from later_mistakes import LATER
from mending import mended
from mistakes import MISTAKES, rule, steps, tool, value

from noetl_stream.playbook.compile.compiler import check
from noetl_stream.tools.registry import kinds_of, load_tools

KINDS = kinds_of(load_tools())
MISTAKES = {**MISTAKES, **LATER}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_at_its_place_with_what_to_write(name: str) -> None:
    mistake = MISTAKES[name]
    before, _, after = mistake.marked.partition("¶")
    place = (before.count("\n") + 1, len(before) - before.rfind("\n"), mistake.severity)
    found = check(before + after, KINDS, proves=True).diagnostics
    answers = [one for one in found if (one.line, one.column, one.severity) == place]
    said = "\n".join(one.render() for one in answers)
    assert [word for word in mistake.words if word not in said] == [], "\n".join(one.render() for one in found)


APPLIED_AT_LEAST = 80


def test_the_replacement_of_a_hint_mends_its_place_and_adds_no_error() -> None:
    """The hint of each diagnostic that shows a whole replacement is put into the text, which is checked again."""
    applied, faults = 0, []
    for name, mistake in MISTAKES.items():
        text = mistake.marked.replace("¶", "")
        found = check(text, KINDS, proves=True).diagnostics
        for one in found:
            after = mended(text, one)
            if after is None:
                continue
            applied += 1
            known = {(other.code, other.message) for other in found if other is not one}
            left = check(after, KINDS, proves=True).diagnostics
            worse = [other.render() for other in left if (other.code, other.message) not in known]
            faults += [f"{name}: {one.hint}\n{after}\n" + "\n".join(worse)] if worse else []
    assert faults == []
    assert applied >= APPLIED_AT_LEAST, "hints show whole replacements"


ALONE = {
    "run of a shell": tool("kind: shell\nrun: ls"),
    "for_each": steps(
        "- step: a\n  loop: { for_each: [1], iterator: x }\n  tool: { kind: noop, args: { v: '{{ x }}' } }"
    ),
    "a template without quotes": steps("- step: a\n  tool:\n    kind: http\n    url: {{ workload.url }}/x"),
    "the runs of a retry": rule('{ rules: [ { when: "{{ outcome.error }}", then: { do: retry, times: 4 } } ] }'),
    "with_items": steps("- step: a\n  with_items: [1]\n  tool: { kind: noop, args: { v: '{{ item }}' } }"),
    "a loop in the tool": tool("kind: noop\nloop: { in: [1], iterator: n }\nargs: { v: '{{ iter.n }}' }"),
    "the list as a loop": steps("- step: a\n  loop: [1]\n  tool: { kind: noop, args: { v: '{{ item }}' } }"),
    "the kind of a step": steps("- step: a\n  kind: python\n  code: |\n    return n\n  args: { n: 1 }"),
    "a step in next": steps(
        "- { step: a, tool: { kind: noop }, next: { step: b } }\n- { step: b, tool: { kind: noop } }"
    ),
    "with of a task": tool("kind: http\nwith: { url: http://a }"),
    "the type of a plugin": tool("type: io.kestra.plugin.scripts.python.Script\ncode: return 1"),
    "a key twice": tool("kind: python\nargs: { a: 1 }\nargs: { b: 2 }\ncode: return a + b"),
    "an item without its dash": steps("- step: a\n  tool:\n  - name: t\n    kind: noop\n    name: u\n    kind: noop"),
    "a statement as a list": steps(
        "- step: a\n  loop: { in: '{% for x in workload.names %}{% endfor %}', iterator: x }\n  tool: { kind: noop }"
    ),
    "xcom_pull": value('{{ ti.xcom_pull("a") }}'),
}


@pytest.mark.parametrize("name", ALONE)
def test_consequences_of_a_mistake_are_not_reported_beside_it(name: str) -> None:
    found = [one.render() for one in check(ALONE[name], KINDS).diagnostics]
    assert len(found) == 1, "\n".join(found)
