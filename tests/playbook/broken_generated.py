"""Broken playbooks that no text file can hold: encodings, and texts that are too costly to read."""

from __future__ import annotations

from typing import NamedTuple

from playbook_building import HEAD, pipeline, workflow

from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.playbook.check.step_graph import MAX_JOINS
from noetl_stream.playbook.diagnostics import MAX_DIAGNOSTICS
from noetl_stream.playbook.model.loop import MAX_LOOP_LEVELS
from noetl_stream.playbook.yaml.source import MAX_PLAYBOOK_BYTES, MAX_YAML_ALIASES, MAX_YAML_NODES


class Broken(NamedTuple):
    """A text, and the code, line and column of each of its errors; some message must contain ``limit``."""

    name: str
    text: str | bytes
    expected: list[tuple[str, int, int]]
    limit: str = ""


GOOD = workflow("- step: start\n  tool: { kind: noop }")


def described(mark: str) -> str:
    """A playbook whose description, on line 3, is ``mark``."""
    return HEAD.replace("tests/test }", f'tests/test, description: "{mark}" }}') + "workflow: []\n"


def bomb(levels: int) -> str:
    """Each level refers to the previous one ten times."""
    first = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    return first + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, levels))


def mapping_bomb(levels: int) -> str:
    """The same with mappings, under a key that accepts any value."""
    first = "  a0: &a0 { x: 1, y: 2, z: 3 }\n"
    more = (f"  a{n}: &a{n} {{ x: *a{n - 1}, y: *a{n - 1}, z: *a{n - 1} }}\n" for n in range(1, levels))
    return HEAD + "workload:\n" + first + "".join(more)


def nested_loops(levels: int) -> str:
    """Nested loops, one level per line from line 6."""
    lines = ["- step: start", "  tool: { kind: noop }", "  loop:"]
    for level in range(levels):
        pad = "  " * (level + 2)
        lines += [f"{pad}in: [1]", f"{pad}iterator: i{level}", f"{pad}loop:"]
    return workflow("\n".join(lines[:-1]))


def joining(count: int) -> str:
    """``count`` steps with a join, one per line from line 6."""
    steps = [
        f"- {{ step: s{n}, spec: {{ join: any }}, next: {{ arcs: [ {{ step: s{n + 1} }} ] }} }}" for n in range(count)
    ]
    return workflow(
        "\n".join(
            [
                "- step: start",
                "  next: { arcs: [ { step: s0 } ] }",
                *steps,
                f"- step: s{count}",
                "  tool: { kind: noop }",
            ]
        )
    )


ENCODINGS = [
    Broken("utf_16_little_endian", GOOD.encode("utf-16"), [("yaml_encoding", 1, 1)]),
    Broken("utf_16_big_endian", b"\xfe\xff" + GOOD.encode("utf-16-be"), [("yaml_encoding", 1, 1)]),
    Broken("utf_16_without_a_mark", GOOD.encode("utf-16-le"), [("yaml_encoding", 1, 2)]),
    Broken("utf_32", GOOD.encode("utf-32"), [("yaml_encoding", 1, 1)]),
    Broken("latin_1", described("né").encode("latin-1"), [("yaml_encoding", 3, 58)]),
    Broken("a_lone_continuation_byte", described("x").encode().replace(b"x", b"\x80"), [("yaml_encoding", 3, 57)]),
    Broken("a_cut_off_character", GOOD.encode() + b"# \xe2\x82", [("yaml_encoding", 7, 3)]),
    Broken("an_overlong_slash", described("x").encode().replace(b'"x"', b'"\xc0\xaf"'), [("yaml_encoding", 3, 57)]),
    Broken(
        "an_encoded_surrogate", described("x").encode().replace(b'"x"', b'"\xed\xa0\x80"'), [("yaml_encoding", 3, 57)]
    ),
    Broken("a_nul_character", described("a\0b"), [("yaml_encoding", 3, 58)]),
    Broken("a_bell", described("a\x07b"), [("yaml_encoding", 3, 58)]),
    Broken("an_escape_character", described("\x1b[31m"), [("yaml_encoding", 3, 57)]),
    Broken("a_nul_escape", described("a\\0b"), [("yaml_encoding", 3, 56), ("invalid_value", 4, 11)]),
    Broken("a_surrogate_escape", described("\\uD83D"), [("yaml_encoding", 3, 56), ("invalid_value", 4, 11)]),
    Broken("a_noncharacter", described("\ufffe"), [("yaml_encoding", 3, 57)]),
    Broken("a_mark_and_an_error", "\ufeff" + GOOD.replace("tool", "toool"), [("unknown_key", 6, 5)]),
    Broken(
        "windows_line_ends", GOOD.replace("kind: noop", "kind: nope").replace("\n", "\r\n"), [("unknown_kind", 6, 19)]
    ),
    Broken("old_line_ends", GOOD.replace("kind: noop", "kind: nope").replace("\n", "\r"), [("unknown_kind", 6, 19)]),
    Broken(
        "old_line_ends_in_a_template",
        pipeline('- { kind: noop, args: { a: "{{ nope }}" } }').replace("\n", "\r"),
        [("unbound_name", 7, 38)],
    ),
    Broken(
        "line_separators_before_an_error", described("\u2028\u2029\x85").replace("[]", "nope"), [("wrong_type", 4, 11)]
    ),
]

