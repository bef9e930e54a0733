"""Words of older dialects, each with the form to write instead (LANGUAGE §3, v10 §13)."""

from __future__ import annotations

from typing import Final

from noetl_stream.playbook.sections import Advice

_ADMIT: Final = "spec: { policy: { admit: { rules: [ { when: …, then: { allow: true } } ] } } }"
_RULES: Final = "spec: { policy: { rules: [ { when: …, then: { do: … } }, { else: { then: { do: continue } } } ] } }"
_ARCS: Final = "next: { arcs: [ { step: …, when: …, args: { … } } ] }"
_STORE: Final = "append a task that writes the data, e.g. { name: store, kind: postgres, … }"
_WRITES: Final = "write it in a task's policy rule: then: { do: continue, set_ctx: { … } }"

STEP: Final = {
    "when": Advice("a step has no `when`", f"admission is a policy: {_ADMIT}", "step_when"),
    "case": Advice("a step has no `case`", f"conditions after a task: {_RULES}; between steps: {_ARCS}"),
    "eval": Advice("a step has no `eval`", f"judge each task's outcome in its policy: {_RULES}"),
    "expr": Advice("`expr` is not a keyword", f"the one conditional is `when`; for a step: {_ADMIT}"),
    "vars": Advice("a step has no `vars`", _WRITES.replace("set_ctx", "set_vars")),
    "args": Advice("a step has no `args`", f"inputs stand in the task, token args on the arc: {_ARCS}"),
    **{
        word: Advice(f"a step has no `{word}`", _WRITES.replace("set_ctx", word))
        for word in ("set_ctx", "set_vars", "set_iter", "set_shared")
    },
    "set": Advice("a step has no `set`", _WRITES),
    "result": Advice("a step has no `result`", "a step's result is that of its last task: {{ steps.<name> }}"),
    "type": Advice("a step has no `type`", "name the kind in the tool: tool: { kind: … }"),
    "with": Advice("a step has no `with`", "inputs stand beside `kind` in the tool: tool: { kind: …, args: { … } }"),
    "sink": Advice("a step has no `sink`", _STORE),
    "save": Advice("a step has no `save`", _STORE),
    "collect": Advice("a step has no `collect`", "a loop's result is the list of its iterations' results"),
    "call": Advice("a step has no `call`", "write tool: { kind: workbook, task: … }"),
    "skip": Advice("a step has no `skip`", f"admission is a policy: {_ADMIT}"),
    "pipe": Advice("a step has no `pipe`", "a list under `tool:` is an ordered pipeline"),
    "next_mode": Advice("a step has no `next_mode`", "write next: { spec: { mode: exclusive }, arcs: [ … ] }"),
    "set_prev": Advice("`set_prev` is not a keyword", "`_prev` is always the result of the task run before"),
    "retry": Advice("`retry` is a task's alone", f"retry is a directive of its policy: {_RULES}"),
    "name": Advice("a step's name stands under `step`", "write - step: <name>"),
    "kind": Advice("`kind` stands in the tool", "write tool: { kind: …, … }"),
}

STEP_SPEC: Final = {
    "next_mode": Advice("`next_mode` is the older form", "write next: { spec: { mode: exclusive }, arcs: [ … ] }"),
    "retry": STEP["retry"],
    "when": STEP["when"],
}

STEP_POLICY: Final = {
    "rules": Advice(
        "task rules cannot stand at the step", f"put them into the task: tool: {{ kind: …, {_RULES} }}",
        "control_outside_policy",
    ),
}  # fmt: skip

_DIRECTIVE: Final = Advice(
    "control actions stand in a task's policy only",
    "here only `allow` may be said; put `do` into a task: " + _RULES,
    "control_outside_policy",
)

_ACTION_WORDS: Final = ("do", "attempts", "backoff", "delay", "max_delay", "to")
_WRITE_WORDS: Final = ("set_ctx", "set_iter", "set_vars", "set_shared")
CONTROL: Final = dict.fromkeys((*_ACTION_WORDS, *_WRITE_WORDS), _DIRECTIVE)

_TASK_WHEN: Final = "steer with the policy of the task before it: then: { do: jump, to: <task> }"
_RETRY: Final = (
    "retry is a rule of the policy: spec: { policy: { rules: [ { when: \"{{ outcome.status == 'error' }}\", "
    "then: { do: retry, attempts: 3, backoff: exponential, delay: 1 } } ] } }"
)

TASK: Final = {
    "eval": Advice("`eval` is the older form of a task's policy", _RULES),
    "case": Advice("a task has no `case`", _RULES),
    "expr": Advice("`expr` is not a keyword", f"the one conditional is `when`: {_RULES}"),
    "when": Advice("a task has no `when`", _TASK_WHEN),
    "policy": Advice("`policy` stands under `spec`", "write spec: { policy: { rules: [ … ] } }"),
    "timeout": Advice("`timeout` stands under `spec`", "write spec: { timeout: 30 }"),
    "retry": Advice("a task has no `retry`", _RETRY),
    "rules": Advice("`rules` stand under `spec.policy`", _RULES),
    "set_ctx": Advice("`set_ctx` stands in a policy rule", _WRITES),
    "set_iter": Advice("`set_iter` stands in a policy rule", _WRITES.replace("set_ctx", "set_iter")),
    "set_vars": Advice("`set_vars` stands in a policy rule", _WRITES.replace("set_ctx", "set_vars")),
    "set_shared": Advice("`set_shared` stands in a policy rule", _WRITES.replace("set_ctx", "set_shared")),
    "set_prev": STEP["set_prev"],
    "set": Advice("`set` is not a keyword", _WRITES),
    "with": Advice("a task has no `with`", "inputs stand beside `kind`; named ones under `args`"),
    "sink": Advice("a task has no `sink`", _STORE),
    "save": Advice("a task has no `save`", _STORE),
    "collect": Advice("a task has no `collect`", "a loop's result is the list of its iterations' results"),
    "pipe": Advice("a task has no `pipe`", "a list under `tool:` is an ordered pipeline"),
    "loop": Advice("a task has no `loop`", "a loop stands at the step, beside `tool`"),
    "next": Advice("a task has no `next`", "between steps: `next` at the step; inside the pipeline: do: jump"),
    "type": Advice("`type` is the older name", "write kind: …"),
    "tool": Advice("a task has no `tool`", "write name, kind and the inputs side by side"),
}

