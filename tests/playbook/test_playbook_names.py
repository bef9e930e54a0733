"""What bare names are bound to, shadowed names, and what a step's commands must carry (LANGUAGE §2)."""

from __future__ import annotations

import pytest
from playbook_building import checked, codes, found, pipeline, plan_of, start_of, task_of, workflow

from noetl_stream.playbook.plan import Reads

EVERYWHERE = """
- step: start
  tool: { kind: noop }
  next: { arcs: [ { step: use, args: { %s } } ] }
- step: use
  loop: { in: [1], iterator: %s }
  tool:
    - name: %s
      kind: noop
      spec: { policy: { rules: [ { else: { then: { do: continue, set_ctx: { %s } } } } ] } }
    - { name: show, kind: noop, args: { shown: "{{ %s }}" } }
- step: %s
  tool: { kind: noop }
  next: { arcs: [ { step: start } ] }
"""
PLACES = ["args", "ctx", "iter", "workload", "results", "steps"]


def declaring(*places: str, name: str = "name") -> str:
    """A playbook that declares ``name`` in these namespaces, and reads it in the task ``show``."""

    def name_in(place: str) -> str:
        return name if place in places else f"other_{place}"

    steps = EVERYWHERE % (
        f"{name_in('args')}: 1",
        name_in("iter"),
        name_in("results"),
        f"{name_in('ctx')}: 1",
        name,
        name_in("steps"),
    )
    return workflow(steps, root=f"workload: {{ {name_in('workload')}: 1 }}\n")


@pytest.mark.parametrize("place", PLACES)
def test_a_bare_name_is_bound_to_what_the_playbook_declares(place: str) -> None:
    text = declaring(place)
    assert found(text, "shadowed_name") == []
    assert plan_of(text).steps["use"].tasks[1].inputs.reads == frozenset([(place, "name")])


@pytest.mark.parametrize("rank", range(len(PLACES) - 1))
def test_a_name_that_is_declared_twice_means_the_first_in_the_order_and_warns(rank: int) -> None:
    text = declaring(*PLACES[rank:])
    [warning] = found(text, "shadowed_name")
    assert warning.severity == "warning"
    assert f"means `{PLACES[rank]}.name` here" in warning.message
    assert text.splitlines()[warning.line - 1][warning.column - 1 :].startswith("name }}")
    assert plan_of(text).steps["use"].tasks[1].inputs.reads == frozenset([(PLACES[rank], "name")])


def test_a_name_that_is_declared_twice_and_always_qualified_does_not_warn() -> None:
    assert found(declaring("ctx", "workload").replace("{{ name }}", "{{ ctx.name }}"), "shadowed_name") == []


def test_args_are_those_of_the_arcs_into_this_step_only() -> None:
    text = workflow(
        """
        - step: start
          tool: { kind: noop, args: { a: "{{ given }}" } }
          next: { arcs: [ { step: other, args: { given: 1 } } ] }
        - step: other
          tool: { kind: noop, args: { a: "{{ given }}" } }
        """
    )
    [problem] = found(text, "unbound_name")
    assert problem.pointer.startswith("/workflow/0/")


def test_task_names_of_another_step_are_not_bound() -> None:
    text = workflow(
        """
        - step: start
          tool: [ { name: fetch, kind: noop } ]
          next: { arcs: [ { step: other } ] }
        - step: other
          tool: { kind: noop, args: { a: "{{ fetch }}", b: "{{ start.results.fetch }}" } }
        """
    )
    assert [item.pointer for item in found(text, "unbound_name")] == ["/workflow/1/tool/args/a"]


def test_a_step_named_like_a_workload_key_can_still_be_read_by_its_namespace() -> None:
    text = workflow(
        """
        - step: start
          tool: { kind: noop }
          next: { arcs: [ { step: end } ] }
        - step: end
          tool: { kind: noop, args: { a: "{{ steps.start }}", b: "{{ start }}" } }
        """,
        root="workload: { start: 1 }\n",
    )
    assert [item.line for item in found(text, "shadowed_name")] == [found(text, "shadowed_name")[0].line]
    assert plan_of(text).steps["end"].reads == Reads(frozenset(["start"]), frozenset(), frozenset(["start"]))


def test_a_step_reads_what_its_worker_side_templates_read() -> None:
    text = workflow(
        """
        - step: start
          loop: { in: "{{ workload.server_only }}", iterator: item }
          tool:
            kind: http
            url: "{{ workload.url }}"
            params: { a: "{{ ctx.in_inputs }}" }
            spec:
              policy:
                rules:
                  - when: "{{ ctx.in_guard }}"
                    then: { do: retry, attempts: 2, delay: "{{ workload.delay }}" }
                  - else: { then: { do: continue, set_iter: { x: "{{ steps.other.data }}" } } }
          next: { arcs: [ { step: other, when: "{{ workload.in_arc }}" } ] }
        - step: other
          tool: { kind: noop }
        """
    )
    reads = start_of(text).reads
    assert reads.workload == frozenset(["url", "delay"])
    assert reads.ctx == frozenset(["in_inputs", "in_guard"])
    assert reads.steps == frozenset(["other"])


@pytest.mark.parametrize("template", ["{{ ctx }}", "{{ ctx[workload.key] }}", "{{ ctx | length }}"])
def test_reading_an_entire_namespace_sends_all_of_it(template: str) -> None:
    assert start_of(pipeline(f'- {{ kind: noop, args: {{ a: "{template}" }} }}')).reads.ctx is None


