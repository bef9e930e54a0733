"""Documents of the catalog with one thing so many times."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

Parts = dict[str, Any]

HEAD: Final[Parts] = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "grown", "path": "a/grown"}}
GROWN: Final[dict[str, Callable[[int], str]]] = {}
"""The document by the name of what grows in it, and how many of it there are."""


def grown(make: Callable[[int], str]) -> Callable[[int], str]:
    GROWN[make.__name__] = make
    return make


def document(**keys: Any) -> str:
    return json.dumps(HEAD | keys)


def step(name: str, *arcs: str | Parts, mode: str | None = None, **keys: Any) -> Parts:
    found: Parts = {"step": name, "tool": {"kind": "noop"}} | keys
    if arcs:
        found["next"] = {"arcs": [{"step": arc} if isinstance(arc, str) else arc for arc in arcs]}
    if mode:
        found["next"]["spec"] = {"mode": mode}
    return found


def chain(count: int, make: Callable[[int], Parts], guard: str | None = None) -> list[Parts]:
    """Steps one after the other; the keys of each from ``make``."""
    when = (lambda n: {"when": guard.replace("N", str(n))}) if guard else (lambda n: {})
    steps = [step(f"s{n}", {"step": f"s{n + 1}"} | when(n), **make(n)) for n in range(count)]
    return [*steps, step(f"s{count}")]


def task(name: str, **keys: Any) -> Parts:
    return {"name": name, "kind": "noop"} | keys


def policy(*rules: Parts) -> Parts:
    return {"policy": {"rules": list(rules)}}


def setting(**keys: Any) -> Parts:
    """A task that sets these keys of ``ctx``."""
    return {"kind": "noop", "spec": policy({"else": {"then": {"do": "continue", "set_ctx": keys}}})}


def only(tool: Any, **keys: Any) -> str:
    """A playbook with one step."""
    return document(workflow=[step("start", tool=tool)], **keys)


def keyed(count: int, value: Callable[[int], Any] = lambda n: n) -> Parts:
    return {f"k{n}": value(n) for n in range(count)}


def guarded(count: int, mode: str) -> str:
    arcs = [{"step": f"t{n}", "when": f"{{{{ event.result.v == {n} }}}}"} for n in range(count)]
    return document(workflow=[step("start", *arcs, mode=mode), *(step(f"t{n}") for n in range(count))])


@grown
def arcs_to_one_step(count: int) -> str:
    arcs = [{"step": "end", "when": f"{{{{ event.result.v == {n} }}}}", "args": {"i": n}} for n in range(count)]
    return document(workflow=[step("start", *arcs), step("end")])


@grown
def exclusive_arcs(count: int) -> str:
    return guarded(count, "exclusive")


@grown
def inclusive_arcs(count: int) -> str:
    return guarded(count, "inclusive")


@grown
def arcs_that_fire_with_others(count: int) -> str:
    arcs: list[Parts] = [{"step": f"t{n}"} | ({"when": "{{ ctx.a }}"} if n % 2 else {}) for n in range(count)]
    return document(workflow=[step("start", *arcs, mode="inclusive"), *(step(f"t{n}") for n in range(count))])


@grown
def arcs_that_wait(count: int) -> str:
    arcs = [{"step": "end", "when": f"{{{{ ctx.v == {n} }}}}"} for n in range(count)]
    start = step("start", *arcs)
    start["next"]["spec"] = {"mode": "exclusive", "wait": {"timeout_s": 5}}
    return document(workflow=[start, step("end")])


@grown
def args_of_an_arc(count: int) -> str:
    read = {"kind": "noop", "args": keyed(count, lambda n: f"{{{{ k{n} }}}}")}
    return document(workflow=[step("start", {"step": "end", "args": keyed(count)}), step("end", tool=read)])


@grown
def names_bound_twice(count: int) -> str:
    read = {"kind": "noop", "args": keyed(count, lambda n: f"{{{{ k{n} }}}}")}
    steps = [step("start", {"step": "end", "args": keyed(count)}), step("end", tool=read)]
    return document(workload=keyed(count), workflow=steps)


@grown
def steps_in_a_row(count: int) -> str:
    return document(workflow=chain(count, lambda n: {}))


@grown
def steps_in_a_cycle(count: int) -> str:
    return document(workflow=[step(f"s{n}", f"s{(n + 1) % count}") for n in range(count)])


@grown
def cycles(count: int) -> str:
    arcs = [("{{ ctx.x | default(false) }}", 1), ("{{ ctx.x is defined }}", -1)]
    steps = [step(f"s{n}", *({"step": f"s{max(n + by, 0)}", "when": when} for when, by in arcs)) for n in range(count)]
    return document(workflow=[*steps, step(f"s{count}")])


@grown
def steps_that_need_what_the_last_one_set(count: int) -> str:
    made = chain(count, lambda n: {"tool": setting(**{f"k{n}": 1})}, "{{ ctx.kN | default(false) }}")
    return document(workflow=made)


@grown
def steps_that_set_one_key(count: int) -> str:
    steps = [step(f"s{n}", tool=setting(k=n)) for n in range(count)]
    return document(workflow=[step("start", *(f"s{n}" for n in range(count)), mode="inclusive"), *steps])


@grown
def steps_in_a_row_that_set_one_key_in_two_branches(count: int) -> str:
    steps = [step(f"{b}{n}", f"{b}{n + 1}", tool=setting(k=n)) for b in "ab" for n in range(count // 2)]
    ends = [step(f"{b}{count // 2}") for b in "ab"]
    return document(workflow=[step("start", "a0", "b0", mode="inclusive"), *steps, *ends])


@grown
def steps_that_no_arc_leads_to(count: int) -> str:
    return document(workflow=[step("start"), *(step(f"s{n}") for n in range(count))])


@grown
def steps_that_no_run_reaches(count: int) -> str:
    return document(workflow=[step("start", {"step": "s0", "when": False}), *chain(count, lambda n: {})])


@grown
def branches_that_join(count: int) -> str:
    branches = [step(f"s{n}", "end") for n in range(count)]
    end = step("end", spec={"join": "all"})
    return document(workflow=[step("start", *(f"s{n}" for n in range(count)), mode="inclusive"), *branches, end])


@grown
def joins(count: int) -> str:
    joined = [step(f"j{n}", f"j{n + 1}", spec={"join": "all"}) for n in range(min(count, 99))]
    rest = [step(f"j{len(joined)}", "r0"), *(step(f"r{n}", f"r{n + 1}") for n in range(count)), step(f"r{count}")]
    return document(workflow=[*joined, *rest])


@grown
def steps_that_ask_who_sent_a_token(count: int) -> str:
    admit = {"admit": {"rules": [{"when": "{{ token.from_step == 's1' }}", "then": {"allow": True}}] * 5}}
    branches = [step(f"s{n}", "end") for n in range(count)]
    steps = [step("start", *(f"s{n}" for n in range(count)), mode="inclusive"), *branches]
    return document(workflow=[*steps, step("end", spec={"policy": admit})])


@grown
def admission_rules(count: int) -> str:
    rules = [{"when": f"{{{{ args.x == {n} }}}}", "then": {"allow": True}} for n in range(count)]
    return document(workflow=[step("start", "end"), step("end", spec={"policy": {"admit": {"rules": rules}}})])


@grown
def loops(count: int) -> str:
    return document(workflow=chain(count, lambda n: {"loop": {"in": "{{ [1] }}", "iterator": "x"}}))


@grown
def reads_of_results(count: int) -> str:
    read = [{"kind": "noop", "args": {"v": f"{{{{ steps.s{max(n - 1, 0)} }}}}"}} for n in range(count)]
    return document(workflow=chain(count, lambda n: {"tool": read[n]}))


@grown
def keys_of_ctx_that_nothing_sets(count: int) -> str:
    read = [{"kind": "noop", "args": {"v": f"{{{{ ctx.kez{n} }}}}"}} for n in range(count)]
    return document(workflow=chain(count, lambda n: {"tool": read[n]}))


@grown
def keys_of_ctx_that_are_misspelt(count: int) -> str:
    tools = [setting(keyword=1) | {"args": {"v": f"{{{{ ctx.kezword{n} }}}}"}} for n in range(count)]
    return document(workflow=chain(count, lambda n: {"tool": tools[n]}))


@grown
def keys_of_ctx(count: int) -> str:
    tools = [setting(**{f"k{n}": 1}) | {"args": {"v": f"{{{{ k{n} }}}}"}} for n in range(count)]
    return document(workflow=chain(count, lambda n: {"tool": tools[n]}))


@grown
def tasks(count: int) -> str:
    return only([task(f"t{n}", args={"v": "{{ _prev }}"}) for n in range(count)])


@grown
def tasks_that_jump(count: int) -> str:
    def rules(n: int) -> Parts:
        failed = {"when": "{{ outcome.status == 'error' }}", "then": {"do": "jump", "to": f"t{max(0, n - 1)}"}}
        return policy(failed, {"else": {"then": {"do": "continue"}}})

    return only([task(f"t{n}", spec=rules(n)) for n in range(count)])


@grown
def tasks_that_read_tasks(count: int) -> str:
    return only([task(f"t{n}", args={"v": f"{{{{ t{max(n - 1, 0)} }}}}"}) for n in range(count)])


@grown
def rules(count: int) -> str:
    made = [{"when": f"{{{{ outcome.result == {n} }}}}", "then": {"do": "continue"}} for n in range(count)]
    return only({"kind": "noop", "spec": policy(*made, {"else": {"then": {"do": "fail"}}})})


@grown
def keys_set_by_a_rule(count: int) -> str:
    return only(setting(**keyed(count)))


@grown
def keys_shared_by_a_rule(count: int) -> str:
    shared = keyed(count, lambda n: {"op": "append", "value": n})
    return only({"kind": "noop", "spec": policy({"else": {"then": {"do": "continue", "set_shared": shared}}})})


@grown
def branches(count: int) -> str:
    made = [{"when": f"{{{{ args.x == {n} }}}}", "then": [task(f"t{n}")]} for n in range(count)]
    return only([{"name": "c", "choose": [*made, {"else": {"then": [task("z")]}}]}])


@grown
def constructs(count: int) -> str:
    body = [{"when": f"{{{{ args.x == {n} }}}}", "do": [task(f"t{n}")]} for n in range(count)]
    return only([{"name": f"c{n}", "while": body[n]} for n in range(count)])


@grown
def workbook_entries(count: int) -> str:
    entries = {f"w{n}": {"kind": "noop", "args": {"v": 1}} for n in range(count)}
    return only(
        [{"name": f"t{n}", "kind": "workbook", "task": f"w{n}"} for n in range(count)], workbook={"tasks": entries}
    )


@grown
def uses_of_a_workbook_entry(count: int) -> str:
    entries = {"w": {"kind": "noop", "args": {"v": "{{ args.x }}"}}}
    return only([{"name": f"t{n}", "kind": "workbook", "task": "w"} for n in range(count)], workbook={"tasks": entries})


@grown
def workbook_entries_that_nothing_runs(count: int) -> str:
    entries = {f"w{n}": {"kind": "noop", "args": {"v": "{{ x }}"}} for n in range(count)}
    return only({"kind": "noop"}, workbook={"tasks": entries})


@grown
def labels(count: int) -> str:
    metadata = HEAD["metadata"] | {"labels": keyed(count), "annotations": keyed(count)}
    return only({"kind": "noop"}, metadata=metadata | {"tags": [f"t{n}" for n in range(count)]})


@grown
def keys_of_the_workload(count: int) -> str:
    read = {"kind": "noop", "args": keyed(count, lambda n: f"{{{{ k{n} }}}}")}
    return only(read, workload=keyed(count))


@grown
def keys_of_the_workload_schema(count: int) -> str:
    schema = {"properties": keyed(count, lambda n: {"type": "integer"}), "required": [*keyed(count)]}
    return only({"kind": "noop"}, workload=keyed(count), executor={"spec": {"workload": schema}})


@grown
def keys_that_the_workload_lacks(count: int) -> str:
    schema = {"properties": keyed(count, lambda n: {"type": "integer"}), "additionalProperties": False}
    read = {"kind": "noop", "args": keyed(count, lambda n: f"{{{{ workload.q{n} }}}}")}
    return only(read, workload=keyed(count), executor={"spec": {"workload": schema}})


@grown
def choices_of_the_workload(count: int) -> str:
    schema = {"properties": {"k": {"enum": list(range(count))}}}
    return only({"kind": "noop"}, workload={"k": 1}, executor={"spec": {"workload": schema}})


@grown
def items_of_the_workload(count: int) -> str:
    schema = {"properties": {"k": {"type": "array", "items": {"type": "integer"}}}}
    return only({"kind": "noop"}, workload={"k": list(range(count))}, executor={"spec": {"workload": schema}})


@grown
def keychain_entries(count: int) -> str:
    entries = [{"name": f"k{n}", "kind": "credential", "credential": f"c{n}"} for n in range(count)]
    return only({"kind": "noop", "args": {"v": "{{ keychain.k0 }}"}}, keychain=entries)


@grown
def expressions_in_a_text(count: int) -> str:
    return only({"kind": "noop", "args": {"v": "line {{ k }}\n" * count}}, workload={"k": 1})


@grown
def expressions_with_mistakes(count: int) -> str:
    return only({"kind": "noop", "args": {"v": "line {{ missing }}\n" * count}}, workload={"k": 1})


@grown
def characters_of_a_template(count: int) -> str:
    return only({"kind": "noop", "args": {"v": "{{ k }}" + "abcd\n" * count}}, workload={"k": 1})


@grown
def items_of_a_list_in_a_template(count: int) -> str:
    return only({"kind": "noop", "args": {"v": f"{{{{ {[*range(count)]} }}}}"}})


@grown
def lines_of_code(count: int) -> str:
    return only({"kind": "python", "code": "x = 1\n" * count + "return x"})


@grown
def headers(count: int) -> str:
    return only({"kind": "http", "url": "http://a", "headers": keyed(count, str), "params": keyed(count)})


@grown
def calls_of_playbooks(count: int) -> str:
    return document(workflow=chain(count, lambda n: {"tool": {"kind": "playbook", "path": f"a/b{n}"}}))


@grown
def comments(count: int) -> str:
    return only({"kind": "noop"}) + "\n" + "# a comment\n" * count


@grown
def unknown_keys(count: int) -> str:
    return document(workflow=[step("start", **keyed(count))])


@grown
def steps_that_do_not_exist(count: int) -> str:
    return document(workflow=[*chain(count, lambda n: {}), step("last", *(f"q{n}" for n in range(count)))])


@grown
def templates_in_keys(count: int) -> str:
    return only({"kind": "noop", "args": {f"{{{{ k{n} }}}}": n for n in range(count)}})


@grown
def keys_of_a_result_schema(count: int) -> str:
    schema = {"type": "object", "properties": keyed(count, lambda n: {"type": "string"})}
    first = {"kind": "noop", "spec": {"result": {"schema": schema}}}
    read = {"kind": "noop", "args": keyed(count, lambda n: f"{{{{ steps.start.k{n} }}}}")}
    return document(workflow=[step("start", "end", tool=first), step("end", tool=read)])


@grown
def keys_of_a_schema(count: int) -> str:
    properties = keyed(count, lambda n: {"$ref": f"#/$defs/k{n}"})
    spec = {"$defs": keyed(count, lambda n: {"type": "string"}), "properties": properties, "required": [*properties]}
    return json.dumps(HEAD | {"kind": "Schema", "spec": spec})


@grown
def choices_of_a_schema(count: int) -> str:
    return json.dumps(HEAD | {"kind": "Schema", "spec": {"enum": [*keyed(count)]}})


@grown
def times_of_a_schedule(count: int) -> str:
    spec = {"playbook": "a/b", "at": [f"2030-01-01T{n // 60 % 24:02}:{n % 60:02}:00Z" for n in range(count)]}
    return json.dumps(HEAD | {"kind": "Schedule", "spec": spec | {"workload": keyed(count)}})


@grown
def days_without_a_schedule(count: int) -> str:
    days = [f"{2026 + n // 336}-{n // 28 % 12 + 1:02}-{n % 28 + 1:02}" for n in range(count)]
    spec = {"playbook": "a/b", "cron": ["0 2 * * *"], "timezone": "UTC", "exclude": days}
    return json.dumps(HEAD | {"kind": "Schedule", "spec": spec})


@grown
def keys_that_a_trigger_gives(count: int) -> str:
    on = {"execution": {"path": "a/c", "labels": keyed(count, str)}}
    spec = {"playbook": "a/b", "on": on, "workload": keyed(count, lambda n: "{{ event.path }}")}
    return json.dumps(HEAD | {"kind": "Trigger", "spec": spec})
