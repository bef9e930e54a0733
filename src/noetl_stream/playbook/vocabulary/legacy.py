"""Keys and names of older dialects, each with what to write instead (LANGUAGE §3, v10 §13)."""

from __future__ import annotations

from typing import Final

from noetl_stream.playbook.model.sections import RejectedKey

_ADMIT: Final = "spec: { policy: { admit: { rules: [ { when: …, then: { allow: true } } ] } } }"
_RULES: Final = "spec: { policy: { rules: [ { when: …, then: { do: … } }, { else: { then: { do: continue } } } ] } }"
_ARCS: Final = "next: { arcs: [ { step: …, when: …, args: { … } } ] }"
_STORE: Final = "add a task that writes the data, such as { name: store, kind: postgres, … }"
_WRITES: Final = "set it in a task's policy rule: then: { do: continue, set_ctx: { … } }"

STEP: Final = {
    "when": RejectedKey("a step has no `when`", f"write an admission policy: {_ADMIT}", "step_when"),
    "case": RejectedKey("a step has no `case`", f"after a task, write {_RULES}; between steps, write {_ARCS}"),
    "eval": RejectedKey("a step has no `eval`", f"check each task's outcome in its policy: {_RULES}"),
    "expr": RejectedKey("`expr` is not a keyword", f"use `when`; for a step, write {_ADMIT}"),
    "vars": RejectedKey("a step has no `vars`", _WRITES.replace("set_ctx", "set_vars")),
    "args": RejectedKey("a step has no `args`", f"put inputs in the task, and token args on the arc: {_ARCS}"),
    **{
        word: RejectedKey(f"a step has no `{word}`", _WRITES.replace("set_ctx", word))
        for word in ("set_ctx", "set_vars", "set_iter", "set_shared")
    },
    "set": RejectedKey("a step has no `set`", _WRITES),
    "result": RejectedKey("a step has no `result`", "read its last task's result as {{ steps.<name> }}"),
    "type": RejectedKey("a step has no `type`", "write tool: { kind: … }"),
    "with": RejectedKey(
        "a step has no `with`", "put inputs next to `kind` in the tool: tool: { kind: …, args: { … } }"
    ),
    "sink": RejectedKey("a step has no `sink`", _STORE),
    "save": RejectedKey("a step has no `save`", _STORE),
    "collect": RejectedKey("a step has no `collect`", "read the loop's result, the list of its iterations' results"),
    "call": RejectedKey("a step has no `call`", "write tool: { kind: workbook, task: … }"),
    "skip": RejectedKey("a step has no `skip`", f"write an admission policy: {_ADMIT}"),
    "pipe": RejectedKey("a step has no `pipe`", "write the pipeline as a list under `tool`"),
    "next_mode": RejectedKey("a step has no `next_mode`", "write next: { spec: { mode: exclusive }, arcs: [ … ] }"),
    "set_prev": RejectedKey("`set_prev` is not a keyword", "read the previous task's result as `_prev`"),
    "retry": RejectedKey("`retry` belongs in a task's policy", f"write {_RULES}"),
    "name": RejectedKey("a step is named by `step`", "write - step: <name>"),
    "kind": RejectedKey("`kind` belongs under `tool`", "write tool: { kind: …, … }"),
}

STEP_SPEC: Final = {
    "next_mode": RejectedKey("`next_mode` is the old form", "write next: { spec: { mode: exclusive }, arcs: [ … ] }"),
    "retry": STEP["retry"],
    "when": STEP["when"],
}

STEP_POLICY: Final = {
    "rules": RejectedKey(
        "task rules do not belong to the step", f"move them to the task: tool: {{ kind: …, {_RULES} }}",
        "control_outside_policy",
    ),
}  # fmt: skip

_DIRECTIVE: Final = RejectedKey(
    "control actions belong in a task's policy",
    "only `allow` is valid here; put `do` in a task: " + _RULES,
    "control_outside_policy",
)

