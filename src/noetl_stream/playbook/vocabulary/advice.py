"""Rejected keys, from older dialects or misplaced, with their replacements (LANGUAGE §1, §3 to §6; v10 §13)."""

from __future__ import annotations

from typing import Final, get_args

from msgspec.structs import replace

from noetl_stream.model.events import SharedOperation
from noetl_stream.playbook.vocabulary.hints import GUARD, VALUE, RejectedKey
from noetl_stream.playbook.yaml.nodes import Mapping, Node, Sequence, child


def _belongs(word: str, where: str, shown: str, *scopes: str) -> RejectedKey:
    place = (*scopes, word) if scopes else ()
    return RejectedKey(f"`{word}` belongs {where}", f"write {shown}", "misplaced_key", place)


def knob(word: str) -> RejectedKey:
    """The advice about a knob of a task's kind that is beside ``kind``."""
    return _belongs(word, "under `spec`", f"spec: {{ {word}: {VALUE} }}", "spec")


_ADMIT: Final = "spec: { policy: { admit: { rules: [ { when: …, then: { allow: true } } ] } } }"
_ADMISSION: Final = f"write an admission policy: {_ADMIT}"
_RULES: Final = "spec: { policy: { rules: [ { when: …, then: { do: … } }, { else: { then: { do: continue } } } ] } }"
_ARCS: Final = "next: { arcs: [ { step: …, when: …, args: { … } } ] }"
_EXCLUSIVE: Final = "write next: { spec: { mode: exclusive }, arcs: [ … ] }"
_STORE: Final = "add a task that writes the data, such as { name: store, kind: postgres, … }"
_COLLECT: Final = "read the loop's result, the list of its iterations' results"
_PIPE: Final = "write the pipeline as a list under `tool`"
_RETRY_RULES: Final = (
    "rules: [ { when: \"{{ outcome.status == 'error' }}\", "
    "then: { do: retry, attempts: <attempts>, backoff: <backoff>, delay: <delay> } } ]"
)
_RETRY_POLICY: Final = f"policy: {{ {_RETRY_RULES} }}"
_RETRY: Final = f"write spec: {{ {_RETRY_POLICY} }}"
_RETRY_WORDS: Final = ("retries", "retryPolicy", "retry_policy", "retryStrategy", "max_retries", "max_attempts")
_FAILURE: Final = "failure: { mode: best_effort }"

_WRITE_WORDS: Final = ("set_ctx", "set_iter", "set_vars", "set_shared", "set_label")
_RULE_WORDS: Final = ("do", "attempts", "backoff", "delay", "max_delay", "to", *_WRITE_WORDS)
_WRITES: Final = {
    word: f"set it in a task's policy rule: then: {{ do: continue, {word}: {{ … }} }}" for word in _WRITE_WORDS
}
_SET_PREV: Final = RejectedKey("`set_prev` is not a keyword", "read the previous task's result as `_prev`")
_ON_ARC: Final = f"on the arc that leads here, write {{ step: <this step>, when: {GUARD} }}"
_STEP_WHEN: Final = RejectedKey(
    "a step has no `when`", f"{_ON_ARC}; what holds a step back itself is `spec.policy.admit`", "step_when"
)
_STEP_RETRY: Final = RejectedKey("`retry` belongs in a task's policy", f"write {_RULES}")
_TASK_WHEN: Final = RejectedKey(
    "a task has no `when`", "use the policy of the task before it: then: { do: jump, to: <task> }"
)
_TASK_RULES: Final = RejectedKey(
    "`rules` belong under `spec.policy`", f"write {_RULES}", place=("spec", "policy", "rules")
)


def _policies(*scopes: str) -> dict[str, RejectedKey]:
    """The rejected policies of a step beside the mapping that holds them, and the times of its ``lifecycle``."""
    policies = {
        word: _belongs(word, "under `spec.policy`", f"spec: {{ policy: {{ {word}: {VALUE} }} }}", *scopes)
        for word in ("admit", "lifecycle", "failure")
    }
    return policies | _times(*scopes)


