"""Small random playbooks that always check: chains, branches that may rest, loops, failure arcs, held tokens, retries,
jumps."""

from __future__ import annotations

import json
from random import Random
from typing import Any

MAX_STEPS = 6
MAX_STEP_RUNS = 12
KEYS = ("k0", "k1", "k2")


def random_playbook(random: Random) -> str:
    """The text of a playbook (JSON, which is YAML). The same random source gives the same text."""
    names = [f"s{index}" for index in range(random.randint(2, MAX_STEPS))]
    spec: dict[str, Any] = {"policy": {"limits": {"max_step_runs": MAX_STEP_RUNS}}}
    if random.random() < 0.4:
        spec["policy"]["failure"] = {"mode": "best_effort"}
    if random.random() < 0.2:
        quotas = {"step_runs": random.randint(1, MAX_STEP_RUNS), "task_runs": random.randint(1, MAX_STEP_RUNS)}
        spec["policy"]["quotas"] = {**quotas, "on_exceeded": random.choice(["fail", "warn"])}
    if random.random() < 0.2:
        spec["result"] = random.choice(["{{ ctx }}", "{{ s0 }}", {"last": f"{{{{ {names[-1]} }}}}"}])
    document = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "random", "path": "tests/random"},
        "executor": {"spec": spec},
        "workload": {"few": [1, 2], "more": [1, 2, 3, 4], "none": [], "pairs": {"a": 1, "b": 2}},
        "workflow": [_step(random, index, names) for index in range(len(names))],
    }
    return json.dumps(document)


def _step(random: Random, index: int, names: list[str]) -> dict[str, Any]:
    arcs_wanted = random.choice([0, 1, 2, 2, 3, 3]) if index + 1 < len(names) else random.choice([0, 0, 0, 1])
    routes_only = arcs_wanted > 0 and random.random() < 0.2
    step: dict[str, Any] = {"step": names[index]}
    loop = None if routes_only or random.random() < 0.55 else _loop(random)
    if random.random() < 0.3:
        step["spec"] = {"policy": {"admit": {"rules": _admission(random, index)}}}
        if random.random() < 0.3:
            step["spec"]["policy"]["admit"]["mode"] = "inclusive"
    if loop is not None:
        step["loop"] = loop
    if not routes_only:
        parallel = loop is not None and loop["spec"]["mode"] == "parallel"
        step["tool"] = [_task(random, number, parallel) for number in range(random.choice([1, 1, 2]))]
    if arcs_wanted:
        mode = random.choice(["exclusive", "inclusive", "inclusive"])
        arcs = [_arc(random, index, names, loop is not None) for _ in range(arcs_wanted)]
        step["next"] = {"spec": {"mode": mode}, "arcs": arcs}
        if random.random() < 0.2:
            step["next"]["spec"]["wait"] = {"timeout_s": 5, "on_timeout": random.choice(["fail", "discard"])}
    return step


def _loop(random: Random) -> dict[str, Any]:
    mode, place = random.choice(["sequential", "parallel"]), random.choice(["local", "distributed"])
    spec: dict[str, Any] = {"mode": mode, "exec": place}
    if mode == "parallel":
        spec["max_in_flight"] = random.choice([1, 2, 3, "{{ workload.few | length }}"])
    if random.random() < 0.5:
        spec["policy"] = {"failure": {"mode": random.choice(["fail_fast", "best_effort"])}}
        if spec["policy"]["failure"]["mode"] == "best_effort" and random.random() < 0.3:
            spec["policy"]["failure"]["tolerated"] = random.choice([0, 1, "50%"])
    items = random.choice(["few", "more", "more", "pairs", "none", "more[:]"] if random.random() < 0.95 else ["few[0]"])
    return {"in": f"{{{{ workload.{items} }}}}", "iterator": "item", "spec": spec}


