"""Attacks by form: deep, long, broken and unusual texts, which must be rejected early; deep values."""

from __future__ import annotations

from typing import Final

from template_attack import Attack, failed, gives, refused

PRIVATE_USE: Final = "".join(map(chr, range(0xE000, 0xF900)))

DEEP: Final[list[Attack]] = [
    *refused(
        "nest",
        "{{ " + "(" * 10_000 + "1" + ")" * 10_000 + " }}",
        "{{ " + "[" * 10_000 + "]" * 10_000 + " }}",
        "{{ " + "{'a':" * 9_000 + "1" + "}" * 9_000 + " }}",
        "{{ " + "not " * 10_000 + "1 }}",
        "{{ " + "-" * 30_000 + "1 }}",
        "{{ 1" + " + 1" * 10_000 + " }}",
        "{{ 1" + " ** 1" * 10_000 + " }}",
        "{{ 1" + " or 1" * 9_000 + " }}",
        "{{ 1" + " if 1 else 1" * 4_000 + " }}",
        "{{ 1" + " | abs" * 9_000 + " }}",
        "{{ [1]" + "[:]" * 9_000 + " }}",
        "{{ ctx.text" + ".upper()" * 5_000 + " }}",
        "{% if 1 %}" * 3_000 + "{% endif %}" * 3_000,
        "{% if 1 %}" + "{% elif 1 %}" * 5_000 + "{% endif %}",
        "{% for i in [1] %}" * 1_500 + "{% endfor %}" * 1_500,
        "{% filter upper %}" * 1_500 + "{% endfilter %}" * 1_500,
        "{% set x %}" * 2_000 + "{% endset %}" * 2_000,
        "{{" * 30_000,
        "{{ 1 }}" + "{{" * 30_000 + "\r",
    ),
    *failed("is undefined", "{{ ctx" + ".a" * 20_000 + " }}", "{{ ctx" + "[0]" * 20_000 + " }}"),
    *gives("1" * 10_001, "{{ 1" + " ~ 1" * 10_000 + " }}"),
    *gives(False, "{{ 1" + " < 1" * 10_000 + " }}"),
    *failed(
        "is nested ",
        "{{ ctx.deep }}",
        "{{ ctx.deep | string }}",
        "{{ ctx.deep | tojson }}",
        "{{ ctx.deep | tojson(indent=1) }}",
        "{{ ctx.deep | join }}",
        "{{ ctx.deep | urlencode }}",
        "{{ ctx.deep == ctx.deeper }}",
        "{{ ctx.deep in [ctx.deeper] }}",
        "{{ ctx.deep is eq [] }}",
        "{{ [ctx.deep] | sort }}",
        "{{ ctx }}",
    ),
]

BROKEN: Final[list[Attack]] = [
    *refused(
        "",
        "{%" * 30_000 + "\r",
        "{{ '" + "\\'" * 30_000 + "\r",
        "{{ " + "'\"" * 20_000 + "\r }}",
        "{% raw %}" * 5_000,
        "{% raw %}" + "{% " * 20_000,
        "{{ 1" + "_1" * 30_000 + " }}",
        "{{ " + "a" * 60_000 + " }}",
        "{{ " + " ~ ".join(f"a{number}" for number in range(8_000)) + " }}",
        "{{ " + " ~ ".join(f"1 | a{number}" for number in range(5_000)) + " }}",
        "{{ " + " ~ ".join(f"1 is a{number}" for number in range(4_000)) + " }}",
        "{{ " + " ~ ".join(f"1.a{number}()" for number in range(5_000)) + " }}",
        "{{ ''.b" + "c" * 60_000 + "() }}",
        "{{ " + "\n" * 60_000 + " }}",
        "{{ 1 }" * 10_000,
        "{% if %}" * 8_000,
        "{{ 1 is odd is odd }}",
        "{{ \x00 }}",
    ),
    *refused("limits.max_template_chars", "{{ 1 }}" + "x" * 65_536, "{{ 'x' }}" * 10_000),
    *refused("lone surrogate", "{{ '\\ud800' }}", "{{ '\\ud83d\\ude00' }}", "\ud800{{ 1 }}", "{{ '\ud800' }}"),
    *refused("Unicode character", "{{ '\\U00110000' }}", "{{ '\\N{no such}' }}"),
    *refused("is not defined", "{{ \uff43\uff54\uff58 }}", "{% set \uff58 = 1 %}{{ x }}"),
    *failed("is undefined", "{{ ctx." + "a" * 60_000 + " }}", "{{ ctx['" + "\u4e00" * 60_000 + "'] }}"),
    *gives("", "{# {{ }} #}" * 5_000),
    *gives("\x00", "{{ '\x00' }}"),
    *gives("\u202e1", "{{ '\u202e' ~ 1 }}"),
    *gives("1\u20282", "{{ 1 }}\u2028{{ 2 }}"),
    *gives(PRIVATE_USE + "\r1", PRIVATE_USE + "\r{{ 1 }}"),
    *gives("\u0301" * 10_000, "{{ '" + "\u0301" * 10_000 + "' }}"),
]