def _times(*scopes: str) -> dict[str, RejectedKey]:
    where, shown = "under `spec.policy.lifecycle`", "spec: {{ policy: {{ lifecycle: {{ {}: <value> }} }} }}"
    return {
        word: _belongs(word, where, shown.format(word), *scopes, "lifecycle") for word in ("timeout_s", "deadline_s")
    }


_JOIN: Final = _belongs("join", "under `spec`", f"spec: {{ join: {VALUE} }}", "spec")

_FOLLOWS: Final = "<follows>"
_EACH: Final = "write loop: { in: <list>, iterator: item }, and read `item`"


def _other_tools(hints: dict[str, tuple[str, ...]], what: str) -> dict[str, RejectedKey]:
    """Rejected words of other tools, which no converter knows, by their replacement."""
    return {
        word: RejectedKey(f"unknown key `{word}` in {what}", hint, "unknown_key")
        for hint, words in hints.items()
        for word in words
    }


def _renamed(names: dict[str, tuple[str, ...]], what: str) -> dict[str, RejectedKey]:
    """Rejected words of other tools, by the key with the same meaning: its value is read under that key."""
    return {
        word: RejectedKey(f"unknown key `{word}` in {what}", f"write {name}: {VALUE}", "unknown_key", (name,))
        for name, words in names.items()
        for word in words
    }


_NAMING: Final = ("register", "output", "outputs", "returns", "id", "save_as", "output_key", "xcom_key")
_REPEATING: Final = (
    *("with_items", "withItems", "withParam", "with_list", "for_each", "foreach", "forEach"),
    *("strategy", "matrix", "items"),
)


def known_as(workflow: Node | None) -> dict[str, str]:
    """Replacements for names that keys of other tools would declare in the steps of a workflow."""
    found: dict[str, str] = {}
    for step in workflow.items if isinstance(workflow, Sequence) else ():
        own = child(step, "step")
        if isinstance(step, Mapping) and own is not None:
            names = [node.plain() for key in _NAMING if (node := step.get(key)) is not None]
            found |= {name: f"write `steps.{own.plain()}`" for name in names if isinstance(name, str)}
            outputs = [node for key in _NAMING if isinstance(node := step.get(key), Mapping)]
            found |= {key: f"write `steps.{own.plain()}`, its result" for node in outputs for key in node.keys}
            tool = child(step, "tool")
            for task in tool.items if isinstance(tool, Sequence) else ():
                if (name := child(task, "name")) is not None and isinstance(name.plain(), str):
                    inner = f"{own.plain()}.results.{name.plain()}"
                    found.setdefault(name.plain(), f"write `{inner}`: it is a task of step `{own.plain()}`")
                if (kept := child(task, "register")) is not None and (named := child(task, "name")) is not None:
                    found[str(kept.plain())] = f"write `{named.plain()}`"
            if any(key in step.keys for key in _REPEATING) or any(child(tool, key) for key in (*_REPEATING, "loop")):
                found |= {"item": "", "matrix": ""}
    return found


