"""Random, always valid playbooks over the whole language: joins, admission that waits, branches that rest, nested
loops, reducers, suspensions, calls, timeouts, failure arcs, cycles.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

MAX_STEPS = 8
KEYS = ("k0", "k1", "k2")
DEEP: dict[str, Any] = {
    "deep": [[[1, 2], []], [[3]], []],
    "pairs": {"a": [[1], [2, 3]], "b": []},
    "broken": [[[1], [2]], 7, [[3, 4], 8]],
}


def random_language(random: Random, *, confluent: bool = False) -> str:
    """The text of a playbook (JSON, which is YAML). The same random source gives the same text.

    Args:
        confluent: Whether only work, not the order of answers, may change how it ends.
    """
    return json.dumps(PlaybookWriter(random, confluent).document())


class PlaybookWriter:
    """Writes one playbook. Subclasses say which tools its tasks have, and add to it."""

    PATH = "tests/random"
    CALLED: Sequence[str] = ("tests/other",)
    """Playbooks that tasks call."""

    # Seconds, of which one is drawn.
    WAITS_S: Sequence[float] = (0, 1, 10, 40)
    SIGNALS_S: Sequence[float] = (30,)
    RESTS_S: Sequence[float] = (2, 40)
    DELAYS_S: Sequence[float] = (0, 3, 20)
    STEPS_S: Sequence[float] = (3, 30, 300)
    EXECUTIONS_S: Sequence[float] = (20, 500)
    CALLS_S: Sequence[float] = (2, 60)

    def __init__(self, random: Random, confluent: bool) -> None:
        self.random = random
        self.confluent = confluent
        self.names = [f"s{index}" for index in range(random.randint(3, MAX_STEPS - 2 * confluent))]

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def document(self) -> dict[str, Any]:
        limits: dict[str, Any] = {"max_task_runs": 25, "cancel_grace_s": 20}
        limits["max_step_runs"] = 1000 if self.confluent else 15
        if self.chance(0.4):
            limits["max_inline_bytes"] = 60
        spec: dict[str, Any] = {"policy": {"limits": limits}}
        if self.confluent or self.chance(0.4):
            spec["policy"]["failure"] = {"mode": "best_effort"}
        if self.chance(0.2) and "max_inline_bytes" not in limits:
            spec["result"] = self.random.choice(["{{ ctx }}", "{{ s0 }}", {"last": f"{{{{ {self.names[-1]} }}}}"}])
        if not self.confluent and self.chance(0.1):
            spec["timeout_s"] = self.random.choice(self.EXECUTIONS_S)
        return {
            "apiVersion": "noetl.io/v2",
            "kind": "Playbook",
            "metadata": {"name": "random", "path": self.PATH},
            "executor": {"spec": spec},
            "workload": {"few": [1, 2], "none": [], "flag": self.chance(0.5), **DEEP},
            "workflow": [self.step(index) for index in range(len(self.names))],
        }

    def step(self, index: int) -> dict[str, Any]:
        step: dict[str, Any] = {"step": self.names[index]}
        is_last = index + 1 == len(self.names)
        arcs = self.random.choice([0, 0, 1] if is_last else [2, 3] if index == 0 else [0, 1, 2, 2, 3])
        if self.confluent:
            arcs = 0 if is_last else min(arcs, 2)
        spec, policy = {}, self.policy(index)
        if index and self.chance(0.35):
            spec["join"] = "all" if self.confluent else self.random.choice(["all", "all", "any", 1, 2, 3])
        if policy:
            spec["policy"] = policy
        if spec:
            step["spec"] = spec
        routes_only = arcs > 0 and self.chance(0.15)
        levels = [] if routes_only or self.chance(0.6) else self.levels()
        if levels:
            step["loop"] = _nest(levels)
        if not routes_only:
            parallel = any(level["spec"]["mode"] == "parallel" for level in levels)
            count = self.random.choice([1, 1, 2])
            step["tool"] = [self.task(index, number, bool(levels), parallel) for number in range(count)]
        if arcs:
            mode = self.random.choice(["exclusive", "inclusive", "inclusive"]) if index else "inclusive"
            rests = self.chance(0.3)
            written = [self.arc(index, bool(levels), rests) for _ in range(arcs)]
            step["next"] = {"spec": {"mode": mode}, "arcs": written}
            if rests:
                step["next"]["spec"]["wait"] = self.wait()
        return step

    def policy(self, index: int) -> dict[str, Any]:
        policy: dict[str, Any] = {}
        if index and self.chance(0.3):
            policy["admit"] = self.admission(index)
        if not self.confluent and self.chance(0.15):
            name = self.random.choice(["timeout_s", "deadline_s"])
            policy["lifecycle"] = {name: self.random.choice(self.STEPS_S)}
        if not self.confluent and self.chance(0.15):
            policy["failure"] = {"mode": self.random.choice(["fail_fast", "best_effort"])}
        return policy

    def wait(self) -> dict[str, Any]:
        return {"timeout_s": self.random.choice(self.RESTS_S), "on_timeout": self.random.choice(["fail", "discard"])}

    def admission(self, index: int) -> dict[str, Any]:
        guards = ["{{ token.cause == 'arc' }}", "{{ workload.flag }}"]
        waits = self.chance(0.4)
        if not self.confluent:
            key = self.random.choice(KEYS)
            guards += [f"{{{{ ctx.{key} > 0 }}}}", f"{{{{ not ctx.{key} }}}}"] if waits else []
            guards += [f"{{{{ ctx.{key} | default(0) > 0 }}}}", f"{{{{ ctx.{key} is defined }}}}"]
            if index:
                guards.append(f"{{{{ s{index - 1} is not none }}}}")
            if self.chance(0.03):
                guards = ["{{ ctx.never + 1 > 0 }}"]
        rules: list[dict[str, Any]] = [{"when": self.random.choice(guards), "then": {"allow": self.chance(0.85)}}]
        if self.chance(0.4):
            rules.append({"else": {"then": {"allow": self.chance(0.6)}}})
        admit: dict[str, Any] = {"rules": rules}
        if waits:
            admit["wait"] = self.wait()
        return admit

    # --- loops --------------------------------------------------------------------------------------------------------

    def levels(self) -> list[dict[str, Any]]:
        depth = self.random.choice([1, 1, 2, 2, 3])
        source = self.random.choice(["deep", "deep", "pairs", "none", "broken"])
        items, local = f"workload.{source}", False
        if source != "pairs" and self.chance(0.5):
            items += "[:]"  # an equal list, but not the one that the journal has
        levels = []
        for iterator in "abc"[:depth]:
            mode, place = self.random.choice(["sequential", "parallel"]), self.random.choice(["local", "distributed"])
            local = local or place == "local"
            spec: dict[str, Any] = {"mode": mode, "exec": "local" if local else "distributed"}
            if mode == "parallel":
                spec["max_in_flight"] = self.random.choice([1, 2, 3, "{{ workload.few | length }}"])
            if self.confluent or self.chance(0.5):
                failure = "best_effort" if self.confluent else self.random.choice(["fail_fast", "best_effort"])
                spec["policy"] = {"failure": {"mode": failure}}
                if failure == "best_effort" and self.chance(0.3):
                    spec["policy"]["failure"]["tolerated"] = self.random.choice([0, 1, "50%", "100%"])
            levels.append({"in": f"{{{{ {items} }}}}", "iterator": iterator, "spec": spec})
            items = f"{iterator}.value" if source == "pairs" and iterator == "a" else iterator
        return levels

    # --- tasks --------------------------------------------------------------------------------------------------------

    def task(self, index: int, number: int, loops: bool, parallel: bool) -> dict[str, Any]:
        task: dict[str, Any] = {"name": f"t{number}"} | self.tool()
        rules: list[dict[str, Any]] = []
        if self.chance(0.4):
            delay = self.random.choice(self.DELAYS_S)
            rules.append(
                {"when": "{{ outcome.status == 'error' }}", "then": {"do": "retry", "attempts": 2, "delay": delay}}
            )
        if self.chance(0.15):
            then = {"do": "jump", "to": "t0", "set_iter": {"jumped": True}}
            rules.append({"when": "{{ not (iter.jumped | default(false)) }}", "then": then})
        if self.chance(0.6):
            rules.append({"when": "{{ outcome.status == 'ok' }}", "then": self.good_ending(index, loops, parallel)})
        if self.chance(0.2):
            rules.append(
                {"when": "{{ outcome.status == 'error' }}", "then": {"do": self.random.choice(["break", "continue"])}}
            )
        spec: dict[str, Any] = {}
        if rules:
            spec["policy"] = {"on_unmatched": self.random.choice(["continue", "fail"]), "rules": rules}
        if task["kind"] == "playbook" and not self.confluent and self.chance(0.5):
            spec["timeout"] = self.random.choice(self.CALLS_S)
        if spec:
            task["spec"] = spec
        return task

    def tool(self) -> dict[str, Any]:
        chance = self.random.random()
        if chance < 0.65:
            return self.work()
        if chance < 0.75:
            return {"kind": "wait", "for_s": self.random.choice(self.WAITS_S)}
        if chance < 0.87:
            return {
                "kind": "wait",
                "signal": self.random.choice(["go", "stop"]),
                "timeout_s": self.random.choice(self.SIGNALS_S),
            }
        return {"kind": "playbook", "path": self.random.choice(self.CALLED), "args": {"task": "{{ _task }}"}}

    def work(self) -> dict[str, Any]:
        return {"kind": "noop", "args": {"task": "{{ _task }}", "attempt": "{{ _attempt }}"}}

    def good_ending(self, index: int, loops: bool, parallel: bool) -> dict[str, Any]:
        then: dict[str, Any] = {"do": self.random.choice(["continue", "continue", "break"])}
        if not parallel and not self.confluent and self.chance(0.7):
            key = self.random.choice(KEYS)
            then["set_ctx"] = {key: f"{{{{ (ctx.{key} | default(0)) + 1 }}}}"}
            then["set_vars"] = {"seen": "{{ (vars.seen | default(0)) + 1 }}"}
        if self.chance(0.5):
            then["set_shared"] = self.shared(index, loops)
        return then

    def shared(self, index: int, loops: bool) -> dict[str, Any]:
        """Each key has one operation, so that no wrong type ends it; those of one step alone may keep an order."""
        at = "{{ iter.index }}" if loops else "x"
        every: dict[str, Any] = {
            "sum": {"op": "add", "value": 1},
            "times": {"op": "count"},
            "most": {"op": "max", "value": "{{ iter.index }}" if loops else 5},
            f"list{index}": {"op": "append", "value": at},
            f"found{index}": {"op": "union", "value": [at]},
            "steps": {"op": "merge", "value": {self.names[index]: 1}},
        }
        wanted = self.random.sample(sorted(every), 2)
        return {key: every[key] for key in wanted if not self.confluent or key != "steps"} or {"times": every["times"]}

    # --- routing ------------------------------------------------------------------------------------------------------

    def arc(self, index: int, loops: bool, rests: bool) -> dict[str, Any]:
        back = not self.confluent and (index + 1 == len(self.names) or self.chance(0.15))
        later = self.names[index + 1 :]
        arc: dict[str, Any] = {"step": self.names[self.random.randint(0, index)] if back else self.random.choice(later)}
        done = "loop.done" if loops else "step.done"
        guards = [
            None,
            None,
            f"{{{{ event.name == '{done}' }}}}",
            "{{ event.name == 'step.failed' }}",
            f"{{{{ event.name in ['{done}', 'step.failed'] }}}}",
            "{{ event.error is not none }}",
            "{{ event.result is not none }}",
            "{{ event.result is not none and event.result | length != 1 }}"
            if loops
            else "{{ event.result is mapping }}",
        ]
        key = self.random.choice(KEYS)
        if not self.confluent:
            guards += [f"{{{{ ctx.{key} | default(0) > 0 }}}}", "{{ vars.seen | default(0) > 0 }}"]
        if rests:
            guards += ["{{ event.name == 'next.timed_out' }}", "{{ event.name != 'step.failed' and workload.flag }}"]
            guards += [] if self.confluent else [f"{{{{ ctx.{key} > 0 }}}}", f"{{{{ not ctx.{key} }}}}"] * 2
        guard = self.random.choice(guards)
        if not self.confluent and self.chance(0.02):
            guard = "{{ ctx.never + 1 > 0 }}"
        if back:
            guard = f"{{{{ ctx.{key} | default(0) in [1, 2] }}}}"
        if guard is not None:
            arc["when"] = guard
        if self.chance(0.5):
            arc["args"] = {"came_from": self.names[index], "result": "{{ event.result }}"}
        return arc | self.arc_spec(arc)

    def arc_spec(self, arc: dict[str, Any]) -> dict[str, Any]:
        """What an arc does beyond its guard, drawn by itself: stories that failed once stay what they were."""
        random = Random(json.dumps(arc))
        key = random.choice(["one", "{{ event.name }}", "{{ execution_id }}"])
        spec: dict[str, Any] = {"partition": key, "priority": random.choice([0, 9])}
        if not self.confluent:  # which of the tokens is the first depends on the order
            spec["dedupe"] = key
        chosen = {name: value for name, value in spec.items() if random.random() < 0.5}
        return {"spec": chosen} if chosen and random.random() < 0.2 else {}


def _nest(levels: list[dict[str, Any]]) -> dict[str, Any]:
    first, *inner = levels
    return {**first, "loop": _nest(inner)} if inner else first


def with_undoing(document: dict[str, Any], random: Random, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The playbook with compensations and ``finally``, drawn apart: without them it is what its seed has always given.

    Args:
        work: Makes the task that undoes a run, and the one of ``finally``.
    """
    policy = document["executor"]["spec"]["policy"]
    if random.random() < 0.4:
        document["executor"]["spec"]["result"] = "{{ ctx.never + 1 }}"  # it fails once everything is done
    for step in (one for one in document["workflow"] if "tool" in one and random.random() < 0.8):
        tool: Any = work()
        if random.random() < 0.2:
            tool = [{"name": "before", "kind": "wait", "for_s": 2}, {"name": "undo", **tool}]
        step.setdefault("spec", {}).setdefault("policy", {})["compensation"] = {"tool": tool}
    if random.random() < 0.5:
        ends = ["failed", "cancelled", "timeout"]
        on = ends if random.random() < 0.6 else random.sample(ends, random.randint(0, 2))
        policy["compensation"] = {"on": on, "timeout_s": random.choice([3, 4000, 4000])}
    if random.random() < 0.6:
        policy["finally"] = "last"
        document["workflow"].append({"step": "last", "tool": work()})
    return document
