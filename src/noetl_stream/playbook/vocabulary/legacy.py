"""Words of older dialects, each with the form to write instead (LANGUAGE §3, v10 §13)."""

from __future__ import annotations

from typing import Final

from noetl_stream.playbook.model.sections import RejectedKey

_ADMIT: Final = "spec: { policy: { admit: { rules: [ { when: …, then: { allow: true } } ] } } }"
_RULES: Final = "spec: { policy: { rules: [ { when: …, then: { do: … } }, { else: { then: { do: continue } } } ] } }"
_ARCS: Final = "next: { arcs: [ { step: …, when: …, args: { … } } ] }"
_STORE: Final = "append a task that writes the data, e.g. { name: store, kind: postgres, … }"
_WRITES: Final = "write it in a task's policy rule: then: { do: continue, set_ctx: { … } }"

STEP: Final = {
    "when": RejectedKey("a step has no `when`", f"admission is a policy: {_ADMIT}", "step_when"),
    "case": RejectedKey("a step has no `case`", f"conditions after a task: {_RULES}; between steps: {_ARCS}"),
    "eval": RejectedKey("a step has no `eval`", f"judge each task's outcome in its policy: {_RULES}"),
    "expr": RejectedKey("`expr` is not a keyword", f"the one conditional is `when`; for a step: {_ADMIT}"),
    "vars": RejectedKey("a step has no `vars`", _WRITES.replace("set_ctx", "set_vars")),
    "args": RejectedKey("a step has no `args`", f"inputs stand in the task, token args on the arc: {_ARCS}"),
    **{
        word: RejectedKey(f"a step has no `{word}`", _WRITES.replace("set_ctx", word))
        for word in ("set_ctx", "set_vars", "set_iter", "set_shared")
    },
    "set": RejectedKey("a step has no `set`", _WRITES),
    "result": RejectedKey("a step has no `result`", "a step's result is that of its last task: {{ steps.<name> }}"),
    "type": RejectedKey("a step has no `type`", "name the kind in the tool: tool: { kind: … }"),
    "with": RejectedKey(
        "a step has no `with`", "inputs stand beside `kind` in the tool: tool: { kind: …, args: { … } }"
    ),
    "sink": RejectedKey("a step has no `sink`", _STORE),
    "save": RejectedKey("a step has no `save`", _STORE),
    "collect": RejectedKey("a step has no `collect`", "a loop's result is the list of its iterations' results"),
    "call": RejectedKey("a step has no `call`", "write tool: { kind: workbook, task: … }"),
    "skip": RejectedKey("a step has no `skip`", f"admission is a policy: {_ADMIT}"),
    "pipe": RejectedKey("a step has no `pipe`", "a list under `tool:` is an ordered pipeline"),
    "next_mode": RejectedKey("a step has no `next_mode`", "write next: { spec: { mode: exclusive }, arcs: [ … ] }"),
    "set_prev": RejectedKey("`set_prev` is not a keyword", "`_prev` is always the result of the task run before"),
    "retry": RejectedKey("`retry` is a task's alone", f"retry is a directive of its policy: {_RULES}"),
    "name": RejectedKey("a step's name stands under `step`", "write - step: <name>"),
    "kind": RejectedKey("`kind` stands in the tool", "write tool: { kind: …, … }"),
}

STEP_SPEC: Final = {
    "next_mode": RejectedKey("`next_mode` is the older form", "write next: { spec: { mode: exclusive }, arcs: [ … ] }"),
    "retry": STEP["retry"],
    "when": STEP["when"],
}

STEP_POLICY: Final = {
    "rules": RejectedKey(
        "task rules cannot stand at the step", f"put them into the task: tool: {{ kind: …, {_RULES} }}",
        "control_outside_policy",
    ),
}  # fmt: skip

_DIRECTIVE: Final = RejectedKey(
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
    "eval": RejectedKey("`eval` is the older form of a task's policy", _RULES),
    "case": RejectedKey("a task has no `case`", _RULES),
    "expr": RejectedKey("`expr` is not a keyword", f"the one conditional is `when`: {_RULES}"),
    "when": RejectedKey("a task has no `when`", _TASK_WHEN),
    "policy": RejectedKey("`policy` stands under `spec`", "write spec: { policy: { rules: [ … ] } }"),
    "timeout": RejectedKey("`timeout` stands under `spec`", "write spec: { timeout: 30 }"),
    "retry": RejectedKey("a task has no `retry`", _RETRY),
    "rules": RejectedKey("`rules` stand under `spec.policy`", _RULES),
    "set_ctx": RejectedKey("`set_ctx` stands in a policy rule", _WRITES),
    "set_iter": RejectedKey("`set_iter` stands in a policy rule", _WRITES.replace("set_ctx", "set_iter")),
    "set_vars": RejectedKey("`set_vars` stands in a policy rule", _WRITES.replace("set_ctx", "set_vars")),
    "set_shared": RejectedKey("`set_shared` stands in a policy rule", _WRITES.replace("set_ctx", "set_shared")),
    "set_prev": STEP["set_prev"],
    "set": RejectedKey("`set` is not a keyword", _WRITES),
    "with": RejectedKey("a task has no `with`", "inputs stand beside `kind`; named ones under `args`"),
    "sink": RejectedKey("a task has no `sink`", _STORE),
    "save": RejectedKey("a task has no `save`", _STORE),
    "collect": RejectedKey("a task has no `collect`", "a loop's result is the list of its iterations' results"),
    "pipe": RejectedKey("a task has no `pipe`", "a list under `tool:` is an ordered pipeline"),
    "loop": RejectedKey("a task has no `loop`", "a loop stands at the step, beside `tool`"),
    "next": RejectedKey("a task has no `next`", "between steps: `next` at the step; inside the pipeline: do: jump"),
    "type": RejectedKey("`type` is the older name", "write kind: …"),
    "tool": RejectedKey("a task has no `tool`", "write name, kind and the inputs side by side"),
}