_OTHER_ROOTS: Final = {
    "write the steps under `workflow`: [ { step: start, tool: { kind: … }, next: … } ]": ("tasks", "jobs", "States"),
    "put the inputs with their defaults under `workload`: <inputs>": ("inputs", "params", "variables"),
    "a trigger is a document of its own, with kind: Trigger; a time is one with kind: Schedule": ("triggers", "on"),
    "a schedule is a document of its own: { apiVersion: noetl.io/v2, kind: Schedule, metadata: { name: …, path: … }, "
    "spec: { playbook: <path of this one>, cron: [ <value> ] } }": ("schedule", "schedule_interval", "cron"),
    "write a step for it in `workflow`, and in each step that may fail next: "
    "{ arcs: [ { step: <that step>, when: \"{{ event.name == 'step.failed' }}\" } ] }": ("errors", "on_failure"),
    "no environment is visible: write values under `workload`, and secrets under `keychain`": ("env", "environment"),
    f"for the whole execution, write executor: {{ spec: {{ timeout_s: {VALUE} }} }}": ("timeout", "timeout_s"),
}
_OTHER_STEPS: Final = {
    "write spec: { join: all }, and on the arcs that lead here, for a step that may have failed: "
    "when: \"{{ event.name in ['step.done', 'step.failed'] }}\"": (*("trigger_rule", "triggerRule", "wait_for_all"),),
    "write an arc that goes on after a failure, too: next: { arcs: [ { step: <target>, "
    "when: \"{{ event.name in ['step.done', 'step.failed'] }}\" } ] }": (
        *("continue-on-error", "continue_on_error", "ignore_errors", "continueOn", "allow_failure", "failed_when"),
    ),
    'write what comes after, each with its condition: next: { arcs: [ { step: …, when: "{{ … }}" }, { step: … } ] }': (
        *("Choices", "choices", "switch", "cases", "branch", "Default"),
    ),
    "write tool: { kind: … }": ("Type",),
    _FOLLOWS: (
        *("needs", "depends", "depends_on", "dependsOn", "dependencies", "upstream", "after", "run_after"),
        *("wait_for", "runAfter", "waitFor"),
    ),
    "say what comes after in: next: { arcs: [ { step: … } ] }": ("Next", "then", "on_success", "downstream"),
    "a step without `next` ends its branch: remove it": ("End", "end"),
    "write an arc for it: next: { arcs: [ { step: <named>, when: \"{{ event.name == 'step.failed' }}\" } ] }": (
        *("Catch", "catch", "on_error", "on_failure", "onError", "onFailure"),
    ),
    _ON_ARC: ("if", "condition"),
    f"on the arc that leads here, write the opposite: {{ step: <this step>, when: {GUARD} }}": ("unless",),
    f"write tool: {{ kind: shell, command: {VALUE} }}": (
        *("run", "script", "command", "bash_command", "cmd", "shell", "bash"),
    ),
    "write a tool: tool: { kind: http, … }, or a playbook: tool: { kind: playbook, path: … }": (
        *("uses", "template", "task", "operator", "plugin", "action", "Resource"),
    ),
    _EACH: _REPEATING,
    _STEP_RETRY.hint: ("retries", "Retry", "retryStrategy", "retry_policy", "max_retries"),
    f"write spec: {{ timeout: {VALUE} }}": (
        "timeout_seconds",
        "TimeoutSeconds",
        "activeDeadlineSeconds",
        "execution_timeout",
    ),
    "write spec: { timeout: <minutes> }, in seconds": ("timeout_minutes", "timeout-minutes"),
    "put inputs next to `kind` in the tool: tool: { kind: …, args: { … } }": ("inputs", "params", "parameters", "env"),
    "steps run at once after next: { spec: { mode: inclusive }, arcs: [ { step: … }, { step: … } ] }": (
        *("parallel", "branches", "steps", "fork", "async"),
    ),
    "a result is read by the name of its step: `steps.<this step>`": (
        *("output", "outputs", "register", "returns", "save_as", "output_key", "xcom_key"),
    ),
}
_OTHER_TASKS: Final = {
    "write the condition as a branch: choose: [ { when: …, then: [ … ] } ]": ("if", "condition", "unless"),
    f"write spec: {{ timeout: {VALUE} }}": (
        *("timeout_seconds", "timeout_s", "TimeoutSeconds", "execution_timeout", "startToCloseTimeout"),
        *("start_to_close_timeout", "timeoutSeconds"),
    ),
    "write spec: { timeout: <minutes> }, in seconds": ("timeout_minutes", "timeout-minutes"),
    _RETRY: ("retries", "max_retries", "attempts_max", "retry_policy", "retryPolicy", "retryStrategy", "max_attempts"),
    f"handle it in the task's policy: {_RULES}": ("on_error", "catch", "on_failure", "ignore_errors"),
    "pages go by a rule of the task: then: { do: jump, to: <task> }": ("pagination", "paginate", "next_page"),
    f"on the step, beside `tool`, write spec: {{ pool: {VALUE} }}": ("pool", "queue", "worker_pool", "task_queue"),
    f"on the step, beside `tool`, write spec: {{ join: {VALUE} }}": ("join",),
    f"on the step, beside `tool`, write spec: {{ policy: {{ compensation: {VALUE} }} }}": ("compensation",),
    f"on the step, beside `tool`, write spec: {{ policy: {{ limit: {VALUE} }} }}": ("limit",),
    "the delay stands in the rule that retries: then: { do: retry, attempts: <attempts>, delay: <delay> }": (
        *("retry_delay", "retry_delay_seconds", "retryDelay", "backoff", "retry_interval", "delay_between_retries"),
    ),
    "remove it: the result is read by the name of the task": ("register", "save_as", "output_key", "returns"),
    "write spec: { timeout: <thousandth> }, in seconds": ("timeout_ms", "timeoutMs"),
    "remove it: there are no containers, a task runs with the packages of its worker": (
        *("image", "container", "docker", "containerImage", "taskRunner", "runtime"),
    ),
    "tasks of a pipeline run in their order; a step says what follows in `next`": ("needs", "depends_on", "dependsOn"),
    f"on the step, beside `tool`, {_EACH}": (
        *("with_items", "withItems", "withParam", "for_each", "foreach", "forEach", "matrix"),
    ),
}

