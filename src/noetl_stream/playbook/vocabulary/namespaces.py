"""The content of each namespace of templates, in a few words, for editors (LANGUAGE §2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NAMESPACE_WORDS: Final[Mapping[str, str]] = {
    "workload": "What the execution was started with, over the defaults of the playbook.",
    "ctx": "The state of the execution, which `set_ctx` and `set_shared` change.",
    "vars": "The state of this run of the step, which `set_vars` changes.",
    "iter": "The state of this iteration: the loop's item, `index`, `count`, and what `set_iter` sets.",
    "args": "What the arc into this step passes.",
    "keychain": "Secrets, by entry; in tool inputs only.",
    "execution_id": "The id of the execution.",
    "steps": "Results of steps.",
    "results": "Results of the tasks of this pipeline.",
    "_prev": "The result of the task before.",
    "_task": "The name of this task.",
    "_attempt": "Which attempt of the task this is, from 1.",
    "outcome": "How the task ended; in its policy only.",
    "event": "How the step ended; in its arcs only.",
    "token": "The token that asks to enter; in admission rules only.",
}