TASK_SPEC: Final = {
    "retry": RejectedKey("a task has no `spec.retry`", _RETRY),
    "when": TASK["when"],
    "rules": TASK["rules"],
}

RULE: Final = {
    "expr": RejectedKey("`expr` is not a keyword", "write { when: …, then: { … } }: the one conditional is `when`"),
    "if": RejectedKey("`if` is not a keyword", "write { when: …, then: { … } }: the one conditional is `when`"),
} | {
    word: RejectedKey(f"`{word}` stands under `then`", f"write {{ when: …, then: {{ {word}: … }} }}")
    for word in ("allow", *_ACTION_WORDS, *_WRITE_WORDS)
}

THEN: Final = {
    "next": RejectedKey("a rule has no `next`", f"tasks do not start steps: {_ARCS}"),
    "call": RejectedKey(
        "a rule has no `call`", "run a task again with do: retry, or another with do: jump, to: <task>"
    ),
    "collect": RejectedKey(
        "a rule has no `collect`", "write set_iter, or set_shared: { <key>: { op: append, value: … } }"
    ),
    "sink": RejectedKey("a rule has no `sink`", f"do: jump to a task that stores the data; {_STORE}"),
    "save": RejectedKey("a rule has no `save`", f"do: jump to a task that stores the data; {_STORE}"),
    "result": RejectedKey("a rule has no `result`", "a step's result is that of its last task: {{ steps.<name> }}"),
    "set": RejectedKey("`set` is not a keyword", "write set_ctx, set_iter or set_vars: { <key>: … }"),
    "set_prev": STEP["set_prev"],
    "skip": RejectedKey("a rule has no `skip`", "write do: break, which ends the pipeline well"),
    "fail": RejectedKey("`fail` is a word for `do`", "write then: { do: fail }"),
    "retry": RejectedKey("`retry` is a word for `do`", "write then: { do: retry, attempts: 3, backoff: exponential }"),
    "max_attempts": RejectedKey("`max_attempts` is the older name", "write attempts: 3, all runs, the first included"),
    "initial_delay": RejectedKey("`initial_delay` is the older name", "write delay: 1"),
    "backoff_multiplier": RejectedKey(
        "a rule has no `backoff_multiplier`", "write backoff: exponential, which doubles"
    ),
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
    "collection": RejectedKey("`collection` is the older name", 'write in: "{{ … }}"'),
    "element": RejectedKey("`element` is the older name", "write iterator: <name>"),
}

ARC: Final = {
    "then": RejectedKey("an arc has no `then`", f"each arc names its step: {_ARCS}"),
    "else": RejectedKey(
        "an arc has no `else`", "in mode exclusive the last arc, without `when`, is taken when no other is"
    ),
    "expr": RejectedKey("`expr` is not a keyword", "the one conditional is `when`"),
    **{
        word: RejectedKey(f"an arc has no `{word}`", f"pass values as args: {_ARCS}", "control_outside_policy")
        for word in ("set_ctx", "set_vars", "set_iter", "set_shared")
    },
    "do": RejectedKey(
        "an arc has no `do`", f"an arc only names the step it leads to: {_ARCS}", "control_outside_policy"
    ),
    "with": RejectedKey("an arc has no `with`", f"pass values as args: {_ARCS}"),
}

NEXT: Final = {
    "mode": RejectedKey("`mode` stands under `spec`", "write next: { spec: { mode: exclusive }, arcs: [ … ] }"),
    "step": RejectedKey("`step` stands in an arc", f"write {_ARCS}"),
    "when": RejectedKey("`when` stands in an arc", f"write {_ARCS}"),
}

NEXT_SHAPE: Final = RejectedKey("`next` is a router, not {shape}", f"write {_ARCS}")
LABEL_KEYED: Final = RejectedKey("a task cannot be keyed by its name", "write - {{ name: {name}, kind: …, … }}")
POLICY_SHAPE: Final = RejectedKey("a task's policy must be a mapping with `rules`, this is {shape}", f"write {_RULES}")
TOOL_SHAPE: Final = RejectedKey("`tool` is a task or a list of tasks, not text", "write tool: { kind: …, … }")
LOOP_PARTS: Final = 'loop: { in: "{{ workload.items }}", iterator: item }'
STEP_ELSE: Final = "`then` stands inside `else`: - else: { then: { … } }"