OTHER_TOOLS: Final = {
    "an Airflow DAG": ("dag_id", "schedule_interval", "default_args"),
    "a GitHub Actions workflow": ("jobs", "runs-on"),
    "a Kestra flow": ("namespace", "pluginDefaults"),
    "a state machine of Step Functions": ("StartAt", "States"),
    "a Prefect deployment": ("deployments", "prefect-version", "entrypoint"),
    "an Azure pipeline": ("stages",),
    "a Compose file": ("services",),
}
"""Documents of other tools, each with root keys that no playbook has."""
PAGES_ABOUT_TOOLS: Final = {"an Airflow DAG": "coming-from-airflow", "a Kestra flow": "coming-from-kestra"}
OTHER_HINT: Final = (
    "a playbook begins with apiVersion: noetl.io/v2, kind: Playbook, metadata: { name: …, path: … } and workflow: "
    "[ { step: start, tool: { kind: … }, next: { arcs: [ { step: … } ] } } ]; `noetl-stream init` writes one"
)

ROOT: Final = {
    **_other_tools(_OTHER_ROOTS, "the playbook"),
    "vars": RejectedKey(
        "a playbook has no root `vars`",
        "put inputs under `workload`; set state with `set_ctx`, `set_iter` or `set_vars` in a task's policy rule",
        "root_vars",
    ),
    "steps": RejectedKey(
        "`steps` is the old name of `workflow`", "write workflow: [ { step: start, … } ]", place=("workflow",)
    ),
}

METADATA: Final = {
    word: RejectedKey(
        f"`{word}` belongs at the root of the document", f"indent `{word}` like `metadata`", "unknown_key"
    )
    for word in ("workload", "workflow", "executor", "keychain", "workbook")
}

KEYS_OF_STEPS: Final = frozenset(["tool", "next", "loop"])
"""Keys of steps: at the root, after ``workflow``, they have lost their indentation."""

STEP: Final = {
    **_other_tools(_OTHER_STEPS, "a step"),
    "id": RejectedKey("unknown key `id` in a step", f"write step: {VALUE}", "unknown_key", ("step",)),
    "when": _STEP_WHEN,
    "expr": RejectedKey("`expr` is not a keyword", f"use `when`; for a step, write {_ADMIT}"),
    "case": RejectedKey("a step has no `case`", f"after a task, write {_RULES}; between steps, write {_ARCS}"),
    "eval": RejectedKey("a step has no `eval`", f"check each task's outcome in its policy: {_RULES}"),
    "vars": RejectedKey("a step has no `vars`", _WRITES["set_vars"]),
    "args": RejectedKey("a step has no `args`", f"put inputs in the task, and token args on the arc: {_ARCS}"),
    **{word: RejectedKey(f"a step has no `{word}`", hint) for word, hint in _WRITES.items()},
    "set": RejectedKey("a step has no `set`", _WRITES["set_ctx"]),
    "result": RejectedKey("a step has no `result`", "read its last task's result as {{ steps.<name> }}"),
    "type": RejectedKey("a step has no `type`", "write tool: { kind: … }"),
    "with": RejectedKey(
        "a step has no `with`", "put inputs next to `kind` in the tool: tool: { kind: …, args: { … } }"
    ),
    "sink": RejectedKey("a step has no `sink`", _STORE),
    "save": RejectedKey("a step has no `save`", _STORE),
    "collect": RejectedKey("a step has no `collect`", _COLLECT),
    "call": RejectedKey("a step has no `call`", "write tool: { kind: workbook, task: … }"),
    "skip": RejectedKey("a step has no `skip`", _ADMISSION),
    "pipe": RejectedKey("a step has no `pipe`", _PIPE),
    "next_mode": RejectedKey("a step has no `next_mode`", _EXCLUSIVE),
    "set_prev": _SET_PREV,
    "retry": _STEP_RETRY,
    "name": RejectedKey("a step is named by `step`", f"write step: {VALUE}", place=("step",)),
    "kind": RejectedKey("`kind` belongs under `tool`", "write tool: { kind: …, … }"),
    "policy": _belongs("policy", "under `spec`", "spec: { policy: { … } }", "spec"),
    "pool": _belongs("pool", "under `spec`", f"spec: {{ pool: {VALUE} }}", "spec"),
    "timeout": _belongs("timeout", "under `spec`", f"spec: {{ timeout: {VALUE} }}", "spec"),
    "join": _JOIN,
    "finally": RejectedKey(
        "`finally` belongs to the executor",
        "write a step for it, and name that: executor: { spec: { policy: { finally: <step> } } }",
        "unknown_key",
    ),
    **_policies("spec", "policy"),
}

