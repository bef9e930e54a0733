"""Broken playbooks that no text file can hold: encodings, and texts that would cost too much to read."""

from __future__ import annotations

from typing import NamedTuple

from playbook_building import HEAD, pipeline, workflow

from noetl_stream.playbook.diagnostics import MAX_DIAGNOSTICS
from noetl_stream.playbook.graph import MAX_JOINS
from noetl_stream.playbook.loop import MAX_LOOP_LEVELS
from noetl_stream.playbook.source import MAX_PLAYBOOK_BYTES, MAX_YAML_ALIASES, MAX_YAML_NODES
from noetl_stream.template.limits import TEMPLATE_LIMITS


class Broken(NamedTuple):
    """A text, and the code, line and column of each of its errors; ``limit`` is what a message must name."""

    name: str
    text: str | bytes
    expected: list[tuple[str, int, int]]
    limit: str = ""


GOOD = workflow("- step: start\n  tool: { kind: noop }")
NOISE = 'description: "é {} ü"\n'


def described(mark: str) -> str:
    """A playbook whose description, in line 3, holds ``mark``."""
    return HEAD.replace("tests/test }", f'tests/test, description: "{mark}" }}') + "workflow: []\n"


def bomb(levels: int) -> str:
    """Each level names the one before ten times."""
    first = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    return first + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, levels))


def mapping_bomb(levels: int) -> str:
    """The same with mappings, under a key that is free."""
    first = "  a0: &a0 { x: 1, y: 2, z: 3 }\n"
    more = (f"  a{n}: &a{n} {{ x: *a{n - 1}, y: *a{n - 1}, z: *a{n - 1} }}\n" for n in range(1, levels))
    return HEAD + "workload:\n" + first + "".join(more)


def nested_loops(levels: int) -> str:
    """Loops in loops, one line a level from line 6 on."""
    lines = ["- step: start", "  tool: { kind: noop }", "  loop:"]
    for level in range(levels):
        pad = "  " * (level + 2)
        lines += [f"{pad}in: [1]", f"{pad}iterator: i{level}", f"{pad}loop:"]
    return workflow("\n".join(lines[:-1]))


def joining(count: int) -> str:
    """So many steps that join, one a line from line 6 on."""
    steps = [f"- {{ step: s{n}, spec: {{ join: any }}, next: {{ arcs: [ {{ step: s{n + 1} }} ] }} }}" for n in range(count)]
    return workflow("\n".join(["- step: start", "  next: { arcs: [ { step: s0 } ] }", *steps, f"- step: s{count}", "  tool: { kind: noop }"]))


ENCODINGS = [
    Broken("utf_16_little_endian", GOOD.encode("utf-16"), [("yaml_encoding", 1, 1)]),
    Broken("utf_16_big_endian", b"\xfe\xff" + GOOD.encode("utf-16-be"), [("yaml_encoding", 1, 1)]),
    Broken("utf_16_without_a_mark", GOOD.encode("utf-16-le"), [("yaml_encoding", 1, 2)]),
    Broken("utf_32", GOOD.encode("utf-32"), [("yaml_encoding", 1, 1)]),
    Broken("latin_1", described("né").encode("latin-1"), []),
    Broken("a_lone_continuation_byte", described("x").encode().replace(b"x", b"\x80"), []),
    Broken("a_cut_off_character", GOOD.encode() + b"# \xe2\x82", []),
    Broken("an_overlong_slash", described("x").encode().replace(b'"x"', b'"\xc0\xaf"'), []),
    Broken("an_encoded_surrogate", described("x").encode().replace(b'"x"', b'"\xed\xa0\x80"'), []),
    Broken("a_nul_character", described("a\0b"), []),
    Broken("a_bell", described("a\x07b"), []),
    Broken("an_escape_character", described("\x1b[31m"), []),
    Broken("a_nul_escape", described("a\\0b"), []),
    Broken("a_surrogate_escape", described("\\uD83D"), []),
    Broken("a_noncharacter", described("\ufffe"), []),
    Broken("a_mark_and_an_error", "\ufeff" + GOOD.replace("tool", "toool"), []),
    Broken("windows_line_ends", GOOD.replace("kind: noop", "kind: nope").replace("\n", "\r\n"), []),
    Broken("old_line_ends", GOOD.replace("kind: noop", "kind: nope").replace("\n", "\r"), []),
    Broken("old_line_ends_in_a_template", pipeline('- { kind: noop, args: { a: "{{ nope }}" } }').replace("\n", "\r"), []),
    Broken("line_separators_before_an_error", described("\u2028\u2029\x85").replace("[]", "nope"), []),
]

