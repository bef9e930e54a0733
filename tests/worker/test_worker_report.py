from __future__ import annotations

from worker_stage import Endless, Refusing, Stage, facts_of, name_of, numbers_without_holes

from noetl_stream.worker.worker_limits import MAX_REPORT_BYTES

TWO_TASKS = """
- step: start
  tool:
  - {name: first, kind: puppet}
  - {name: second, kind: puppet}
"""

MANY_RUNS = """
- step: start
  tool:
  - name: act
    kind: puppet
    spec:
      policy:
        rules:
        - when: "{{ iter.n | default(0) < 39 }}"
          then: {do: jump, to: act, set_iter: {n: "{{ iter.n | default(0) + 1 }}"}}
        - else: {then: {do: continue}}
"""


async def test_a_long_step_reports_what_it_has_50_ms_after_its_first_event(stage: Stage) -> None:
    stage.puppet.acts["second"] = endless = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    await stage.advance(0.049)
    assert stage.names == []
    await stage.advance(0.001)
    assert stage.names == ["step.started", "task.started", "task.processed", "task.started"]
    endless.release.set()
    await stage.settle()
    assert [name_of(fact) for fact in facts_of(stage.reports[1])] == ["task.processed", "step.done"]


async def test_the_reports_of_a_run_number_events_and_reports_without_holes(stage: Stage) -> None:
    stage.puppet.acts["first"] = first = Endless()
    stage.puppet.acts["second"] = second = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    await stage.advance(0.1)
    first.release.set()
    await stage.settle()
    await stage.advance(0.1)
    second.release.set()
    await stage.settle()
    assert [report.number for report in stage.reports] == [0, 1, 2]
    assert [report.first for report in stage.reports] == [0, 2, 4]
    assert numbers_without_holes(stage.reports)


async def test_the_next_report_waits_until_the_one_before_is_taken(stage: Stage) -> None:
    log = Refusing(stage.broker.event_log, "publish_report")
    stage.puppet.acts["first"] = first = Endless()
    await stage.start(event_log=log)
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    log.refuses = True
    await stage.advance(0.05)
    first.release.set()
    await stage.advance(3.0, step_s=0.1)
    assert len({message_id for _, _, message_id, _ in log.tried}) == 1
    log.refuses = False
    await stage.advance(2.0, step_s=0.1)
    assert stage.names[-1] == "step.done"
    assert numbers_without_holes(stage.reports)


async def test_facts_added_while_a_report_is_published_wait_their_own_50_ms(stage: Stage) -> None:
    stage.puppet.acts["first"] = first = Endless()
    stage.puppet.acts["second"] = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    await stage.advance(0.05)
    first.release.set()
    await stage.settle()
    await stage.advance(0.049)
    assert len(stage.reports) == 1
    await stage.advance(0.001)
    assert len(stage.reports) == 2


async def test_facts_added_behind_a_slow_report_follow_it(stage: Stage) -> None:
    log = Refusing(stage.broker.event_log, "publish_report")
    stage.puppet.acts["first"] = first = Endless()
    stage.puppet.acts["second"] = Endless()
    await stage.start(event_log=log)
    await stage.issue(stage.command(stage.plan(TWO_TASKS)))
    log.refuses = True
    await stage.advance(0.05)
    first.release.set()
    await stage.advance(1.0, step_s=0.1)
    log.refuses = False
    await stage.advance(2.0, step_s=0.1)
    assert stage.names == ["step.started", "task.started", "task.processed", "task.started"]


async def test_a_run_with_very_much_to_report_cuts_its_reports_and_loses_nothing(stage: Stage) -> None:
    async def act(_call: object) -> str:
        return "x" * 60_000

    stage.puppet.acts["act"] = act
    await stage.start()
    await stage.issue(stage.command(stage.plan(MANY_RUNS)))
    await stage.until(lambda: stage.names[-1:] == ["step.done"])
    sizes = [sum(map(len, report.events)) for report in stage.reports]
    assert max(sizes) <= MAX_REPORT_BYTES
    assert stage.names.count("task.processed") == 40
    assert numbers_without_holes(stage.reports)


async def test_a_run_waits_while_too_much_of_it_is_unreported(stage: Stage) -> None:
    async def act(_call: object) -> str:
        return "x" * 60_000

    log = Refusing(stage.broker.event_log, "publish_report")
    log.refuses = True
    stage.puppet.acts["act"] = act
    await stage.start(event_log=log)
    await stage.issue(stage.command(stage.plan(MANY_RUNS)))
    await stage.settle(500)
    assert 10 < len(stage.puppet.calls) < 30
    log.refuses = False
    await stage.advance(2.0, step_s=0.2)
    await stage.until(lambda: stage.names[-1:] == ["step.done"])
    assert stage.names.count("task.processed") == 40


async def test_the_last_task_and_the_end_of_its_pipeline_are_never_torn_apart(stage: Stage) -> None:
    async def act(_call: object) -> str:
        return "x" * 60_000

    stage.puppet.acts["act"] = act
    loop = MANY_RUNS.replace("  tool:", "  loop: {in: [1, 2, 3], iterator: item}\n  tool:")
    await stage.start()
    plan = stage.plan(loop)
    await stage.issue(stage.command(plan, items=[1, 2, 3]))
    await stage.until(lambda: stage.names[-1:] == ["loop.done"])
    for report in stage.reports:
        names = [name_of(fact) for fact in facts_of(report)]
        ends = [at for at, name in enumerate(names) if name == "loop.iteration.done"]
        assert all(at > 0 and names[at - 1] == "task.processed" for at in ends)