STEP_SPEC: Final = {
    **{
        word: RejectedKey(
            f"unknown key `{word}` in a step's `spec`",
            "write join: all, and on the arcs that lead here, for a step that may have failed: "
            "when: \"{{ event.name in ['step.done', 'step.failed'] }}\"",
            "unknown_key",
        )
        for word in ("trigger_rule", "triggerRule", "wait_for_all")
    },
    **{
        word: RejectedKey(f"a step has no `spec.{word}`", f"on the task, {_RETRY}", "unknown_key")
        for word in _RETRY_WORDS
    },
    "next_mode": RejectedKey("`next_mode` is the old form", _EXCLUSIVE),
    "retry": _STEP_RETRY,
    "when": _STEP_WHEN,
    **_policies("policy"),
}

CONTROL: Final = dict.fromkeys(
    _RULE_WORDS,
    RejectedKey(
        "control actions belong in a task's policy",
        f"only `allow` is valid here; put `do` in a task: {_RULES}",
        "control_outside_policy",
    ),
)

LOOP_POLICY: Final = CONTROL | {
    "rules": RejectedKey(
        "task rules do not belong to the step",
        f"move them to the task: tool: {{ kind: …, {_RULES} }}",
        "control_outside_policy",
    )
}

STEP_POLICY: Final = {
    **LOOP_POLICY,
    "wait": _belongs("wait", "under `admit`", "admit: { rules: [ … ], wait: { timeout_s: 3600 } }", "admit"),
    "join": replace(_JOIN, place=()),
    **_times(),
}

TASK: Final = {
    "eval": RejectedKey(
        "`eval` is the old form of a task's policy", f"write {_RULES}", place=("spec", "policy", "rules")
    ),
    "expr": RejectedKey("`expr` is not a keyword", f"use `when`: {_RULES}"),
    "when": _TASK_WHEN,
    "policy": RejectedKey(
        "`policy` belongs under `spec`", f"write spec: {{ policy: {VALUE} }}", place=("spec", "policy")
    ),
    "timeout": RejectedKey(
        "`timeout` belongs under `spec`", f"write spec: {{ timeout: {VALUE} }}", place=("spec", "timeout")
    ),
    "rules": _TASK_RULES,
    **{word: RejectedKey(f"`{word}` belongs in a policy rule", hint) for word, hint in _WRITES.items()},
    "set_prev": _SET_PREV,
    "set": RejectedKey("`set` is not a keyword", _WRITES["set_ctx"]),
    "type": RejectedKey("`type` is the old name of `kind`", f"write kind: {VALUE}", place=("kind",)),
    "case": RejectedKey("a task has no `case`", f"write {_RULES}"),
    "retry": RejectedKey("a task has no `retry`", _RETRY),
    "with": RejectedKey("a task has no `with`", "put inputs next to `kind`, named ones under `args`"),
    "sink": RejectedKey("a task has no `sink`", _STORE),
    "save": RejectedKey("a task has no `save`", _STORE),
    "collect": RejectedKey("a task has no `collect`", _COLLECT),
    "pipe": RejectedKey("a task has no `pipe`", _PIPE),
    "loop": RejectedKey(
        "a task has no `loop`",
        "put it on the step, beside `tool`: loop: { in: <list>, iterator: item }, and read `item`",
    ),
    "next": RejectedKey(
        "a task has no `next`",
        "indent `next` like `tool`: it is a key of the step; within the pipeline, a rule has do: jump",
    ),
    "tool": RejectedKey("a task has no `tool`", "write `name`, `kind` and the inputs on one level"),
}

