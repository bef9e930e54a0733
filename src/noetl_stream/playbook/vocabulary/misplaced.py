"""Keys in the wrong place, each with the place where it belongs (LANGUAGE §1, §3 to §6)."""

from __future__ import annotations

from typing import Final

from noetl_stream.playbook.model.sections import RejectedKey
from noetl_stream.playbook.vocabulary import legacy

_ADMIT: Final = "admit: { rules: [ { when: …, then: { allow: true } } ] }"
_LIFECYCLE: Final = "lifecycle: { timeout_s: 600 }"
_FAILURE: Final = "failure: { mode: best_effort }"


def _belongs(word: str, place: str, shown: str) -> RejectedKey:
    return RejectedKey(f"`{word}` belongs {place}", f"write {shown}", "misplaced_key")


_POLICIES: Final = {
    word: _belongs(word, "under `spec.policy`", f"spec: {{ policy: {{ {shown} }} }}")
    for word, shown in (("admit", _ADMIT), ("lifecycle", _LIFECYCLE), ("failure", _FAILURE))
}
_TIMES: Final = {
    word: _belongs(word, "under `spec.policy.lifecycle`", f"spec: {{ policy: {{ lifecycle: {{ {word}: 600 }} }} }}")
    for word in ("timeout_s", "deadline_s")
}
_JOIN: Final = {"join": _belongs("join", "under `spec`", "spec: { join: all }")}

STEP: Final = {
    "policy": _belongs("policy", "under `spec`", "spec: { policy: { … } }"),
    "pool": _belongs("pool", "under `spec`", "spec: { pool: <pool> }"),
    "timeout": _belongs("timeout", "under `spec`", "spec: { timeout: 30 }"),
    **_JOIN,
    **_POLICIES,
    **_TIMES,
}
STEP_SPEC: Final = {**_POLICIES, **_TIMES}
STEP_POLICY: Final = {
    "wait": _belongs("wait", "under `admit`", "admit: { rules: [ … ], wait: { timeout_s: 3600 } }"),
    **_JOIN,
    **_TIMES,
}

LOOP: Final = {
    word: _belongs(word, "under `spec`", f"loop: {{ in: …, iterator: …, spec: {{ {word}: … }} }}")
    for word in ("mode", "max_in_flight", "exec", "policy")
}
LOOP_SPEC: Final = {
    "retry": legacy.STEP["retry"],
    "in": _belongs("in", "next to `spec`", "loop: { in: …, iterator: …, spec: { … } }"),
    "iterator": _belongs("iterator", "next to `spec`", "loop: { in: …, iterator: …, spec: { … } }"),
    "loop": _belongs("loop", "next to `spec`", "loop: { in: …, iterator: …, loop: { in: …, iterator: … } }"),
    "failure": _belongs("failure", "under `policy`", f"spec: {{ policy: {{ {_FAILURE} }} }}"),
}

EXECUTOR: Final = {
    word: _belongs(word, "under `spec`", f"executor: {{ spec: {{ {word}: … }} }}")
    for word in ("pool", "entry_step", "result", "timeout", "timeout_s", "policy")
}
EXECUTOR_SPEC: Final = {"retry": legacy.STEP["retry"]} | {
    word: _belongs(word, "under `policy`", f"executor: {{ spec: {{ policy: {{ {word}: … }} }} }}")
    for word in ("failure", "results", "limits", "defaults")
}
EXECUTOR_POLICY: Final = {
    "timeout_s": _belongs("timeout_s", "under `spec`", "executor: { spec: { timeout_s: 600 } }"),
    "lifecycle": RejectedKey(
        "`lifecycle` belongs to a step", "for the whole execution, write executor: { spec: { timeout_s: 600 } }"
    ),
}