TASK_SPEC: Final = {"retry": Advice("a task has no `spec.retry`", _RETRY), "when": TASK["when"], "rules": TASK["rules"]}

RULE: Final = {
    "expr": Advice("`expr` is not a keyword", "write { when: …, then: { … } }: the one conditional is `when`"),
    "if": Advice("`if` is not a keyword", "write { when: …, then: { … } }: the one conditional is `when`"),
} | {
    word: Advice(f"`{word}` stands under `then`", f"write {{ when: …, then: {{ {word}: … }} }}")
    for word in ("allow", *_ACTION_WORDS, *_WRITE_WORDS)
}

THEN: Final = {
    "next": Advice("a rule has no `next`", f"tasks do not start steps: {_ARCS}"),
    "call": Advice("a rule has no `call`", "run a task again with do: retry, or another with do: jump, to: <task>"),
    "collect": Advice("a rule has no `collect`", "write set_iter, or set_shared: { <key>: { op: append, value: … } }"),
    "sink": Advice("a rule has no `sink`", f"do: jump to a task that stores the data; {_STORE}"),
    "save": Advice("a rule has no `save`", f"do: jump to a task that stores the data; {_STORE}"),
    "result": Advice("a rule has no `result`", "a step's result is that of its last task: {{ steps.<name> }}"),
    "set": Advice("`set` is not a keyword", "write set_ctx, set_iter or set_vars: { <key>: … }"),
    "set_prev": STEP["set_prev"],
    "skip": Advice("a rule has no `skip`", "write do: break, which ends the pipeline well"),
    "fail": Advice("`fail` is a word for `do`", "write then: { do: fail }"),
    "retry": Advice("`retry` is a word for `do`", "write then: { do: retry, attempts: 3, backoff: exponential }"),
    "max_attempts": Advice("`max_attempts` is the older name", "write attempts: 3, all runs, the first included"),
    "initial_delay": Advice("`initial_delay` is the older name", "write delay: 1"),
    "backoff_multiplier": Advice("a rule has no `backoff_multiplier`", "write backoff: exponential, which doubles"),
}

BARE_NAMES: Final = {
    "response": "write `outcome.result` in a task's policy, `event.result` in an arc",
    "result": "write `outcome.result` in a task's policy, `event.result` in an arc, else the name of the task or step",
    "error": "write `outcome.error` in a task's policy, `event.error` in an arc",
    "context": "write `ctx`",
    "item": "write `iter.<iterator>`, with the name that the loop says",
    "loop": "write `iter.index`, `iter.count`; the loop's end is `event.loop` in an arc",
}
"""Names of older dialects in templates, and what to write instead."""

LOOP: Final = {
    "collection": Advice("`collection` is the older name", 'write in: "{{ … }}"'),
    "element": Advice("`element` is the older name", "write iterator: <name>"),
}

ARC: Final = {
    "then": Advice("an arc has no `then`", f"each arc names its step: {_ARCS}"),
    "else": Advice("an arc has no `else`", "in mode exclusive the last arc, without `when`, is taken when no other is"),
    "expr": Advice("`expr` is not a keyword", "the one conditional is `when`"),
    **{
        word: Advice(f"an arc has no `{word}`", f"pass values as args: {_ARCS}", "control_outside_policy")
        for word in ("set_ctx", "set_vars", "set_iter", "set_shared")
    },
    "do": Advice("an arc has no `do`", f"an arc only names the step it leads to: {_ARCS}", "control_outside_policy"),
    "with": Advice("an arc has no `with`", f"pass values as args: {_ARCS}"),
}

NEXT: Final = {
    "mode": Advice("`mode` stands under `spec`", "write next: { spec: { mode: exclusive }, arcs: [ … ] }"),
    "step": Advice("`step` stands in an arc", f"write {_ARCS}"),
    "when": Advice("`when` stands in an arc", f"write {_ARCS}"),
}

NEXT_SHAPE: Final = Advice("`next` is a router, not {shape}", f"write {_ARCS}")
LABEL_KEYED: Final = Advice("a task cannot be keyed by its name", "write - {{ name: {name}, kind: …, … }}")
POLICY_SHAPE: Final = Advice("a task's policy must be a mapping with `rules`, this is {shape}", f"write {_RULES}")
TOOL_SHAPE: Final = Advice("`tool` is a task or a list of tasks, not text", "write tool: { kind: …, … }")
LOOP_PARTS: Final = 'loop: { in: "{{ workload.items }}", iterator: item }'
STEP_ELSE: Final = "`then` stands inside `else`: - else: { then: { … } }"