TASK_HINTS: Final = {
    **{word: key.hint for word, key in _other_tools(_OTHER_TASKS, "a task").items()},
    **{word: key.hint for word, key in TASK.items()},
}
"""The hints for keys that do not belong among the inputs of a task."""

TASK_SPEC: Final = {
    "retry": RejectedKey("a task has no `spec.retry`", f"write {_RETRY_POLICY}"),
    **{
        word: RejectedKey(f"a task has no `spec.{word}`", f"write {_RETRY_POLICY}", "unknown_key")
        for word in _RETRY_WORDS
    },
    "when": _TASK_WHEN,
    "rules": replace(_TASK_RULES, place=("policy", "rules")),
}

RULE: Final = {
    **{
        word: RejectedKey(f"`{word}` is not a keyword", "write { when: …, then: { … } }", place=("when",))
        for word in ("expr", "if")
    },
    **{
        word: RejectedKey(
            f"`{word}` belongs under `then`", f"write {{ when: …, then: {{ {word}: … }} }}", place=("then", word)
        )
        for word in ("allow", *_RULE_WORDS)
    },
}

POLICY: Final = {
    **_other_tools(
        {
            f"write {_RETRY_RULES}": (*("retry", "retries", "max_retries", "max_attempts", "attempts"),),
            "write rules: [ { when: \"{{ outcome.status == 'error' }}\", then: { do: fail } } ]": (
                *("on_failure", "on_error", "on_success", "catch", "ignore_errors", "continue_on_error"),
            ),
        },
        "a task's policy",
    ),
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
    "skip": RejectedKey("a rule has no `skip`", "write do: break, which ends the pipeline successfully"),
    "backoff_multiplier": RejectedKey(
        "a rule has no `backoff_multiplier`", "write backoff: exponential, which doubles the delay"
    ),
    "set": RejectedKey("`set` is not a keyword", "write set_ctx, set_iter or set_vars: { <key>: … }"),
    "set_prev": _SET_PREV,
    "fail": RejectedKey("`fail` is a value of `do`", "write then: { do: fail }"),
    "retry": RejectedKey("`retry` is a value of `do`", "write then: { do: retry, attempts: 3, backoff: exponential }"),
    "max_attempts": RejectedKey(
        "`max_attempts` is the old name of `attempts`", "write attempts: 3 for three runs in all", place=("attempts",)
    ),
    **_renamed(
        {
            "do": ("action",),
            "attempts": ("times", "tries", "max_tries", "retries", "max_retries", "count", "limit", "maximumAttempts"),
            "delay": ("wait", "sleep", "interval", "delay_s", "delay_seconds", "retry_delay", "initialInterval"),
            "max_delay": ("max_wait", "max_interval", "maximumInterval", "max_retry_delay"),
            "backoff": ("strategy", "policy", "type"),
            "to": ("target", "task", "goto"),
        },
        "`then`",
    ),
    "initial_delay": RejectedKey("`initial_delay` is the old name of `delay`", "write delay: 1", place=("delay",)),
}

SHARED: Final = {
    op: RejectedKey(f"`{op}` is an operation, not a key", f"write {{ op: {op}, value: … }}", "unknown_key")
    for op in get_args(SharedOperation)
}

BRANCH_EXAMPLE: Final = "{ when: …, then: [ … ] }"
ROUND_EXAMPLE: Final = "{ when: …, do: [ … ] }"