_ACTION_WORDS: Final = ("do", "attempts", "backoff", "delay", "max_delay", "to")
_WRITE_WORDS: Final = ("set_ctx", "set_iter", "set_vars", "set_shared")
CONTROL: Final = dict.fromkeys((*_ACTION_WORDS, *_WRITE_WORDS), _DIRECTIVE)

_TASK_WHEN: Final = "use the policy of the task before it: then: { do: jump, to: <task> }"
_RETRY: Final = (
    "write a policy rule: spec: { policy: { rules: [ { when: \"{{ outcome.status == 'error' }}\", "
    "then: { do: retry, attempts: 3, backoff: exponential, delay: 1 } } ] } }"
)

TASK: Final = {
    "eval": RejectedKey("`eval` is the old form of a task's policy", f"write {_RULES}"),
    "case": RejectedKey("a task has no `case`", f"write {_RULES}"),
    "expr": RejectedKey("`expr` is not a keyword", f"use `when`: {_RULES}"),
    "when": RejectedKey("a task has no `when`", _TASK_WHEN),
    "policy": RejectedKey("`policy` belongs under `spec`", "write spec: { policy: { rules: [ … ] } }"),
    "timeout": RejectedKey("`timeout` belongs under `spec`", "write spec: { timeout: 30 }"),
    "retry": RejectedKey("a task has no `retry`", _RETRY),
    "rules": RejectedKey("`rules` belong under `spec.policy`", f"write {_RULES}"),
    "set_ctx": RejectedKey("`set_ctx` belongs in a policy rule", _WRITES),
    "set_iter": RejectedKey("`set_iter` belongs in a policy rule", _WRITES.replace("set_ctx", "set_iter")),
    "set_vars": RejectedKey("`set_vars` belongs in a policy rule", _WRITES.replace("set_ctx", "set_vars")),
    "set_shared": RejectedKey("`set_shared` belongs in a policy rule", _WRITES.replace("set_ctx", "set_shared")),
    "set_prev": STEP["set_prev"],
    "set": RejectedKey("`set` is not a keyword", _WRITES),
    "with": RejectedKey("a task has no `with`", "put inputs next to `kind`, named ones under `args`"),
    "sink": RejectedKey("a task has no `sink`", _STORE),
    "save": RejectedKey("a task has no `save`", _STORE),
    "collect": RejectedKey("a task has no `collect`", "read the loop's result, the list of its iterations' results"),
    "pipe": RejectedKey("a task has no `pipe`", "write the pipeline as a list under `tool`"),
    "loop": RejectedKey("a task has no `loop`", "put `loop` on the step, next to `tool`"),
    "next": RejectedKey("a task has no `next`", "put `next` on the step; inside the pipeline, write do: jump"),
    "type": RejectedKey("`type` is the old name of `kind`", "write kind: …"),
    "tool": RejectedKey("a task has no `tool`", "write `name`, `kind` and the inputs on one level"),
}

TASK_SPEC: Final = {
    "retry": RejectedKey("a task has no `spec.retry`", _RETRY),
    "when": TASK["when"],
    "rules": TASK["rules"],
}

RULE: Final = {
    "expr": RejectedKey("`expr` is not a keyword", "write { when: …, then: { … } }"),
    "if": RejectedKey("`if` is not a keyword", "write { when: …, then: { … } }"),
} | {
    word: RejectedKey(f"`{word}` belongs under `then`", f"write {{ when: …, then: {{ {word}: … }} }}")
    for word in ("allow", *_ACTION_WORDS, *_WRITE_WORDS)
}