TOO_MUCH = [
    Broken("a_bomb_of_lists", bomb(12), [("yaml_limit", 5, 10)], "max_yaml_nodes"),
    Broken("a_bomb_of_mappings", mapping_bomb(12), [("yaml_limit", 13, 16)], "max_yaml_nodes"),
    Broken(
        "many_aliases",
        "a: &x 1\nb: [" + "*x , " * (MAX_YAML_ALIASES + 1) + "]",
        [("yaml_limit", 2, 2505)],
        "max_yaml_aliases",
    ),
    Broken(
        "many_values",
        HEAD + "workload: [" + "1, " * MAX_YAML_NODES + "]",
        [("yaml_limit", 4, 59973)],
        "max_yaml_nodes",
    ),
    Broken(
        "a_long_text_in_many_aliases",
        HEAD + "workload: { a: &x '" + "x" * 100_000 + "', b: [" + "*x , " * 100 + "] }",
        [("yaml_limit", 4, 100047)],
        "max_playbook_bytes",
    ),
    Broken(
        "much_code_in_many_aliases",
        pipeline("- { kind: noop, args: { a: &x '" + "{{ a }}" * 1000 + "', b: [" + "*x , " * 20 + "] } }"),
        [("limit_exceeded", 7, 9)],
        "max_code_chars",
    ),
    Broken("a_long_tag", HEAD + "workload: !" + "x" * 500_000 + " 1", [("yaml_syntax", 4, 11)], "tag longer than 100"),
    Broken(
        "many_tags_by_a_long_prefix",
        "%TAG !e! tag:" + "x" * 200_000 + "\n---\n[" + "!e!a 1, " * 10_000 + "]",
        [("yaml_syntax", 1, 1)],
        "%YAML 1.2",
    ),
    Broken("many_foreign_directives", "%A b\n" * 100_000 + "---\n" + GOOD, [("yaml_syntax", 1, 1)], "%YAML 1.2"),
    Broken("many_lists", HEAD + "workload: { a: " + "[" * 100_000, [("yaml_limit", 4, 79)], "max_yaml_depth"),
    Broken("many_braces", HEAD + "workload: " + "{ a: " * 50_000, [("yaml_limit", 4, 328)], "max_yaml_depth"),
    Broken("many_dashes", "- " * 50_000, [("yaml_limit", 1, 131)], "max_yaml_depth"),
    Broken(
        "many_indents",
        "a:\n" + "".join(" " * n + "a:\n" for n in range(1, 300)),
        [("yaml_limit", 65, 65)],
        "max_yaml_depth",
    ),
    Broken("many_keys_in_keys", "? " * 50_000, [("yaml_limit", 1, 131)], "max_yaml_depth"),
    Broken(
        "deep_aliases",
        "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 100)),
        [("yaml_limit", 64, 12)],
        "max_yaml_depth",
    ),
    Broken("many_bytes", "#" * (MAX_PLAYBOOK_BYTES + 1), [("yaml_limit", 1, 1)], "max_playbook_bytes"),
    Broken("one_long_word", "a" * (MAX_PLAYBOOK_BYTES - 1), [("wrong_type", 1, 1)]),
    Broken(
        "one_long_number",
        HEAD + "workload: { n: " + "9" * 100_000 + " }",
        [("missing_key", 1, 1), ("yaml_number", 4, 16)],
    ),
    Broken("one_long_quote", HEAD + 'workload: { a: "' + "x" * 500_000, [("yaml_syntax", 4, 16)]),
    Broken("many_directives", "%YAML 1.2\n" * 1000 + "---\na: 1\n", [("yaml_syntax", 2, 1)]),
    Broken("many_documents", "--- 1\n" * 5000, [("wrong_type", 1, 5), ("yaml_documents", 2, 1)]),
    Broken(
        "many_unknown_keys",
        GOOD + "".join(f"    key{n}: 1\n" for n in range(5000)),
        [*(("unknown_key", 7 + n, 5) for n in range(MAX_DIAGNOSTICS)), ("too_many_problems", 6 + MAX_DIAGNOSTICS, 5)],
        "max_diagnostics",
    ),
    Broken(
        "many_unbound_names",
        pipeline('- { kind: noop, args: { a: "{{ nope }}" } }\n' * 1000),
        [
            *(("unbound_name", 7 + n, 38) for n in range(MAX_DIAGNOSTICS)),
            ("too_many_problems", 6 + MAX_DIAGNOSTICS, 38),
        ],
        "max_diagnostics",
    ),
    Broken(
        "a_long_template",
        pipeline("- { kind: noop, args: { a: '{{ 1 }}" + "x" * DEFAULT_LIMITS.max_template_chars + "' } }"),
        [("template_too_long", 7, 35)],
        "max_template_chars",
    ),
    Broken(
        "a_deep_template",
        pipeline("- { kind: noop, args: { a: '{{ " + "not " * 100 + "true }}' } }"),
        [("template_syntax", 7, 358)],
        "max_template_depth",
    ),
    Broken(
        "a_large_workload",
        workflow(
            "- step: start\n  tool: { kind: noop }",
            "executor: { spec: { policy: { limits: { max_workload_bytes: 100 } } } }\n"
            f"workload: {{ text: {'x' * 200} }}\n",
        ),
        [("limit_exceeded", 5, 11)],
        "max_workload_bytes",
    ),
    Broken("many_loops_in_loops", nested_loops(MAX_LOOP_LEVELS + 1), [("limit_exceeded", 31, 21)], "max_loop_levels"),
    Broken("many_joins", joining(MAX_JOINS + 1), [("limit_exceeded", 107, 33)], "max_joins"),
    Broken(
        "many_knobs",
        workflow(
            "- step: start\n  tool: { kind: http, url: a }",
            "executor: { spec: { follow_redirects: { " + ", ".join(f"k{n}: 1" for n in range(200)) + " } } }\n",
        ),
        [("limit_exceeded", 4, 21)],
        "max_layered_values",
    ),
]

GENERATED = [*ENCODINGS, *TOO_MUCH]