CONSTRUCT: Final = {
    "spec": RejectedKey("a construct has no `spec`", "put policies and timeouts on the tasks inside"),
    "when": RejectedKey(
        "`when` belongs inside the construct", f"write choose: [ {BRANCH_EXAMPLE} ], or while: {ROUND_EXAMPLE}"
    ),
    "then": RejectedKey("`then` belongs in a branch", f"write choose: [ {BRANCH_EXAMPLE} ]"),
    "else": RejectedKey(
        "`else` must be the last branch", f"write choose: [ {BRANCH_EXAMPLE}, {{ else: {{ then: [ … ] }} }} ]"
    ),
    "do": RejectedKey("`do` belongs inside `while` or `until`", f"write while: {ROUND_EXAMPLE}"),
}
BRANCH: Final = {
    "do": RejectedKey("a branch has no `do`", f"write {BRANCH_EXAMPLE}"),
    "expr": RULE["expr"],
    "if": RULE["if"],
}
ROUND: Final = {"then": RejectedKey("a `while` or `until` has no `then`", f"write {ROUND_EXAMPLE}")}

_AT_ONCE: Final = ("concurrency", "max_parallel", "max_concurrency", "maxConcurrency", "workers", "batch_size")
_OTHER_LOOPS: Final = {
    "beside `in` and `iterator`, write spec: { mode: parallel }": ("parallel", "concurrent", "async"),
    f"beside `in` and `iterator`, write spec: {{ mode: parallel, max_in_flight: {VALUE} }}": _AT_ONCE,
    "pages go by a rule of the task: then: { do: jump, to: <task> }": ("pagination", "paginate", "pages"),
    "a loop ends with its list; what goes on until a condition holds is `until` in the pipeline": ("while", "until"),
}
LOOP: Final = {
    **_other_tools(_OTHER_LOOPS, "`loop`"),
    **_renamed(
        {
            "iterator": ("as", "var", "variable", "item", "index_var", "loop_var", "iter"),
            "in": ("items", "list", "over", "each", "range", "foreach", "for_each", "forEach", "values", "with_items"),
        },
        "`loop`",
    ),
    "collection": RejectedKey("`collection` is the old name of `in`", 'write in: "{{ … }}"', place=("in",)),
    "element": RejectedKey("`element` is the old name of `iterator`", "write iterator: <name>", place=("iterator",)),
    **{
        word: _belongs(word, "under `spec`", f"loop: {{ in: …, iterator: …, spec: {{ {word}: {VALUE} }} }}", "spec")
        for word in ("mode", "max_in_flight", "exec", "policy")
    },
}

LOOP_SPEC: Final = {
    **_renamed({"max_in_flight": (*_AT_ONCE, "parallelism")}, "`loop.spec`"),
    "retry": _STEP_RETRY,
    "in": _belongs("in", "next to `spec`", "loop: { in: …, iterator: …, spec: { … } }"),
    "iterator": _belongs("iterator", "next to `spec`", "loop: { in: …, iterator: …, spec: { … } }"),
    "loop": _belongs("loop", "next to `spec`", "loop: { in: …, iterator: …, loop: { in: …, iterator: … } }"),
    "failure": _belongs("failure", "under `policy`", f"policy: {{ {_FAILURE} }}"),
}

_OTHER_ARCS: Final = {
    f"write when: {GUARD}": ("if", "condition", "on", "guard"),
    f"write when: with the opposite of {GUARD}": ("unless",),
}
ARC: Final = {
    **_other_tools(_OTHER_ARCS, "an arc"),
    **_renamed(
        {
            "step": ("to", "target", "name", "id", "next", "goto"),
            "args": ("inputs", "params", "parameters", "data", "vars", "input"),
        },
        "an arc",
    ),
    "then": RejectedKey("an arc has no `then`", f"write {_ARCS}"),
    "else": RejectedKey(
        "an arc has no `else`",
        f"write {{ step: {VALUE} }} as the last arc: without `when`, exclusive mode takes it if no other matches",
        place=("step",),
    ),
    "expr": RejectedKey("`expr` is not a keyword", "use `when`", place=("when",)),
    **{
        word: RejectedKey(f"an arc has no `{word}`", f"pass values as args: {_ARCS}", "control_outside_policy")
        for word in _WRITE_WORDS
    },
    "do": RejectedKey("an arc has no `do`", f"write {_ARCS}", "control_outside_policy"),
    "with": RejectedKey("an arc has no `with`", f"write args: {VALUE}", place=("args",)),
    **{
        word: _belongs(word, "under `spec`", f"{{ step: …, spec: {{ {word}: {VALUE} }} }}", "spec")
        for word in ("dedupe", "priority", "partition")
    },
}

