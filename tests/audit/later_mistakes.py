"""Mistakes of a second look: what `check` was silent about, or answered with names that the playbook does not have."""

from __future__ import annotations

from typing import Final

from mistakes import Mistake, after, arc, fetched, second, steps, tool, value

HTTP: Final = "{ kind: http, url: http://x }"
DETOUR: Final = f"""
    - step: a
      next: {{ arcs: [ {{ step: b, when: "{{{{ workload.url }}}}" }}, {{ step: c }} ] }}
    - {{ step: b, tool: {HTTP}, next: {{ arcs: [ {{ step: c }} ] }} }}
    - {{ step: c, tool: {{ kind: noop, args: {{ n: "{{{{ ¶b.data.n }}}}" }} }} }}
"""
SPEC: Final = 'spec: { policy: { rules: [ { when: "{{ %s }}", then: { do: fail } } ], on_unmatched: fail } }'
LOOP: Final = "loop: { in: '{{ workload.names }}', iterator: x }"


def code(text: str, more: str = "", read: str = "v: 1") -> str:
    """A second step after one that runs this code."""
    lines = "".join(f"\n          {line}" for line in text.split("\n"))
    first = f"\n      kind: python{more and f'{chr(10)}      {more}'}\n      code: |{lines}"
    return after(first, read)


LATER: Final[dict[str, Mistake]] = {
    # what `check` was silent about
    "a path of a result without braces": Mistake(
        after(HTTP, "v: ¶a.data.items"), ("is text", 'write "{{ a.data.items }}"'), "warning"
    ),
    "a path of the workload without braces": Mistake(
        tool("kind: http\nurl: http://a\nmethod: POST\njson: { to: ¶workload.url }"),
        ('write "{{ workload.url }}"',),
        "warning",
    ),
    "a path with a filter without braces": Mistake(
        after(HTTP, "v: ¶a.rows | length").replace("http, url: http://x", "duckdb, command: select 1"),
        ('write "{{ a.rows | length }}"',),
        "warning",
    ),
    "an item without braces": Mistake(
        steps(f"- step: a\n  {LOOP}\n  tool: {{ kind: noop, args: {{ v: ¶x.name }} }}"), ("{{ x.name }}",), "warning"
    ),
    "text and a number": Mistake(
        value('{{ "page " ¶+ workload.page }}').replace("names: [a]", "page: 3"),
        ("is a number", 'write {{ "page " ~ workload.page }}'),
        "warning",
    ),
    "a number of a loop and text": Mistake(
        steps(f"- step: a\n  {LOOP}\n  tool: {{ kind: noop, args: {{ v: '{{{{ iter.index ¶+ \": \" }}}}' }} }}"),
        ('write {{ iter.index ~ ": " }}',),
        "warning",
    ),
    "a token in clear": Mistake(
        tool("kind: http\nurl: http://a\nheaders: { Authorization: ¶Bearer sk-live-4f9a8b7c6d5e4f3a }"),
        ("in clear", 'write "Bearer {{ keychain.token }}"', "credential set token"),
        "warning",
    ),
    "a template in a command": Mistake(
        tool("kind: shell\ncommand: ¶echo {{ workload.url }}"),
        ("read by a shell", 'write command: [ echo, "{{ workload.url }}" ]'),
        "warning",
    ),
    "a template in a pipe of commands": Mistake(
        tool("kind: shell\ncommand: ¶echo {{ workload.url }} | wc -c"),
        ('env: { URL: "{{ workload.url }}" }', '"$URL"'),
        "warning",
    ),
    "a number for the status of an outcome": Mistake(
        tool(f"kind: http\nurl: http://a\n{SPEC % '¶outcome.status == 404'}"),
        ("never 404", "write `outcome.http.status`"),
        "warning",
    ),
    "the status of a failed answer": Mistake(
        fetched("{{ ¶event.result.status == 404 }}", "when"),
        ("fails `a`", "write {{ event.status == 'error' and event.error.code == '404' }}"),
        "warning",
    ),
    "the result of a step on another way": Mistake(
        steps(DETOUR), ("`b` does not run on the way `a` → `c`", "default("), "warning"
    ),
    "args that no arc gives": Mistake(
        second("v: '{{ ¶args.rows }}'"), ("no arc to `b` gives `args.rows`", "args: { rows: … }"), "warning"
    ),
    "code without a result": Mistake(
        code("¶total = 1\nprint(total)", read="v: '{{ a }}'"), ("returns nothing", "write `return total`"), "warning"
    ),
    "code without a result, of which a key is read": Mistake(
        code("¶total = 1", read="v: '{{ a.total }}'"), ('write `return {"total": total}`',), "warning"
    ),
    "code that sets the state": Mistake(
        code('¶ctx["total"] = 5\nreturn 1'), ("read-only", 'set_ctx: { total: "{{ outcome.result }}" }'), "warning"
    ),
    "args in the text of code": Mistake(
        code("return n + 1\n¶args: { n: 1 }"), ("within the text of `code`", "the column of `code`"), "warning"
    ),
    # names of this playbook, and no others
    "a step in code": Mistake(
        after(HTTP, "v: 1").replace(
            "{ kind: noop, args: { v: 1 } }", "\n      kind: python\n      code: |\n        return ¶a['data']"
        ),
        ('args: { a: "{{ a }}" }',),
        "warning",
    ),
    "a parameter that is called otherwise": Mistake(
        code("def main(¶items):\n    return items", "args: { prices: [1] }"),
        ("the arg is called `prices`: write prices in place of items",),
        "warning",
    ),
    "inputs in code": Mistake(code("return ¶inputs['n']", "args: { n: 1 }"), ("write n, or args['n']",), "warning"),
    "with of an arc": Mistake(arc("{ step: b, ¶with: { v: 1 } }"), ("write args: { v: 1 }",)),
}
"""Mistakes that a reader met after the others were mended."""