THEN: Final = {
    "next": RejectedKey("a rule has no `next`", f"write an arc of the step: {_ARCS}"),
    "call": RejectedKey("a rule has no `call`", "write do: retry to run the task again, or do: jump, to: <task>"),
    "collect": RejectedKey(
        "a rule has no `collect`", "write set_iter, or set_shared: { <key>: { op: append, value: … } }"
    ),
    "sink": RejectedKey("a rule has no `sink`", f"{_STORE}, and jump to it"),
    "save": RejectedKey("a rule has no `save`", f"{_STORE}, and jump to it"),
    "result": RejectedKey("a rule has no `result`", "read the step's last result as {{ steps.<name> }}"),
    "set": RejectedKey("`set` is not a keyword", "write set_ctx, set_iter or set_vars: { <key>: … }"),
    "set_prev": STEP["set_prev"],
    "skip": RejectedKey("a rule has no `skip`", "write do: break, which ends the pipeline successfully"),
    "fail": RejectedKey("`fail` is a value of `do`", "write then: { do: fail }"),
    "retry": RejectedKey("`retry` is a value of `do`", "write then: { do: retry, attempts: 3, backoff: exponential }"),
    "max_attempts": RejectedKey(
        "`max_attempts` is the old name of `attempts`", "write attempts: 3 for three runs in all"
    ),
    "initial_delay": RejectedKey("`initial_delay` is the old name of `delay`", "write delay: 1"),
    "backoff_multiplier": RejectedKey(
        "a rule has no `backoff_multiplier`", "write backoff: exponential, which doubles the delay"
    ),
}

BARE_NAMES: Final = {
    "response": "write `outcome.result` in a task's policy, `event.result` in an arc",
    "result": "write `outcome.result` in a task's policy, `event.result` in an arc, else the name of the task or step",
    "error": "write `outcome.error` in a task's policy, `event.error` in an arc",
    "context": "write `ctx`",
    "item": "write `iter.<iterator>`, with the loop's iterator name",
    "loop": "write `iter.index` or `iter.count`; in an arc, `event.loop` sums up the loop",
}
"""Template names of older dialects, and what to write instead."""

LOOP: Final = {
    "collection": RejectedKey("`collection` is the old name of `in`", 'write in: "{{ … }}"'),
    "element": RejectedKey("`element` is the old name of `iterator`", "write iterator: <name>"),
}

ARC: Final = {
    "then": RejectedKey("an arc has no `then`", f"write {_ARCS}"),
    "else": RejectedKey(
        "an arc has no `else`", "write a last arc without `when`: exclusive mode takes it if no other matches"
    ),
    "expr": RejectedKey("`expr` is not a keyword", "use `when`"),
    **{
        word: RejectedKey(f"an arc has no `{word}`", f"pass values as args: {_ARCS}", "control_outside_policy")
        for word in ("set_ctx", "set_vars", "set_iter", "set_shared")
    },
    "do": RejectedKey("an arc has no `do`", f"write {_ARCS}", "control_outside_policy"),
    "with": RejectedKey("an arc has no `with`", f"pass values as args: {_ARCS}"),
}

NEXT: Final = {
    "mode": RejectedKey("`mode` belongs under `spec`", "write next: { spec: { mode: exclusive }, arcs: [ … ] }"),
    "step": RejectedKey("`step` belongs in an arc", f"write {_ARCS}"),
    "when": RejectedKey("`when` belongs in an arc", f"write {_ARCS}"),
}

NEXT_SHAPE: Final = RejectedKey("`next` must be a mapping, not {shape}", f"write {_ARCS}")
LABEL_KEYED: Final = RejectedKey("a task cannot be keyed by its name", "write - {{ name: {name}, kind: …, … }}")
POLICY_SHAPE: Final = RejectedKey("a task's policy must be a mapping with `rules`, not {shape}", f"write {_RULES}")
TOOL_SHAPE: Final = RejectedKey("`tool` must be a task or a list of tasks, not text", "write tool: { kind: …, … }")
LOOP_PARTS: Final = 'loop: { in: "{{ workload.items }}", iterator: item }'
STEP_ELSE: Final = "write - else: { then: { … } }"