NEXT: Final = {
    "mode": RejectedKey("`mode` belongs under `spec`", _EXCLUSIVE, place=("spec", "mode")),
    "step": RejectedKey("`step` belongs in an arc", f"write {_ARCS}"),
    "when": RejectedKey("`when` belongs in an arc", f"write {_ARCS}"),
    "wait": _belongs("wait", "under `spec`", "next: { spec: { wait: { timeout_s: 3600 } }, arcs: [ … ] }"),
}

PLUGINS: Final = {"files": "noetl-stream-files", "quantum": "noetl-stream-quantum"}
"""Tool kinds that a known plugin provides."""

EXECUTOR: Final = {
    word: _belongs(word, "under `spec`", f"executor: {{ spec: {{ {word}: {VALUE} }} }}", "spec")
    for word in ("pool", "priority", "entry_step", "result", "timeout", "timeout_s", "policy")
}
EXECUTOR_SPEC: Final = {
    "retry": _STEP_RETRY,
    **{
        word: _belongs(word, "under `policy`", f"executor: {{ spec: {{ policy: {{ {word}: {VALUE} }} }} }}", "policy")
        for word in ("failure", "results", "limits", "defaults")
    },
}
EXECUTOR_POLICY: Final = {
    "timeout_s": _belongs("timeout_s", "under `spec`", f"executor: {{ spec: {{ timeout_s: {VALUE} }} }}"),
    "lifecycle": RejectedKey(
        "`lifecycle` belongs to a step", "for the whole execution, write executor: { spec: { timeout_s: 600 } }"
    ),
}
_OTHER_SCHEDULES: Final = {
    "write missed: all, or last, or none: what becomes of occurrences that were due while no server ran": (
        *("catchup", "catch_up", "recoverMissedSchedules", "misfire_policy"),
    ),
    f"write window: {{ from: {VALUE} }}": ("start_date", "start", "startDate", "start_at", "from"),
    f"write window: {{ until: {VALUE} }}": ("end_date", "end", "endDate", "end_at", "until"),
    "write overlap: queue_all, or skip, queue_one, cancel, terminate, allow: what happens while an execution runs": (
        *("depends_on_past", "max_active_runs", "concurrencyPolicy", "concurrency", "allow_overlap"),
    ),
    "write cron: [ <value> ]": ("schedule", "schedule_interval", "cron_expression", "crontab", "expression"),
    "an alert is a trigger, a document of its own: spec: { on: { execution: { path: …, status: [ failed ] } }, "
    "notify: { webhook: { url: … } } }": ("on_failure", "notify", "email_on_failure", "alert", "email"),
}
SCHEDULE_SPEC: Final = {
    **_other_tools(_OTHER_SCHEDULES, "a schedule"),
    **_renamed(
        {
            "playbook": ("path", "workflow", "flow", "flowId", "pipeline", "job"),
            "timezone": ("tz", "timeZone", "time_zone", "zone"),
            "workload": ("inputs", "parameters", "params", "args", "arguments", "variables", "input"),
            "paused": ("suspend", "suspended", "disabled", "is_paused_upon_creation"),
            "every": ("interval", "period", "frequency"),
        },
        "a schedule",
    ),
}
EXECUTOR_FAILURE: Final = {
    "tolerated": RejectedKey(
        "`tolerated` counts iterations of a loop",
        "in the loop's step, write spec: { policy: { failure: { mode: best_effort, tolerated: 5% } } }",
    )
}

NEXT_HINT: Final = f"write {_ARCS}"
POLICY_HINT: Final = f"write {_RULES}"
LOOP_HINT: Final = 'loop: { in: "{{ workload.items }}", iterator: item }'
ELSE_HINT: Final = "write - else: { then: { … } }"
