"""Names in templates of other tools and of older dialects, with their replacements (LANGUAGE §2)."""

from __future__ import annotations

from typing import Final

_ENVIRONMENT: Final = (
    "no environment is visible: pass it in as `workload.<name>`, or a secret as `keychain.<entry>`, declared as "
    "keychain: [ { name: <entry>, kind: env, variable: <entry> } ]"
)
DECLARE_SECRET: Final = (
    "write `keychain.<entry>`, declare it as keychain: [ { name: <entry>, kind: credential } ], and store it once: "
    "noetl-stream credential set <entry>"
)

BARE_NAMES: Final = {
    "outputs": "write `steps.<name>`",
    "inputs": "write `workload.<name>`",
    "params": "write `workload.<name>`",
    "parameters": "write `workload.<name>`",
    "secrets": DECLARE_SECRET,
    "secret": DECLARE_SECRET,
    "vault": DECLARE_SECRET,
    **dict.fromkeys(("env", "environ"), _ENVIRONMENT),
    **dict.fromkeys(("github", "runner", "dag_run", "flow", "workflow"), "write `workload.<name>`"),
    **dict.fromkeys(("needs", "tasks", "task", "ti", "nodes"), "write `steps.<name>` for the result of a step"),
    **dict.fromkeys(
        ("ds", "ts", "execution_date", "logical_date", "schedule", "due"),
        "write `(execution.due or execution.started) | date_format('%Y-%m-%d')`, the day of its schedule, "
        "or else the day of the start; the workload of a schedule can read `schedule`",
    ),
    **dict.fromkeys(
        ("macros", "dag", "task_instance", "var", "conn", "omit", "hostvars", "ansible_facts"),
        "there is nothing of that name here: pass a value in as `workload.<name>`; without a value, `default(none)`",
    ),
    "matrix": "write `iter.<iterator>`, by the iterator of the step's `loop`",
    "self": "write `_task`, or the name of the task",
    "response": "write `outcome.result` in a task's policy, `event.result` in an arc",
    "result": "write `outcome.result` in a task's policy, `event.result` in an arc, else the name of the task or step",
    "error": "write `outcome.error` in a task's policy, `event.error` in an arc",
    "context": "write `ctx`",
    "item": "write `iter.<iterator>`, by the iterator of the step's `loop`",
    "loop": "write `iter.index` or `iter.count`; in an arc, `event.loop` sums up the loop",
}
"""Template names of older dialects, with their replacements."""
