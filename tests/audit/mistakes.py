"""Mistakes that people make who come from another tool, or in a hurry: what they write, and what `check` answers."""

from __future__ import annotations

from textwrap import dedent, indent
from typing import Final, NamedTuple

HEAD: Final = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: m, path: m/m }
workload: { url: http://127.0.0.1:18997, names: [a] }
"""


class Mistake(NamedTuple):
    """A text with ``¶`` before the place of the answer, and words that the answer has."""

    marked: str
    words: tuple[str, ...]
    severity: str = "error"


def steps(text: str) -> str:
    return f"{HEAD}workflow:\n{indent(dedent(text).strip(), '  ')}\n"


def tool(text: str) -> str:
    return steps("- step: a\n  tool:\n" + indent(dedent(text).strip(), "    "))


def value(template: str) -> str:
    return steps(f"- step: a\n  tool:\n    kind: noop\n    args: {{ v: '{template}' }}")


def beside(keys: str) -> str:
    """A second step with these keys beside its tool."""
    return steps(
        "- step: a\n  tool: { kind: noop }\n  next: { arcs: [ { step: b } ] }\n- step: b\n"
        + indent(dedent(keys).strip(), "  ")
        + "\n  tool: { kind: noop }"
    )


AIRFLOW: Final = """\
¶dag_id: etl
schedule_interval: "@daily"
tasks:
  - task_id: extract
    operator: BashOperator
    bash_command: "echo {{ ds }}"
"""
KESTRA: Final = """\
id: etl
¶namespace: company.team
inputs: [ { id: url, type: STRING } ]
tasks:
  - { id: extract, type: io.kestra.plugin.core.http.Request, uri: "{{ inputs.url }}" }
"""
ACTIONS: Final = """\
name: ci
on: push
¶jobs:
  build: { runs-on: ubuntu-latest, steps: [ { uses: actions/checkout@v4 } ] }
"""
ARGO: Final = """\
¶apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: { generateName: steps- }
spec: { entrypoint: hello, templates: [ { name: hello } ] }
"""
STATES: Final = """\
Comment: a state machine
¶StartAt: Hello
States: { Hello: { Type: Pass, End: true } }
"""
PREFECT: Final = "¶deployments:\n- { name: etl, entrypoint: 'flow.py:etl' }\n"
ENDLESS: Final = "- name: r\n  ¶{}:\n    when: {}\n    do: [ {{ name: t, kind: noop }} ]"
LOOP: Final = "- step: a\n  loop: {{ in: ¶'{}', iterator: x }}\n  tool: {{ kind: noop }}"

MISTAKES: Final[dict[str, Mistake]] = {
    # a whole document of another tool
    "an Airflow DAG": Mistake(
        AIRFLOW, ("an Airflow DAG", "apiVersion: noetl.io/v2", "workflow:", "docs coming-from-airflow")
    ),
    "a Kestra flow": Mistake(KESTRA, ("a Kestra flow", "`namespace`", "noetl-stream init", "docs coming-from-kestra")),
    "a workflow of GitHub Actions": Mistake(ACTIONS, ("a GitHub Actions workflow", "`jobs`")),
    "a workflow of Argo": Mistake(ARGO, ("an Argo workflow", "apiVersion: noetl.io/v2")),
    "a state machine": Mistake(STATES, ("Step Functions", "`StartAt`")),
    "a deployment of Prefect": Mistake(PREFECT, ("a Prefect deployment",)),
    # keys of steps
    "uses": Mistake(steps("- step: a\n  ¶uses: actions/checkout@v4"), ("`uses`", "tool: { kind: playbook")),
    "with": Mistake(beside("¶with: { ref: main }"), ("no `with`", "args: { … }")),
    "needs": Mistake(beside("¶needs: [a]"), ("`needs`", "step before", "arcs:")),
    "dependsOn": Mistake(beside("¶dependsOn: a"), ("`dependsOn`", "step before", "arcs:")),
    "depends_on": Mistake(beside("¶depends_on: [a]"), ("`depends_on`", "step before")),
    "Next": Mistake(beside("¶Next: c"), ("`Next`", "next: { arcs:")),
    "End": Mistake(beside("¶End: true"), ("`End`", "remove it")),
    "Catch": Mistake(beside("¶Catch: []"), ("`Catch`", "step.failed")),
    "if": Mistake(beside("¶if: '{{ workload.url }}'"), ("`if`", '{ step: b, when: "{{ workload.url }}" }')),
    "run": Mistake(beside("¶run: echo hi"), ("`run`", "kind: shell")),
    "with_items": Mistake(beside("¶with_items: [1]"), ("`with_items`", "loop: { in:")),
    "matrix": Mistake(beside("¶strategy: { matrix: {} }"), ("`strategy`", "loop: { in:")),
    "retries": Mistake(beside("¶retries: 3"), ("`retries`", "do: ")),
    "timeout-minutes": Mistake(beside("¶timeout-minutes: 5"), ("write spec: { timeout: 300 }, in seconds",)),
    "env": Mistake(beside("¶env: { A: b }"), ("`env`", "next to `kind`")),
    "id": Mistake(steps("- ¶id: a\n  tool: { kind: noop }"), ("`id`", "write step: a")),
    # keys of tasks
    "timout": Mistake(tool("kind: http\nurl: http://a\n¶timout: 30"), ("spec: { timeout: 30 }",)),
    "timeout_seconds": Mistake(tool("kind: http\nurl: http://a\n¶timeout_seconds: 3"), ("spec: {",)),
    "retries of a task": Mistake(tool("kind: http\nurl: http://a\n¶retries: 3"), ("do: retry",)),
    "if of a task": Mistake(tool("kind: http\nurl: http://a\n¶if: true"), ("choose:",)),
    # names in templates
    "a misspelt key of the workload": Mistake(value("{{ ¶workload.ulr }}"), ("no `ulr`", "`workload.url`"), "warning"),
    "outputs": Mistake(value("{{ ¶outputs.a.body }}"), ("`outputs`", "`steps.a.data`")),
    "inputs": Mistake(value("{{ ¶inputs.url }}"), ("`inputs`", "`workload.url`")),
    "params": Mistake(value("{{ ¶params.url }}"), ("`params`", "`workload.url`")),
    "secrets": Mistake(
        value("${{ ¶secrets.KEY }}"),
        ("`secrets`", "keychain: [ { name: KEY, kind: credential } ]", "credential set KEY"),
    ),
    "env in a template": Mistake(
        value("{{ ¶env.HOME }}"), ("no environment", "`workload.HOME`", "kind: env, variable: HOME")
    ),
    "ds": Mistake(value("{{ ¶ds }}"), ("`ds`", "schedule")),
    # another language in templates
    "a ternary": Mistake(
        value("{{ workload.url ¶? 1 : 2 }}"), ("`value if condition else other`", "{{ 1 if workload.url else 2 }}")
    ),
    "&&": Mistake(value("{{ workload.url ¶&& 1 !== 2 }}"), ("write `and`", "{{ workload.url and 1 != 2 }}")),
    "||": Mistake(value("{{ workload.url |¶| 1 }}"), ("write `or`", "{{ workload.url or 1 }}")),
    "!": Mistake(value("{{ ¶!a }}"), ("write `not`",)),
    "===": Mistake(value("{{ 1 ==¶= 2 }}"), ("`==`",)),
    "a JSON path": Mistake(value("{{ ¶$.url }}"), ("`workload.url`",)),
    "braces in braces": Mistake(value("{{ {{ workload.url ¶}} }}"), ("write the expression alone",)),
    "null": Mistake(value("{{ workload.url == ¶null }}"), ("{{ workload.url == none }}",)),
    # loops
    "a loop over text": Mistake(
        steps(LOOP.format("{{ workload.url }}")), ("a loop needs a list", "is text"), "warning"
    ),
    "item": Mistake(
        steps("- step: a\n  loop: { in: [1], iterator: x }\n  tool: { kind: noop, args: { v: '{{ ¶item }}' } }"),
        ("`iter.x`",),
    ),
    "a round that never ends": Mistake(tool(ENDLESS.format("while", "true")), ("no exit", "timeout_s"), "warning"),
    "an until that nothing changes": Mistake(
        tool(ENDLESS.format("until", "'{{ workload.url == 1 }}'")), ("no exit", "timeout_s"), "warning"
    ),
    # code
    "an undefined name in code": Mistake(
        tool("kind: python\ncode: return ¶url"), ("`url` is not defined", "args: { url:"), "warning"
    ),
    # YAML
    "an unquoted template": Mistake(
        steps("- step: a\n  tool: { kind: noop, args: { v: ¶{{ workload.url }} } }"), ('write "{{ workload.url }}"',)
    ),
    "a tab": Mistake(steps("- step: a\n¶\ttool: { kind: noop }"), ("tab",)),
    "a key twice": Mistake(beside("desc: a\n¶desc: b"), ("`desc`",)),
    "lost indentation": Mistake(steps("- step: a\n  tool:\n  ¶kind: noop"), ("lost indentation",)),
}


def second(args: str) -> str:
    """A step with these args after one whose result is `{n: 1}`."""
    return steps(
        "- step: a\n  tool: { kind: noop, args: { n: 1 } }\n  next: { arcs: [ { step: b } ] }\n"
        f"- step: b\n  tool: {{ kind: noop, args: {{ {args} }} }}"
    )


def after(tool_of_first: str, args: str) -> str:
    """A step with these args after one with this tool."""
    return second(args).replace("{ kind: noop, args: { n: 1 } }", tool_of_first)


def arc(text: str) -> str:
    """An arc between two steps."""
    return second("v: 1").replace("{ step: b }", text)


def rule(text: str) -> str:
    """The policy of an http task."""
    return tool(f"kind: http\nurl: http://a\nspec: {{ policy: {text} }}")


def root(keys: str) -> str:
    return f"{HEAD}{keys}\nworkflow:\n  - {{ step: a, tool: {{ kind: noop }} }}\n"


ON_ERROR: Final = "{ rules: [ { when: \"{{ outcome.status == 'error' }}\", then: { do: %s } } ] }"
DASH: Final = f"{HEAD}workflow:\n  ¶step: a\n  tool: {{ kind: noop }}\n"

FIRST_DAY: Final = {
    # templates
    "braces with a dollar": Mistake(
        second("v: '¶${workload.url}'"), ("not a template", "{{ workload.url }}"), "warning"
    ),
    "one brace": Mistake(second("v: '¶{workload.url}'"), ("not a template", "{{ workload.url }}"), "warning"),
    "an f-string": Mistake(value('{{ f¶"x{workload.url}" }}'), ("no prefix", "`~`")),
    "quotes in quotes": Mistake(
        f'{HEAD}workflow:\n  - step: a\n    tool: {{ kind: noop, args: {{ v: "{{{{ workload["¶url"] }}}}" }} }}\n',
        ("ends the text here", "{{ workload['url'] }}"),
    ),
    "now": Mistake(value("{{ ¶now() }}"), ("`now`", "no clock", "schedule")),
    "len": Mistake(value("{{ ¶len(workload.names) }}"), ("`len`", "{{ workload.names | length }}")),
    "str": Mistake(value("{{ ¶str(1) }}"), ("`str`", "{{ 1 | string }}")),
    "lambda": Mistake(value("{{ workload.names | map(lambda ¶x: x) }}"), ("no `lambda`", "map(attribute=")),
    "a filter of another language": Mistake(value("{{ workload.url | ¶uppercase }}"), ("did you mean `upper`",)),
    "is for equals": Mistake(arc('{ step: b, when: "{{ event.result.n is ¶1 }}" }'), ("`is`", "`==`")),
    "a condition without braces": Mistake(arc("{ step: b, when: ¶a.n > 1 }"), ('when: "{{ a.n > 1 }}"',)),
    "an unknown step": Mistake(arc("{ step: ¶bb }"), ("unknown step `bb`", "did you mean `b`")),
    "the method of a response": Mistake(
        after("{ kind: http, url: http://x }", "v: '{{ a¶.json().id }}'"), ("`json`", "`.data`")
    ),
    "the body of a response": Mistake(
        after("{ kind: http, url: http://x }", "v: '{{ ¶a.body }}'"), ("no `body`", "`data`"), "warning"
    ),
    "the records of a statement": Mistake(
        after("{ kind: duckdb, command: select 1 }", "v: '{{ ¶a.records }}'"), ("no `records`", "`rows`"), "warning"
    ),
    "vars of another step": Mistake(second("v: '{{ ¶vars.n }}'"), ("nothing in this step sets",), "warning"),
    # tasks
    "a kind of another tool": Mistake(tool("kind: ¶bash\ncommand: ls"), ("use `shell`",)),
    "a database as a kind": Mistake(tool("kind: ¶sql\nquery: select 1"), ("use `postgres`",)),
    "http without an address": Mistake(tool("kind: ¶http\nmethod: GET"), ("need `url`", "https://")),
    "the code in a file": Mistake(tool("kind: python\ncode: return 1\n¶file: main.py"), ("`file`", "under `code`")),
    "a template in code": Mistake(
        tool("kind: python\ncode: ¶return '{{ workload.url }}'"),
        ("not rendered", 'args: { url: "{{ workload.url }}" }'),
        "warning",
    ),
    "a param that nobody passes": Mistake(
        tool("kind: python\ncode: |\n  def main(¶url):\n      return url"), ("`main` needs `url`", "args:"), "warning"
    ),
    "a database without a credential": Mistake(
        tool("kind: ¶postgres\nquery: select 1"), ("need `auth`", "auth: local_postgres")
    ),
    "a host as a key": Mistake(
        tool("kind: postgres\nauth: x\nquery: select 1\n¶host: db"), ("`host`", "name a credential")
    ),
    "params by colon": Mistake(tool("kind: postgres\nauth: x\nquery: select :id\nparams: ¶{ id: 1 }"), ("$id", ":id")),
    "args of a command": Mistake(tool("kind: shell\ncommand: ls\n¶args: [ -l ]"), ('write command: [ ls, "-l" ]',)),
    "seconds of a wait": Mistake(tool("kind: wait\nfor_s: 1\n¶seconds: 5"), ("`seconds`", "for_s: 5")),
    "a duration as text": Mistake(tool("kind: wait\nfor_s: ¶5m"), ("number", "in seconds", "300")),
    "a timeout with its unit": Mistake(
        tool("kind: http\nurl: http://a\nspec: { timeout: ¶30s }"), ("in seconds", "30")
    ),
    "no for false": Mistake(
        tool("kind: http\nurl: http://a\nspec: { verify_tls: ¶no }"), ("must be a boolean", "write false")
    ),
    "inputs of a called playbook": Mistake(tool("kind: playbook\npath: m/o\n¶inputs: { a: 1 }"), ("`inputs`", "args:")),
    # policies, loops and arcs
    "retry in a policy": Mistake(rule("{ rules: [], ¶retry: { attempts: 3 } }"), ("`retry`", "do: retry")),
    "on_failure in a policy": Mistake(rule("{ rules: [], ¶on_failure: stop }"), ("`on_failure`", "do: fail")),
    "retry without a bound": Mistake(
        rule(ON_ERROR.replace("then: {", "then: ¶{") % "retry"), ("needs `attempts`", "attempts: 5")
    ),
    "goto": Mistake(
        rule(ON_ERROR % "¶goto, to: t").replace("kind: http", "name: t\n      kind: http", 1), ("write `jump`",)
    ),
    "a jump to a step": Mistake(
        second("v: 1").replace(
            "args: { n: 1 }", "spec: { policy: { rules: [ { else: { then: { do: jump, to: ¶b } } } ] } }"
        ),
        ("`b` is a step", "`next`"),
    ),
    "parallel in a loop": Mistake(
        steps("- step: a\n  loop: { in: [1], iterator: x, ¶parallel: true }\n  tool: { kind: noop }"),
        ("`parallel`", "mode: parallel"),
    ),
    "parallel steps": Mistake(beside("¶parallel: [ { step: x } ]"), ("`parallel`", "mode: inclusive")),
    "a parallel router": Mistake(
        second("v: 1").replace("next: {", "next: { spec: { mode: ¶parallel },"), ("write inclusive",)
    ),
    "the target of an arc": Mistake(arc("{ step: b, ¶to: b }"), ("`to`", "step: b")),
    "the condition of an arc": Mistake(arc("{ step: b, ¶condition: workload.url }"), ("`condition`", "when:")),
    # keys that have their place elsewhere
    "arcs of a step": Mistake(
        beside("¶arcs: [ { step: a, when: '{{ workload.url }}' } ]"),
        ("belongs under `next`", 'write next: { arcs: [ { step: a, when: "{{ workload.url }}" } ] }'),
    ),
    "compensation of a step": Mistake(
        beside("¶compensation: { tool: { kind: noop } }"), ("belongs under `spec.policy`", "spec: { policy: {")
    ),
    "finally of a step": Mistake(beside("¶finally: { kind: noop }"), ("`finally` belongs to the executor",)),
    "finally of the executor": Mistake(root("executor: { spec: { ¶finally: a } }"), ("belongs under `policy`",)),
    # what would come to nothing
    "a dollar before braces": Mistake(
        value("${{ workload.url }}/x").replace("v: '", "v: ¶'"), ("`$` stays",), "warning"
    ),
    "a filter of another tool": Mistake(value("{{ execution.started | ¶strftime(0) }}"), ("`date_format",)),
    "a unit that is none": Mistake(value('{{ execution.started | ¶date_add(1, "dayz") }}'), ("takes a unit", "day")),
    "how a result ended": Mistake(
        steps("""
            - step: a
              tool: { kind: http, url: "{{ workload.url }}" }
              next: { arcs: [ { step: b, when: "{{ ¶a.failed }}" } ] }
            - { step: b, tool: { kind: noop } }
        """),
        ("has no `failed`", "event.name == 'step.failed'"),
        "warning",
    ),
    "the result of a later step": Mistake(
        steps("""
            - step: ¶a
              tool: { kind: noop, args: { n: "{{ b.n }}" } }
              next: { arcs: [ { step: b } ] }
            - { step: b, tool: { kind: noop, args: { n: 1 } } }
        """),
        ("`b`, which never runs before it", "from `b` to `a`"),
        "warning",
    ),
    # what would come out otherwise than it was meant
    "branches that are not joined": Mistake(
        steps("""
            - step: a
              next: { spec: { mode: inclusive }, arcs: [ { step: b }, { step: c } ] }
            - { step: b, tool: { kind: noop }, next: { arcs: [ { step: d } ] } }
            - { step: c, tool: { kind: noop }, next: { arcs: [ { step: d } ] } }
            - { step: ¶d, tool: { kind: noop } }
        """),
        ("once for each branch of `a`", "spec: { join: all }"),
        "warning",
    ),
    "a row of a whole result": Mistake(
        after("{ kind: duckdb, command: select 1 as n }", "v: '{{ ¶a[0].n }}'"), ("a mapping", "`a.rows`"), "warning"
    ),
    "a key of a loop's list": Mistake(
        second("v: '{{ ¶a.n }}'").replace("- step: a\n", "- step: a\n    loop: { in: [1], iterator: x }\n"),
        ("the list of its iterations' results", 'a | map(attribute="n") | list'),
        "warning",
    ),
    "a loop over a whole result": Mistake(
        after("{ kind: duckdb, command: select 1 as n }", "v: 1").replace(
            "- step: b\n", "- step: b\n    loop: { in: ¶'{{ a }}', iterator: x }\n"
        ),
        ("a mapping", "a.rows"),
        "warning",
    ),
    "off as a switch": Mistake(
        arc("{ step: b, when: '{{ ¶workload.dry }}' }").replace("names: [a]", "dry: off"),
        ("is the text `off`", "write dry: false"),
        "warning",
    ),
    "the workload as an object": Mistake(
        tool("kind: python\ncode: return ¶workload.url"), ("is a dict", "workload['url']"), "warning"
    ),
    "a path of a state machine": Mistake(
        value("$.url").replace("v: '", "v: ¶'"), ("is text", "{{ workload.url }}"), "warning"
    ),
    "an expression of n8n": Mistake(
        value("={{ workload.url }}").replace("v: '", "v: ¶'"), ("the `=` stays",), "warning"
    ),
    "steps in their order": Mistake(
        steps("- { step: a, tool: { kind: noop } }\n- { step: ¶b, tool: { kind: noop } }"),
        ("no arc leads to it", "in step `a`, write next: { arcs: [ { step: b } ] }"),
        "warning",
    ),
    # words of other tools, with what the author wrote
    "register": Mistake(
        second("v: '{{ ¶answer.n }}'").replace("next:", "register: answer\n    next:"), ("write `steps.a`",)
    ),
    "retryPolicy": Mistake(tool("kind: http\nurl: http://a\n¶retryPolicy: 3"), ("do: retry, attempts: 3",)),
    "trigger_rule": Mistake(beside("¶trigger_rule: all_done"), ("spec: { join: all }",)),
    "continue-on-error": Mistake(beside("¶continue-on-error: true"), ("'step.failed'] }}",)),
    "a pool beside the kind": Mistake(tool("kind: noop\n¶pool: gpu"), ("on the step", "spec: { pool: gpu }")),
    "times": Mistake(
        rule("{ rules: [ { when: \"{{ outcome.status == 'error' }}\", then: { do: retry, ¶times: 4 } } ] }"),
        ("write attempts: 4",),
    ),
    "a kind as a key": Mistake(steps("- step: a\n  tool: ¶{ http: { url: http://a } }"), ("{ kind: http, url:",)),
    "a task without a kind": Mistake(steps("- step: a\n  tool: ¶{ url: http://a }"), ("write { kind: http, url:",)),
    "a rule that is no list": Mistake(rule("{ rules: ¶{ else: { then: { do: fail } } } }"), ("write a list: [ {",)),
    "a delay with its unit": Mistake(
        rule('{ rules: [ { when: "{{ outcome.error }}", then: { do: retry, attempts: 2, delay: ¶5s } } ] }'),
        ("write 5, in seconds",),
    ),
    "half a condition in braces": Mistake(
        arc('{ step: b, when: "¶{{ a.n }} == 1" }'), ('write when: "{{ a.n == 1 }}"',)
    ),
    "the name of an event": Mistake(
        arc("{ step: b, when: \"{{ ¶event.name == 'failed' }}\" }"), ("write `step.failed`",)
    ),
    "a secret that is not declared": Mistake(
        value("{{ ¶keychain.api }}"), ("keychain: [ { name: api, kind: credential } ]", "credential set api")
    ),
    "a function with a dot": Mistake(tool("kind: python\nfunction: ¶shop.bill"), ("write shop:bill",)),
    "a method that is misspelt": Mistake(tool("kind: http\nurl: http://a\nmethod: ¶PSOT"), ("write POST",)),
    "a module that is not imported": Mistake(
        tool("kind: python\ncode: return ¶requests.get('x')"), ("write `import requests`",), "warning"
    ),
    "a regular expression": Mistake(value('{{ workload.url | ¶regex_replace("a", "b") }}'), ("python task",)),
    "steps as a mapping": Mistake(
        f"{HEAD}workflow:\n  ¶first: {{ tool: {{ kind: noop }} }}\n", ("[ { step: first, … } ]",)
    ),
    "a colon in braces": Mistake(
        steps("- step: a\n  tool: { kind: shell, command: echo a¶: b }"), ("quote text that contains",)
    ),
    # the document
    "env of a playbook": Mistake(root("¶env: { A: b }"), ("`env`", "workload", "keychain")),
    "inputs of a playbook": Mistake(root("¶inputs: { a: b }"), ("`inputs`", "under `workload`")),
    "a schedule in a playbook": Mistake(root("¶schedule: '0 9 * * *'"), ("`schedule`", "kind: Schedule")),
    "a dash that is missing": Mistake(DASH, ("put `- ` before `step`",)),
    "a dash in a name": Mistake(steps("- step: ¶fetch-data\n  tool: { kind: noop }"), ("`fetch_data`",)),
}
"""What people write on their first day; each answer was scored from 1 to 5 by how well a stranger could act on it, and
those below 4 were mended.
"""
MISTAKES.update(FIRST_DAY)


def fetched(template: str, key: str = "args") -> str:
    """A second step, or the arc to it, with this template after an http task."""
    first = after("{ kind: http, url: '{{ workload.url }}' }", "v: 1" if key == "when" else f'v: "{template}"')
    return first.replace("{ step: b }", f'{{ step: b, when: "{template}" }}') if key == "when" else first


BRANCHES: Final = """
    - step: a
      next: { arcs: [ { step: b, when: "{{ workload.vip }}" }, { step: c } ] }
    - { step: b, tool: { kind: noop, args: { n: 1 } }, next: { arcs: [ { step: d } ] } }
    - { step: c, tool: { kind: noop, args: { n: 2 } }, next: { arcs: [ { step: d } ] } }
    - { step: d, tool: { kind: noop, ¶name: sum, args: { n: "{{ b.n + c.n }}" } } }
"""
RETRY: Final = tool(
    "kind: http\nurl: http://a\nspec:\n"
    "  ¶retryPolicy: { initialInterval: 1s, backoffCoefficient: 2, maximumAttempts: 5 }"
)
LETTER: Final = {
    # YAML, with the whole line
    "an unquoted template before text": Mistake(
        tool("kind: http\nurl: ¶{{ workload.url }}/tickets"), ('write url: "{{ workload.url }}/tickets"',)
    ),
    "a colon in text": Mistake(tool("kind: shell\ncommand: echo Note¶: done"), ('write command: "echo Note: done"',)),
    "a backslash in double quotes": Mistake(
        tool('kind: noop\nargs:\n  pattern: "^¶\\d{4}$"').replace("¶\\", "\\¶"), ("write '^\\d{4}$'",)
    ),
    "code without a bar": Mistake(
        tool("kind: python\ncode:\n  total = 0\n  for one in [1]¶:\n      total += one\n  return total"),
        ("code: |",),
    ),
    "quotes in quotes, twice": Mistake(
        tool('kind: noop\nargs:\n  a: "{{ workload.url == "¶b" }}"\n  c: "{{ workload.url == "d" }}"'),
        ("write \"{{ workload.url == 'b' }}\"", "the same on line 11"),
    ),
    "a key twice, with other keys": Mistake(
        tool("kind: http\nurl: http://a\nspec: { timeout: 3 }\n¶spec: { verify_tls: false }"),
        ("in place of both, write spec: { timeout: 3, verify_tls: false }",),
    ),
    "a comment that was none": Mistake(
        tool("kind: noop\nargs:\n  text: ¶Order #{{ workload.url }} is on its way"),
        ("begins a comment", 'write "Order #{{ workload.url }} is on its way"'),
        "warning",
    ),
    # keys, with the author's values
    "a delay in milliseconds": Mistake(
        rule('{ rules: [ { when: "{{ outcome.error }}", then: { do: retry, attempts: 2, ¶delay_ms: 500 } } ] }'),
        ("write delay: 0.5, in seconds",),
    ),
    "a retry policy of Temporal": Mistake(RETRY, ("attempts: 5, backoff: exponential, delay: 1",)),
    "retries with their delay": Mistake(
        tool("kind: http\nurl: http://a\n¶retries: 3\nretry_delay_seconds: 10"),
        ("attempts: 4, backoff: fixed, delay: 10",),
    ),
    "concurrency of a loop": Mistake(
        steps(
            "- step: a\n  loop: { in: [1], iterator: x, spec: { mode: parallel, ¶concurrency: 5 } }\n"
            "  tool: { kind: noop }"
        ),
        ("write max_in_flight: 5",),
    ),
    "a priority in words": Mistake(root("executor: { spec: { priority: ¶high } }"), ("write priority: 9",)),
    "a keychain by names": Mistake(
        root("keychain: ¶{ api: { kind: env, variable: API } }"),
        ("write keychain: [ { name: api, kind: env, variable: API } ]",),
    ),
    "workload in metadata": Mistake(
        root("").replace("path: m/m }", "path: m/m, ¶workflow: [] }"), ("belongs at the root",)
    ),
    "a rule of triggers in spec": Mistake(
        beside("spec: { ¶trigger_rule: all_done }"), ("write join: all", "step.failed")
    ),
    "needs of two": Mistake(
        beside("¶needs: [ a, b ]"), ("in each step before, a and b", "mode: inclusive", "spec: { join: all }")
    ),
    "a policy that is a list": Mistake(rule("¶[ { else: { then: { do: fail } } } ]"), ("put the key `rules`",)),
    "a plugin of Kestra": Mistake(
        tool("kind: ¶io.kestra.plugin.core.http.Request\nurl: http://a"), ("write kind: http",)
    ),
    "register of a task": Mistake(
        tool("name: t\nkind: http\nurl: http://a\n¶register: x"), ("remove it", "name of the task")
    ),
    # templates, whole
    "an f-string as text": Mistake(
        tool('kind: noop\nargs:\n  v: f"¶{workload.url}/orders"'),
        ('write "{{ workload.url }}/orders"',),
        "warning",
    ),
    "a secret of GitHub in text": Mistake(
        fetched("Bearer ${{ ¶secrets.KEY }}"), ('write "Bearer {{ keychain.KEY }}"', "declare it")
    ),
    "a secret with a dollar": Mistake(
        fetched("¶Bearer ${{ keychain.KEY }}")
        .replace('"¶', '¶"')
        .replace("workflow:", "keychain: [ { name: KEY, kind: credential } ]\nworkflow:"),
        ("the `$` stays", 'write "Bearer {{ keychain.KEY }}"'),
        "warning",
    ),
    "a parameter of Argo": Mistake(value("{{ ¶workflow.parameters.url }}"), ("write `workload.url`",)),
    "a path with a dollar as a guard": Mistake(
        fetched("$.a.data.n > 1", "when").replace('"$.', '"¶$.'), ('write when: "{{ a.data.n > 1 }}"',)
    ),
    "an item of n8n": Mistake(fetched("{{ ¶$json.email }}"), ("write {{ a.data.email }}",)),
    "a comprehension": Mistake(
        fetched("{{ [i.id ¶for i in a.data if i.days > 30] }}"),
        ("write {{ a.data | selectattr('days', 'gt', 30) | map(attribute='id') | list }}",),
    ),
    "a statement in an arc": Mistake(
        arc('{ step: b, args: { v: "{% ¶if workload.url %}Hi {{ workload.url }}{% else %}Hello{% endif %}" } }'),
        ("write {{ 'Hi ' ~ workload.url if workload.url else 'Hello' }}",),
    ),
    "all templates in code": Mistake(
        tool("kind: python\ncode: ¶|\n  rows = {{ workload.names }}\n  return rows + [{{ workload.url }}]"),
        ('args: { rows: "{{ workload.names }}", url: "{{ workload.url }}" }',),
        "warning",
    ),
    "a table of dbt": Mistake(
        after("{ kind: duckdb, command: ¶\"select * from {{ ref('orders') }}\" }", "v: 1"),
        ("write orders,", 'tables: { orders: "{{ orders.data }}" }'),
        "warning",
    ),
    # what was silent
    "the length of data": Mistake(fetched("{{ ¶a.data.length > 0 }}", "when"), ("write `a.data | length`",), "warning"),
    "the size of a list": Mistake(value("{{ ¶workload.names.size }}"), ("write `workload.names | length`",), "warning"),
    "the status of an answer as text": Mistake(
        fetched("{{ ¶event.result.status != 'finished' }}", "when"),
        ("a number, and never the text `finished`", "write `event.result.data.status`"),
        "warning",
    ),
    "both of two branches": Mistake(
        steps(BRANCHES).replace("¶name: sum", "name: ¶sum"),
        ("only one of `b` and `c` runs before `d`", "default(0)"),
        "warning",
    ),
    "the outcome of the own step in an arc": Mistake(
        fetched("{{ ¶a.outcome.status == 'error' }}", "when"),
        ("write when: \"{{ event.name == 'step.failed' }}\"",),
        "warning",
    ),
    # the flow
    "two arcs without a guard": Mistake(
        steps("""
            - step: a
              next: { arcs: [ { step: b }, ¶{ step: c } ] }
            - { step: b, tool: { kind: noop } }
            - { step: c, tool: { kind: noop } }
        """),
        ("to take both", "mode: inclusive"),
        "warning",
    ),
    "a step that its neighbour passes over": Mistake(
        steps("""
            - { step: a, tool: { kind: noop }, next: { arcs: [ { step: c } ] } }
            - { step: ¶b, tool: { kind: noop }, next: { arcs: [ { step: c } ] } }
            - { step: c, tool: { kind: noop } }
        """),
        ("write { step: b } in place of { step: c }",),
        "warning",
    ),
    "step.done after a loop": Mistake(
        second("v: 1")
        .replace("- step: a\n", "- step: a\n    loop: { in: [1], iterator: x }\n")
        .replace("{ step: b }", "{ step: b, when: \"{{ ¶event.name == 'step.done' }}\" }"),
        ("write `loop.done`, since `a` loops",),
    ),
}
"""Mistakes whose answers, followed to the letter, once led to the next error, or to silence."""
MISTAKES.update(LETTER)