TOO_MUCH = [
    Broken("a_bomb_of_lists", bomb(12), [], "max_yaml_nodes"),
    Broken("a_bomb_of_mappings", mapping_bomb(12), [], "max_yaml_nodes"),
    Broken("many_aliases", "a: &x 1\nb: [" + "*x , " * (MAX_YAML_ALIASES + 1) + "]", [], "max_yaml_aliases"),
    Broken("many_values", HEAD + "workload: [" + "1, " * MAX_YAML_NODES + "]", [], "max_yaml_nodes"),
    Broken("many_lists", HEAD + "workload: { a: " + "[" * 100_000, [], "max_yaml_depth"),
    Broken("many_braces", HEAD + "workload: " + "{ a: " * 50_000, [], "max_yaml_depth"),
    Broken("many_dashes", "- " * 50_000, [], "max_yaml_depth"),
    Broken("many_indents", "a:\n" + "".join(" " * n + "a:\n" for n in range(1, 300)), [], "max_yaml_depth"),
    Broken("many_keys_in_keys", "? " * 50_000, [], "max_yaml_depth"),
    Broken("deep_aliases", "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 100)), [], "max_yaml_depth"),
    Broken("many_bytes", "#" * (MAX_PLAYBOOK_BYTES + 1), [], "max_playbook_bytes"),
    Broken("one_long_word", "a" * (MAX_PLAYBOOK_BYTES - 1), []),
    Broken("one_long_number", HEAD + "workload: { n: " + "9" * 100_000 + " }", []),
    Broken("one_long_quote", HEAD + 'workload: { a: "' + "x" * 900_000, []),
    Broken("many_directives", "%YAML 1.2\n" * 1000 + "---\na: 1\n", []),
    Broken("many_documents", "--- 1\n" * 5000, []),
    Broken("many_unknown_keys", GOOD + "".join(f"    key{n}: 1\n" for n in range(5000)), [], "max_diagnostics"),
    Broken("many_unbound_names", pipeline("- { kind: noop, args: { a: '" + "{{ nope }} " * 5000 + "' } }"), [], "max_diagnostics"),
    Broken("a_long_template", pipeline("- { kind: noop, args: { a: '{{ 1 }}" + "x" * TEMPLATE_LIMITS.max_template_chars + "' } }"), [], "max_template_chars"),
    Broken("a_deep_template", pipeline("- { kind: noop, args: { a: '{{ " + "(" * 500 + "1" + ")" * 500 + " }}' } }"), [], "max_template_depth"),
    Broken("a_large_workload", workflow("- step: start\n  tool: { kind: noop }", f"executor: {{ spec: {{ policy: {{ limits: {{ max_workload_bytes: 100 }} }} }} }}\nworkload: {{ text: {'x' * 200} }}\n"), [], "max_workload_bytes"),
    Broken("many_loops_in_loops", nested_loops(MAX_LOOP_LEVELS + 1), [], "max_loop_levels"),
    Broken("many_joins", joining(MAX_JOINS + 1), [], "max_joins"),
    Broken("many_knobs", workflow("- step: start\n  tool: { kind: http, url: a }", "executor: { spec: { follow_redirects: { " + ", ".join(f"k{n}: 1" for n in range(200)) + " } } }\n"), [], "max_layered_values"),
]

GENERATED = [*ENCODINGS, *TOO_MUCH]
