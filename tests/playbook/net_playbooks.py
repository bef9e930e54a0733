"""Playbooks for tests of what `check` proves, a line a step."""

from __future__ import annotations

from playbook_building import checked, workflow

from noetl_stream.playbook.diagnostics import Diagnostic, path_text

PROVED = {
    *("admission_never_opens", "competing_writes", "endless_cycle", "join_never_fires"),
    *("not_explored", "tokens_pile_up", "unreachable_step"),
}


def findings(*lines: str) -> list[Diagnostic]:
    """What is proved of steps written one a line: ``NAME [join=N] [sets=KEY] [allow=GUARD] > TARGET[:GUARD] …``.

    ``>>`` makes the router inclusive. A guard is written without braces and spaces; ``~`` stands for a space.
    """
    return [one for one in checked(playbook_of(*lines), proves=True).diagnostics if one.code in PROVED]


def playbook_of(*lines: str) -> str:
    return workflow("\n".join(map(_step, lines)))


def _step(line: str) -> str:
    head, _, targets = line.replace(">>", ">").partition(">")
    name, *options = head.split()
    given = dict(option.split("=", 1) for option in options)
    text = [f"- step: {name}"]
    spec = [f"join: {given['join']}"] if "join" in given else []
    if "allow" in given:
        wait = ", wait: { timeout_s: 60 }" if "wait" in given else ""
        spec.append(
            f"policy: {{ admit: {{ rules: [ {{ when: {_guard(given['allow'])}, then: {{ allow: true }} }} ]{wait} }} }}"
        )
    if spec:
        text.append(f"  spec: {{ {', '.join(spec)} }}")
    if "routes" not in given:
        sets = f", set_ctx: {{ {given['sets']}: 1 }}" if "sets" in given else ""
        rule = f"{{ else: {{ then: {{ do: continue{sets} }} }} }}"
        text.append(f"  tool: {{ kind: noop, spec: {{ policy: {{ rules: [ {rule} ] }} }} }}")
    arcs = [arc.partition(":") for arc in targets.split()]
    written = [f"{{ step: {to}{f', when: {_guard(when)}' if when else ''} }}" for to, _, when in arcs]
    rests = f", wait: {{ timeout_s: 60, on_timeout: {given['rests']} }}" if "rests" in given else ""
    mode = "inclusive" if ">>" in line else "exclusive"
    text.append(f"  next: {{ spec: {{ mode: {mode}{rests} }}, arcs: [ {', '.join(written)} ] }}")
    return "\n".join(text)


def _guard(text: str) -> str:
    return f'"{{{{ {text.replace("~", " ")} }}}}"'


def shown(*lines: str) -> list[tuple[str, str]]:
    """The code and the path of each finding."""
    return [(one.code, path_text(one.path)) for one in findings(*lines)]
