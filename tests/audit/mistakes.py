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

MISTAKES: Final = {
    # a whole document of another tool
    "an Airflow DAG": Mistake(AIRFLOW, ("an Airflow DAG", "apiVersion: noetl.io/v2", "workflow:")),
    "a Kestra flow": Mistake(KESTRA, ("a Kestra flow", "`namespace`", "noetl-stream init")),
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
    "if": Mistake(beside("¶if: '{{ workload.url }}'"), ("`if`", "admit:")),
    "run": Mistake(beside("¶run: echo hi"), ("`run`", "kind: shell")),
    "with_items": Mistake(beside("¶with_items: [1]"), ("`with_items`", "loop: { in:")),
    "matrix": Mistake(beside("¶strategy: { matrix: {} }"), ("`strategy`", "loop: { in:")),
    "retries": Mistake(beside("¶retries: 3"), ("`retries`", "do: ")),
    "timeout-minutes": Mistake(beside("¶timeout-minutes: 5"), ("spec: { timeout: 30 }",)),
    "env": Mistake(beside("¶env: { A: b }"), ("`env`", "next to `kind`")),
    "id": Mistake(steps("- ¶id: a\n  tool: { kind: noop }"), ("`id`", "- step: <name>")),
    # keys of tasks
    "timout": Mistake(tool("kind: http\nurl: http://a\n¶timout: 30"), ("`timeout`", "spec: {")),
    "timeout_seconds": Mistake(tool("kind: http\nurl: http://a\n¶timeout_seconds: 3"), ("spec: {",)),
    "retries of a task": Mistake(tool("kind: http\nurl: http://a\n¶retries: 3"), ("do: retry",)),
    "if of a task": Mistake(tool("kind: http\nurl: http://a\n¶if: true"), ("choose:",)),
    # names in templates
    "a misspelt key of the workload": Mistake(value("{{ ¶workload.ulr }}"), ("no `ulr`", "`workload.url`"), "warning"),
    "outputs": Mistake(value("{{ ¶outputs.a.body }}"), ("`outputs`", "steps.<name>")),
    "inputs": Mistake(value("{{ ¶inputs.url }}"), ("`inputs`", "workload.<name>")),
    "params": Mistake(value("{{ ¶params.url }}"), ("`params`", "workload.<name>")),
    "secrets": Mistake(value("${{ ¶secrets.KEY }}"), ("`secrets`", "keychain.<entry>")),
    "env in a template": Mistake(value("{{ ¶env.HOME }}"), ("no environment", "workload.<name>")),
    "ds": Mistake(value("{{ ¶ds }}"), ("`ds`", "schedule")),
    # another language in templates
    "a ternary": Mistake(value("{{ a ¶? b : c }}"), ("`value if condition else other`",)),
    "&&": Mistake(value("{{ a ¶&& b }}"), ("write `and`",)),
    "||": Mistake(value("{{ a |¶| b }}"), ("write `or`",)),
    "!": Mistake(value("{{ ¶!a }}"), ("write `not`",)),
    "===": Mistake(value("{{ 1 ==¶= 2 }}"), ("`==`",)),
    "a JSON path": Mistake(value("{{ ¶$.url }}"), ("`workload.url`",)),
    "braces in braces": Mistake(value("{{ {{ workload.url ¶}} }}"), ("write the expression alone",)),
    "null": Mistake(value("{{ workload.url == ¶null }}"), ("write `none`",)),
    # loops
    "a loop over text": Mistake(
        steps(LOOP.format("{{ workload.url }}")), ("a loop needs a list", "is text"), "warning"
    ),
    "item": Mistake(
        steps("- step: a\n  loop: { in: [1], iterator: x }\n  tool: { kind: noop, args: { v: '{{ ¶item }}' } }"),
        ("iter.<iterator>",),
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
        steps("- step: a\n  tool: { kind: noop, args: { v: ¶{{ workload.url }} } }"), ("quote",)
    ),
    "a tab": Mistake(steps("- step: a\n¶\ttool: { kind: noop }"), ("tab",)),
    "a key twice": Mistake(beside("desc: a\n¶desc: b"), ("`desc`",)),
    "lost indentation": Mistake(steps("- step: a\n  tool:\n  ¶kind: noop"), ("lost indentation",)),
}