def _admission(random: Random, index: int) -> list[dict[str, Any]]:
    key = random.choice(KEYS)
    guards = ["{{ token.cause == 'start' }}"]
    guards += [f"{{{{ ctx.{key} | default(0) > 0 }}}}", f"{{{{ ctx.{key} is defined }}}}"]
    if index > 0:
        guards.append(f"{{{{ s{index - 1} is not none }}}}")
    if random.random() < 0.05:
        guards = ["{{ ctx.never + 1 > 0 }}"]
    rules: list[dict[str, Any]] = [{"when": random.choice(guards), "then": {"allow": random.random() < 0.85}}]
    if random.random() < 0.4:
        rules.append({"else": {"then": {"allow": random.random() < 0.5}}})
    for rule in rules:
        then = rule["then"] if "then" in rule else rule["else"]["then"]
        if then["allow"] and random.random() < 0.3:
            then["token"] = {key: "{{ token.cause }}"}
    return rules


def _task(random: Random, number: int, parallel: bool) -> dict[str, Any]:
    task: dict[str, Any] = {"name": f"t{number}", "kind": "noop", "args": {"task": "{{ _task }}"}}
    rules: list[dict[str, Any]] = []
    if random.random() < 0.4:
        rules.append({"when": "{{ outcome.status == 'error' }}", "then": {"do": "retry", "attempts": 2}})
    if random.random() < 0.2:
        then = {"do": "jump", "to": "t0", "set_iter": {"jumped": True}}
        rules.append({"when": "{{ not (iter.jumped | default(false)) }}", "then": then})
    if random.random() < 0.5:
        rules.append({"when": "{{ outcome.status == 'ok' }}", "then": _good_ending(random, parallel)})
    if random.random() < 0.2:
        rules.append({"when": "{{ outcome.status == 'error' }}", "then": {"do": random.choice(["break", "continue"])}})
    if rules:
        task["spec"] = {"policy": {"on_unmatched": random.choice(["continue", "fail"]), "rules": rules}}
    return task


def _good_ending(random: Random, parallel: bool) -> dict[str, Any]:
    then: dict[str, Any] = {"do": random.choice(["continue", "continue", "break"])}
    if not parallel:
        key = random.choice(KEYS)
        then["set_ctx"] = {key: f"{{{{ (ctx.{key} | default(0)) + 1 }}}}"}
        then["set_vars"] = {"seen": "{{ (vars.seen | default(0)) + 1 }}"}
    return then


def _arc(random: Random, index: int, names: list[str], loops: bool) -> dict[str, Any]:
    back = index + 1 == len(names) or random.random() < 0.1
    arc: dict[str, Any] = {"step": names[random.randint(0, index)] if back else random.choice(names[index + 1 :])}
    done = "loop.done" if loops else "step.done"
    key = random.choice(KEYS)
    guards = [
        None,
        None,
        f"{{{{ event.name == '{done}' }}}}",
        "{{ event.name == 'step.failed' }}",
        f"{{{{ event.name in ['{done}', 'step.failed'] }}}}",
        "{{ event.error is not none }}",
        f"{{{{ ctx.{key} | default(0) > 0 }}}}",
        "{{ vars.seen | default(0) > 0 }}",
    ]
    guard = random.choice(guards) if random.random() < 0.97 else "{{ ctx.never + 1 > 0 }}"
    if back:
        guard = f"{{{{ ctx.{key} | default(0) in [1, 2] }}}}"
    if guard is not None:
        arc["when"] = guard
    if random.random() < 0.5:
        arc["args"] = {"came_from": names[index], "result": "{{ event.result }}"}
    spec = {
        "dedupe": random.choice(["once", f"{{{{ ctx.{key} | default(0) }}}}"]),
        "partition": random.choice(["one", f"{{{{ ctx.{key} | default(0) }}}}"]),
        "priority": random.choice([0, 9]),
    }
    if random.random() < 0.2:
        arc["spec"] = {name: spec[name] for name in spec if random.random() < 0.5}
    return arc
