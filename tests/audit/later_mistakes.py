"""Mistakes of a second look: what `check` was silent about, or answered with names that the playbook does not have."""

from __future__ import annotations

from typing import Final

from mistakes import Mistake, after, arc, beside, fetched, root, rule, second, steps, tool, value

HTTP: Final = "{ kind: http, url: http://x }"
DETOUR: Final = f"""
    - step: a
      next: {{ arcs: [ {{ step: b, when: "{{{{ workload.url }}}}" }}, {{ step: c }} ] }}
    - {{ step: b, tool: {HTTP}, next: {{ arcs: [ {{ step: c }} ] }} }}
    - {{ step: c, tool: {{ kind: noop, args: {{ n: "{{{{ ¶b.data.n }}}}" }} }} }}
"""
SPEC: Final = 'spec: { policy: { rules: [ { when: "{{ %s }}", then: { do: fail } } ], on_unmatched: fail } }'
LOOP_OF_JINJA: Final = """
    - step: a
      loop: { in: ¶"{% for x in workload.names %}{{ x }}{% endfor %}", iterator: x }
      tool: { kind: noop }
"""
PARALLEL: Final = """
    - step: a
      loop: { in: [1], iterator: x, spec: { mode: parallel } }
      tool:
        kind: noop
        spec: { policy: { rules: [ { else: { then: { do: continue, set_ctx: { ¶l: "{{ outcome.result }}" } } } } ] } }
"""
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
    "a list in the place of a loop": Mistake(
        steps("- step: a\n  loop: ¶'{{ workload.names }}'\n  tool: { kind: noop, args: { v: '{{ item }}' } }"),
        ('write loop: { in: "{{ workload.names }}", iterator: item }',),
    ),
    "a loop over text with commas": Mistake(
        steps(f"- step: a\n  {LOOP.replace(' in: ', ' in: ¶')}\n  tool: {{ kind: noop }}").replace(
            "names: [a]", 'names: "a,b"'
        ),
        ("write in: \"{{ workload.names.split(',') }}\"",),
        "warning",
    ),
    "a key of an item of a mapping": Mistake(
        steps(f"- step: a\n  {LOOP}\n  tool: {{ kind: noop, args: {{ v: '{{{{ ¶iter.x.host }}}}' }} }}").replace(
            "names: [a]", "names: { eu: { host: h } }"
        ),
        ("gives `key` and `value`", "write `iter.x.value.host`"),
        "warning",
    ),
    "a statement in the place of a list": Mistake(steps(LOOP_OF_JINJA), ('write in: "{{ workload.names }}"',)),
    "when of a step": Mistake(beside("¶when: '{{ workload.url }}'"), ('{ step: b, when: "{{ workload.url }}" }',)),
    "on_failure of a step": Mistake(
        second("v: 1").replace("next:", "¶on_failure: b\n    next:"),
        ("{ step: b, when:", "'step.failed'"),
    ),
    "a step as the arcs": Mistake(
        second("v: 1").replace("{ arcs: [ { step: b } ] }", "{ arcs: ¶b }"), ("write arcs: [ { step: b } ]",)
    ),
    "a step in next": Mistake(
        second("v: 1").replace("{ arcs: [ { step: b } ] }", "{ ¶step: b }"), ("write arcs: [ { step: b } ]",)
    ),
    "the kind of a step": Mistake(
        steps("- step: a\n  ¶kind: http\n  url: http://a"), ('write tool: { kind: http, url: "http://a" }',)
    ),
    "the kind as the tool": Mistake(
        steps("- step: a\n  tool: ¶http\n  url: http://a"), ('write tool: { kind: http, url: "http://a" }',)
    ),
    "a loop in the tool": Mistake(
        tool("kind: noop\n¶loop: { in: [1], iterator: n }\nargs: { v: '{{ iter.n }}' }"), ("put it on the step",)
    ),
    "with of a task": Mistake(
        tool("kind: http\n¶with: { url: http://a, method: GET }"),
        ('beside `kind`, write url: "http://a", method: GET',),
    ),
    "the type of a plugin": Mistake(
        tool("¶type: io.kestra.plugin.scripts.python.Script\ncode: return 1"), ("write kind: python",)
    ),
    "an image": Mistake(tool("kind: python\n¶image: python:3.12\ncode: return 1"), ("there are no containers",)),
    "a signal as a kind": Mistake(tool("kind: ¶signal\nname: t"), ("{ kind: wait, signal: approved,",)),
    "headers as a list": Mistake(
        tool("kind: http\nurl: http://a\nheaders:\n  ¶- Accept: a/b\n  - X-Team: blue"),
        ("write headers: { Accept: a/b, X-Team: blue }",),
    ),
    "a number in words": Mistake(
        rule('{ rules: [ { when: "{{ outcome.error }}", then: { do: retry, attempts: ¶three } } ] }'),
        ("write 3",),
    ),
    "a credential from the keychain": Mistake(
        tool('kind: postgres\nauth: "{{ ¶keychain.local_postgres }}"\nquery: select 1'), ("write auth: local_postgres",)
    ),
    # templates
    "the result of an event in a step": Mistake(fetched("{{ ¶event.result.status }}"), ("write `a.status`",)),
    "a task of another step": Mistake(
        after("[ { name: first, kind: noop, args: { n: 1 } }, { kind: noop } ]", "v: '{{ ¶first.n }}'"),
        ("write `a.results.first`",),
    ),
    "a task of its own step by the step": Mistake(
        steps("- step: a\n  tool: [ { name: t, kind: noop }, { kind: noop, args: { v: '{{ ¶a.t.n }}' } } ]"),
        ("no result before its tasks have ended", "write `t`"),
        "warning",
    ),
    "vars that another step sets": Mistake(
        after(
            "{ kind: noop, spec: { policy: { rules: [ { else: { then: { do: continue, set_vars: { n: 5 } } } } ] } } }",
            "v: '{{ ¶vars.n }}'",
        ),
        ("step `a` sets it for itself", "`ctx.n` here"),
        "warning",
    ),
    "iter behind its loop": Mistake(
        second("v: '{{ ¶iter.x }}'").replace("- step: a\n", f"- step: a\n    {LOOP}\n"),
        ("in the loop of `a` alone", "the list of its results is `a`"),
        "warning",
    ),
    "the body of a result": Mistake(fetched("{{ ¶a.result.body }}"), ("write `a.data`",), "warning"),
    "curly quotes": Mistake(
        fetched("{{ event.name == ¶\u2018step.done\u2019 }}", "when"), ("write {{ event.name == 'step.done' }}",)
    ),
    "a key without quotes": Mistake(fetched("{{ a.data[¶rows] }}"), ("a.data['rows']",)),
    "one brace at the end": Mistake(value("{{ workload.url ¶}"), ("ends with two braces",)),
    "an open quote in a template": Mistake(value('{{ workload.url | default(¶"x) }}'), ("is not closed",)),
    "an arrow function": Mistake(
        fetched("{{ a.data.rows.map(i =¶> i.name) }}"), ("write {{ a.data.rows | map(attribute='name') | list }}",)
    ),
    "a value or else another": Mistake(fetched("{{ a.data ¶?? 'none' }}"), ("write {{ a.data or 'none' }}",)),
    "a node of n8n": Mistake(value('{{ ¶$node["a"].json.name }}'), ("write {{ a.data.name }}",)),
    "len of a key": Mistake(fetched("{{ ¶len(a.data['rows']) }}"), ("write {{ a.data['rows'] | length }}",)),
    "a comprehension over a key": Mistake(
        fetched("{{ [i.name ¶for i in a.data['rows']] }}"),
        ("write {{ a.data['rows'] | map(attribute='name') | list }}",),
    ),
    "the index of Jinja": Mistake(
        steps(f"- step: a\n  {LOOP}\n  tool: {{ kind: noop, args: {{ v: '{{{{ ¶loop.index }}}}' }} }}"),
        ("write `iter.index + 1`",),
    ),
    "a file as a playbook": Mistake(
        tool("kind: playbook\npath: ¶./city.yaml"), ("`metadata.path` of that file", "register ./city.yaml"), "warning"
    ),
    "a secret in the keychain": Mistake(
        root("keychain: [ { name: api, ¶value: sk-4f9a8b7c } ]"),
        ("{ name: api, kind: credential }", "credential set api"),
    ),
    "set_ctx in a parallel loop": Mistake(
        steps(PARALLEL), ('write set_shared: { l: { op: append, value: "{{ outcome.result }}" } }',)
    ),
    "a param in quotes": Mistake(
        tool("kind: postgres\nauth: x\nquery: select '$id'\nparams: ¶{ id: 1 }"), ("write $id without quotes",)
    ),
    "a statement as a condition": Mistake(
        arc('{ step: b, when: "¶{% if a.n == 1 %}true{% else %}false{% endif %}" }'), ('write when: "{{ a.n == 1 }}"',)
    ),
    "inputs of Kestra": Mistake(root("¶inputs: [ { id: who, type: STRING, defaults: Ada } ]"), ("{ who: Ada }",)),
    "a knob beside the kind": Mistake(
        tool("kind: python\n¶python: { requires: [ requests ] }\ncode: return 1"),
        ("belongs under `spec`", "write spec: { python: { requires: [ requests ] } }"),
    ),
    "a number of rows beside the kind": Mistake(
        tool("kind: duckdb\ncommand: select 1\n¶max_result_bytes: 9"), ("write spec: { max_result_bytes: 9 }",)
    ),
    "a version that is a number": Mistake(
        tool("kind: python\ncode: return 1\nspec: { python: { python: ¶3.12 } }"), ('quote it: "3.12"',)
    ),
    "a version that loses a digit": Mistake(
        tool("kind: playbook\npath: a/b\nversion: ¶1.10"), ("quote it, with all its digits",)
    ),
    "a schedule of Airflow": Mistake(root("¶schedule: '0 6 * * *'"), ('playbook: m/m, cron: [ "0 6 * * *" ]',)),
    # times
    "a pattern of other languages": Mistake(
        value('{{ execution.started | ¶date_format("YYYY-MM-DD") }}'), ('write `date_format("%Y-%m-%d")`',)
    ),
    "a pattern that is unknown": Mistake(
        value('{{ execution.started | ¶date_format("%Q") }}'), ("does not know `%Q`",)
    ),
    "date_add of Python": Mistake(
        value("{{ execution.started | ¶date_add(days=1) }}"), ("(amount, unit, zone)", 'write `date_add(1, "day")`')
    ),
    "date_add without a unit": Mistake(value("{{ execution.due | ¶date_add(1) }}"), ("(amount, unit, zone)",)),
    "a zone without its region": Mistake(
        value('{{ execution.started | ¶date_trunc("day", "Berlin") }}'), ("did you mean `Europe/Berlin`?",)
    ),
    "a zone by its keyword": Mistake(
        value('{{ execution.started | ¶date_trunc("day", zone="nowhere") }}'), ("no time zone 'nowhere'",)
    ),
    "strftime as a method": Mistake(value('{{ execution.started¶.strftime("%Y") }}'), ('x | date_format("%Y-%m-%d")',)),
    "a day less": Mistake(
        value("{{ ¶execution.due - 1 }}"), ('write `execution.due | date_add(-1, "day")`',), "warning"
    ),
    "the data interval of Airflow": Mistake(
        value("{{ ¶data_interval_start }}"), ("`schedule.interval.start`", "`execution.due`")
    ),
    "a variable of Airflow": Mistake(value("{{ ¶var.value.bucket }}"), ("`workload.bucket`",)),
    "a timeout in ISO 8601": Mistake(
        steps("- step: a\n  spec: { timeout: ¶PT1H5M }\n  tool: { kind: noop }"), ("3900",)
    ),
    # policies
    "a number of events": Mistake(
        steps(
            "- step: a\n  spec: { policy: { emit: { events: [ { name: x, on: ¶done } ] } } }\n  tool: { kind: noop }"
        ),
        ("write on: [ completed ]",),
    ),
    "the name of an event as a moment": Mistake(
        steps(
            "- step: a\n  spec: { policy: { emit: { events: [ { name: x, on: [ ¶step.failed ] } ] } } }\n"
            "  tool: { kind: noop }"
        ),
        ("write `failed`",),
    ),
    "memory of Kubernetes": Mistake(
        steps("- step: a\n  spec: { resources: { memory_mb: ¶4Gi } }\n  tool: { kind: noop }"),
        ("write memory_mb: 4096",),
    ),
    "CPU of Kubernetes": Mistake(
        steps("- step: a\n  spec: { resources: { cpu: ¶500m } }\n  tool: { kind: noop }"), ("write cpu: 0.5",)
    ),
    "a CPU in quotes": Mistake(
        steps("- step: a\n  spec: { resources: { cpu: ¶'2' } }\n  tool: { kind: noop }"), ("write cpu: 2",)
    ),
    "memory in a unit of time": Mistake(
        steps("- step: a\n  spec: { resources: { memory_mb: ¶4m } }\n  tool: { kind: noop }"), ("in MB, such as 4096",)
    ),
    "dedupe as a switch": Mistake(arc("{ step: b, spec: { dedupe: ¶true } }"), ("write dedupe: once",)),
    "retries in the spec of a step": Mistake(
        steps("- step: a\n  spec: { ¶retries: 2 }\n  tool: { kind: noop }"), ("on the task, write spec:", "attempts: 3")
    ),
    # operators
    "optional chaining": Mistake(value("{{ workload.names¶?.[0] }}"), ("write {{ workload.names[0] }}",)),
    "backticks": Mistake(value("{{ ¶`x` }}"), ('write {{ "x" }}',)),
}
"""Mistakes that a reader met after the others were mended."""
