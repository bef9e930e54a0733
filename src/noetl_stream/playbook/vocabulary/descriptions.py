"""What each key of a playbook means, in a sentence, for editors: the JSON Schema has them as ``description``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

DESCRIPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "Root": {
        "apiVersion": "The version of the language.",
        "kind": "What the document is.",
        "metadata": "Its name, its place in the catalog, and what it is found by.",
        "keychain": "Secrets that tasks may read as `keychain.<name>`.",
        "executor": "How the whole execution runs: entry step, result, timeouts, limits.",
        "workload": "The input, with defaults; what an execution is started with is merged over it.",
        "workflow": "The steps.",
        "workbook": "Tasks that steps use by name, with `kind: workbook`.",
    },
    "Metadata": {
        "name": "A name for people.",
        "path": "The place in the catalog: names separated by slashes.",
        "version": "A registered version never changes. Without one, each new text gets the next revision.",
        "description": "What it is for; shown in lists.",
        "tags": "Words for people.",
        "labels": "Scalars by which playbooks and executions are found.",
        "annotations": "Anything else; the engine does not read it.",
    },
    "Executor": {"kind": "Always `distributed`.", "spec": "How the whole execution runs."},
    "ExecutorSpec": {
        "pool": "The pool whose workers run the steps, unless a step names another.",
        "priority": "What waits in a pool comes from the highest: 0 to 9. Default: 5, or that of the caller.",
        "entry_step": "The step that gets the first token. Default: `start`, else the first.",
        "workload": "A JSON Schema of the inputs: types, choices, bounds, and which of them are required.",
        "result": "An expression for the result of the execution. Default: the result of the last successful step.",
        "timeout": "The timeouts of every task that has none of its own.",
        "timeout_s": "Seconds for the whole execution, from its start; time paused does not count.",
        "policy": "Failures, results and limits of the execution.",
    },
    "ExecutorPolicy": {
        "defaults": "What tasks have unless they say otherwise.",
        "failure": "What the failure of a step that no arc takes does to the execution.",
        "results": "Where results are kept.",
        "limits": "Limits of this playbook; it may only lower the operator's.",
        "concurrency": "How many executions with the same key run at once.",
    },
    "Concurrency": {
        "key": "Executions with the same key, of whatever playbook, share its slots.",
        "limit": "How many of them run at once.",
        "on_limit": "With no slot left: `queue` waits, `reject` fails, `discard` ends as cancelled, `cancel_running` "
        "cancels the oldest and takes its place.",
    },
    "KeyLimit": {
        "key": "Step runs and tasks with the same key, of whatever playbook, share its slots.",
        "concurrency": "How many of them run at once.",
        "rate": "How often one of them may begin.",
    },
    "LimitRate": {
        "per_s": "How many may begin in a second, on average.",
        "burst": "How many may begin at once after a rest. Default: 1.",
    },
    "PolicyDefaults": {"timeouts": "Timeouts of every task."},
    "PolicyFailure": {
        "mode": "`fail_fast` ends the execution at once; `best_effort` lets the other branches end first."
    },
    "PolicyResults": {"reference_first": "Keep results above 1 KiB in the object store, by reference."},
    "Step": {
        "step": "The name of the step, unique in the playbook.",
        "desc": "What it does, for people.",
        "spec": "How the step runs: pool, join, timeouts, policies.",
        "loop": "Runs the tasks once for each item.",
        "tool": "A task, or a list of tasks that run in order. A step without one only routes.",
        "next": "Where tokens go when the step has ended.",
    },
    "StepSpec": {
        "pool": "The pool whose workers run this step.",
        "join": "Waits for the tokens of other branches: all that can come, the first, or so many.",
        "timeout": "The timeouts of the tasks of this step.",
        "policy": "Admission, lifecycle and failures of the step.",
    },
    "StepPolicy": {
        "admit": "Decides whether a token may enter; one that may not is held.",
        "lifecycle": "How long a run of the step may take.",
        "failure": "What failed iterations do to the loop.",
        "limit": "How many runs of this step, and how often, with the same key.",
        "emit": "What the step emits.",
    },
    "Lifecycle": {
        "timeout_s": "Seconds from the first start of the step, everything in it included.",
        "deadline_s": "Seconds from the arrival of its token.",
    },
    "Router": {"spec": "How arcs are chosen.", "arcs": "The steps that may follow, each with its condition."},
    "RouterSpec": {
        "mode": "`exclusive`: the first arc whose guard holds fires. `inclusive`: all of them.",
        "wait": "Rests until a guard holds, when none does yet.",
    },
    "Arc": {
        "step": "The step that gets a token.",
        "when": "The condition: an expression over `event`, `ctx`, `workload` and results. Without one, always.",
        "args": "What the step gets as `args`.",
    },
    "Loop": {
        "in": "The items: a list, a mapping, or an expression for one. Evaluated once.",
        "iterator": "The name of the item: read as `iter.<name>`.",
        "spec": "How iterations run.",
        "loop": "A loop inside each iteration.",
    },
    "LoopSpec": {
        "mode": "`sequential`: one after the other. `parallel`: up to `max_in_flight` at the same time.",
        "max_in_flight": "How many iterations run at the same time; default 10.",
        "exec": "`local`: on one worker. `distributed`: each iteration on any worker.",
        "timeout": "The timeouts of the tasks of each iteration.",
        "policy": "Failures of iterations.",
    },
    "LoopPolicy": {
        "mode": "`sequential` or `parallel`.",
        "max_in_flight": "How many iterations run at the same time.",
        "exec": "`local` or `distributed`.",
        "failure": "What failed iterations do to the loop.",
    },
    "LoopFailure": {
        "mode": "`fail_fast`: the first failure ends the loop. `best_effort`: all iterations run.",
        "tolerated": "How many may fail under `best_effort`: a number, or a share as `5%`.",
    },
    "Admit": {
        "rules": "The first rule whose `when` holds decides; if none does, the token is held.",
        "wait": "Keeps the execution alive while the token is held, for so long.",
    },
    "AdmitWait": {
        "timeout_s": "Seconds until it stops waiting.",
        "on_timeout": "`fail` fails the step, `discard` drops the token.",
    },
    "NextWait": {
        "timeout_s": "Seconds until it stops waiting.",
        "on_timeout": "`fail` fails the execution, `discard` ends the branch.",
    },
    "TaskPolicy": {
        "on_unmatched": "What happens when no rule matches: `continue` or `fail`.",
        "rules": "What follows the task: the first rule whose `when` holds.",
        "limit": "How many attempts of this task, and how often, with the same key.",
    },
    "Rule": {"when": "The condition.", "then": "What is done."},
    "Else": {"then": "What is done if no rule before it matched."},
    "Then": {
        "do": "`continue` with the next task, `retry`, `jump` to another, `break` (end well) or `fail`.",
        "attempts": "How many times the task runs in all, the first included.",
        "backoff": "How the delay grows from attempt to attempt.",
        "delay": "Seconds before the next attempt.",
        "max_delay": "The longest delay, in seconds.",
        "to": "The task of this step to jump to.",
        "set_ctx": "Sets keys of `ctx`, the state of the execution.",
        "set_iter": "Sets keys of `iter`, the scope of this iteration.",
        "set_vars": "Sets keys of `vars`, the scope of this step run.",
        "set_shared": "Changes keys of `ctx` from parallel iterations, by operations that add up.",
    },
    "SharedEntry": {"op": "How the value changes the key.", "value": "The value; `count` takes none."},
    "Allow": {"allow": "Whether the token may enter."},
    "ChooseEntry": {
        "name": "A name for the construct.",
        "choose": "Runs the tasks of the first rule whose `when` holds.",
    },
    "BranchRule": {"when": "The condition.", "then": "The tasks to run."},
    "WhileEntry": {"name": "A name for the construct.", "while": "Runs tasks again and again while `when` holds."},
    "UntilEntry": {"name": "A name for the construct.", "until": "Runs tasks again and again until `when` holds."},
    "Round": {"when": "The condition.", "do": "The tasks of a round."},
    "ResultSpec": {"schema": "A JSON Schema that the result must match, or the path of a registered one."},
    "NamedSchema": {"path": "The path of a registered schema.", "version": "Its version; without it the latest."},
    "WorkbookTasks": {"tasks": "The tasks by name."},
    "ListedEntry": {"name": "The name that steps use.", "tool": "The task."},
    "TimeoutParts": {
        "total": "Seconds for one attempt.",
        "connect": "Seconds to connect.",
        "read": "Seconds without an answer.",
    },
}
"""By section, as its model is called, and key. Kinds of tools describe their own."""