@pytest.mark.parametrize(
    ("code", "workload", "ctx"),
    [
        ("return 1", frozenset(), frozenset()),
        ("return workload['a']", None, frozenset()),
        ("def main(ctx): return ctx", frozenset(), None),
        ("return my_workload + ctxs", frozenset(), frozenset()),
        ("return globals()", None, None),
    ],
)
def test_code_that_names_a_namespace_sends_all_of_it(
    code: str, workload: frozenset[str] | None, ctx: frozenset[str] | None
) -> None:
    reads = start_of(pipeline(f'- {{ kind: python, code: "{code}" }}')).reads
    assert (reads.workload, reads.ctx, reads.steps) == (workload, ctx, frozenset())


def test_the_text_of_another_kind_that_names_a_namespace_carries_nothing() -> None:
    assert start_of(pipeline("- { kind: postgres, command: select workload from ctx }")).reads == Reads()


def test_code_is_kept_verbatim_and_its_templates_are_warned_about() -> None:
    text = pipeline("- { kind: python, code: \"return '{{ workload.a }}'\" }")
    assert task_of(text).verbatim == {"code": "return '{{ workload.a }}'"}
    assert task_of(text).inputs.source == {}
    assert codes(text) == ["template_not_rendered"]
    assert codes(pipeline("- { kind: python, code: \"return f'{{braces}}'\" }")) == []


@pytest.mark.parametrize(
    ("place", "namespaces"),
    [
        ("input", "workload ctx vars iter args keychain execution_id steps results _prev _task _attempt"),
        ("policy", "workload ctx vars iter args execution_id steps results _prev _task _attempt outcome"),
        ("arc", "event ctx vars workload args steps execution_id"),
        ("admission", "workload ctx args steps execution_id token"),
        ("loop", "workload ctx args steps execution_id"),
        ("inner loop", "workload ctx args steps execution_id iter"),
        ("result", "workload ctx steps execution_id"),
    ],
)
def test_each_place_has_exactly_its_namespaces(place: str, namespaces: str) -> None:
    every = "workload ctx vars iter args keychain execution_id steps results _prev _task _attempt outcome event token"

    def text_with(template: str) -> str:
        root = f'executor: {{ spec: {{ result: "{template}" }} }}\n' if place == "result" else ""
        guard = f'{{ when: "{template}", then: '
        spec = (
            f"{{ policy: {{ admit: {{ rules: [ {guard} {{ allow: true }} }} ] }} }} }}"
            if place == "admission"
            else "{}"
        )
        loop = f'\n  loop: {{ in: "{template}", iterator: item }}' if place == "loop" else ""
        if place == "inner loop":
            loop = f'\n  loop: {{ in: [1], iterator: a, loop: {{ in: "{template}", iterator: b }} }}'
        args = f'{{ a: "{template}" }}' if place == "input" else "{}"
        rule = f"{guard} {{ do: fail }} }}" if place == "policy" else "{ else: { then: { do: fail } } }"
        arc = f'{{ step: start, when: "{template}" }}' if place == "arc" else "{ step: start }"
        return workflow(
            f"- step: start\n  spec: {spec}{loop}\n"
            f"  tool: {{ kind: noop, args: {args}, spec: {{ policy: {{ rules: [ {rule} ] }} }} }}\n"
            f"  next: {{ arcs: [ {arc} ] }}",
            root,
        )

    allowed = {name for name in every.split() if not found(text_with(f"{{{{ {name} }}}}"), "namespace_not_here")}
    assert allowed - {"token"} == set(namespaces.split()) - {"token"}
    assert checked(text_with("{{ token }}")).ok is (place == "admission")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["execution", "schedule"])
def test_a_playbook_keeps_a_name_of_its_own_that_is_a_namespace_elsewhere_and_warns(name: str, place: str) -> None:
    text = declaring(place, name=name)
    [warning] = found(text, "shadowed_name")
    assert f"`{name}` means `{place}.{name}` here, but could also be the namespace of that name" in warning.message
    plan = plan_of(text)
    assert plan.steps["use"].tasks[1].inputs.reads == frozenset([(place, name)])
    assert plan.reads_execution == ""


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("execution.dew", "unknown_name"),
        ("execution.origin.by", "unknown_name"),
        ("execution.due.year", "unknown_name"),
        ("execution.due.split('T')[0]", ""),
        ("execution.due[:10]", ""),
        ("schedule.due", "unbound_name"),
        ("1 if execution.origin.kind == 'cron' else 2", ""),
    ],
)
def test_the_fields_of_execution_are_known(expression: str, code: str) -> None:
    text = workflow(f'- {{ step: start, tool: {{ kind: noop, args: {{ a: "{{{{ {expression} }}}}" }} }} }}')
    assert codes(text) == ([code] if code else [])


def test_a_guard_cannot_compare_the_origin_with_what_it_never_is() -> None:
    arc = "{ step: start, when: \"{{ execution.origin.kind == 'cron' }}\" }"
    text = workflow(f"- {{ step: start, tool: {{ kind: noop }}, next: {{ arcs: [ {arc} ] }} }}")
    [problem] = found(text, "impossible_comparison")
    assert problem.hint == "write one of `client`, `schedule`, `trigger`, `call`, `rerun`"


@pytest.mark.parametrize(
    ("task", "read"),
    [
        ("{ kind: python, code: \"return execution['due']\" }", "code"),
        ("{ kind: python, code: return execution_id }", ""),
        ("{ kind: python, code: return globals() }", ""),
        ('{ kind: python, code: return due, args: { due: "{{ execution.due }}" } }', "template"),
    ],
)
def test_only_what_names_execution_reads_it_and_only_templates_need_newer_servers(task: str, read: str) -> None:
    plan = plan_of(workflow(f"- {{ step: start, tool: {task} }}"))
    assert (plan.steps["start"].reads.execution, plan.reads_execution) == (read, read)
    assert bool(plan.newer) == (read == "template")
