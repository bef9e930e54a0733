"""The program with ``--url``: many executions at once, watching, waiting, and who may."""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any, NamedTuple

from gateway_playbooks import APPROVAL, FAILS
from gateway_stage import TOKEN, GatewayStage

import warm_program
from cli_program import NOETL, environment
from noetl_stream.ports.operations.access import NewToken
from noetl_stream.ports.operations.cluster import Cluster
from noetl_stream.ports.operations.executions import ExecutionFilter, Start
from noetl_stream.ports.operations.verbs import plain
from noetl_stream.settings.gateway_settings import GatewayLimits
from noetl_testkit.waiting import TIMEOUT_S, until_it_is

TRAP = {"NOETL_NATS_URL": "nats://127.0.0.1:1", "NOETL_POSTGRES_DSN": "postgresql://nobody@127.0.0.1:1/none"}
"""Who touches NATS or Postgres fails."""


WAITS = "workflow: [ { step: start, tool: { kind: wait, for_s: 900 } } ]\n"
ONLY_NOOP = "workflow: [ { step: start, tool: { kind: noop } } ]\n"


class Said(NamedTuple):
    code: int | None
    out: str
    err: str


async def begin(stage: GatewayStage, *words: str, **settings: str) -> Process:
    own = environment(**TRAP | {"NOETL_URL": stage.url, "NOETL_TOKEN": TOKEN} | settings)
    return await asyncio.create_subprocess_exec(*NOETL, *words, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=own)


async def noetl(stage: GatewayStage, *words: str, given: str = "", **settings: str) -> Said:
    found = await asyncio.to_thread(
        warm_program.noetl, *words, given=given, **TRAP | {"NOETL_URL": stage.url, "NOETL_TOKEN": TOKEN} | settings
    )
    assert "Traceback" not in found.stderr, found.stderr
    return Said(found.returncode, found.stdout, found.stderr)


async def held(stage: GatewayStage) -> str:
    started = await stage.operations.executions.start(Start(playbook=APPROVAL, workload={"amount": 250}), "test")
    return started.execution_id


async def test_many_executions_are_touched_at_once_each_with_a_result_of_its_own(stage: GatewayStage) -> None:
    ids = [await held(stage) for _ in range(3)]
    by_path = ("--path", "examples/approval")
    shown = await noetl(stage, "execution", "cancel", *by_path, "--dry-run", "-o", "name")
    assert (shown.code, sorted(shown.out.split())) == (0, sorted(ids))
    skipped = await noetl(stage, "execution", "resume", *ids[:1], "--dry-run", "-o", "name")
    assert (skipped.out, skipped.err) == (f"{ids[0]}\n", f"{ids[0]}: would be skipped: it is waiting\n")
    refused = await noetl(stage, "execution", "cancel", *by_path)
    assert (refused.code, refused.out) == (2, "")
    assert "this would cancel 3 executions" in refused.err and "--yes" in refused.err
    both = await noetl(stage, "execution", "cancel", ids[0], *by_path)
    assert (both.code, "ids and a filter" in both.err) == (2, True)
    piped = await noetl(stage, "execution", "pause", "-", "nowhere", "-o", "jsonl", given="\n".join(ids[:2]))
    answers = [json.loads(line) for line in piped.out.splitlines()]
    assert (piped.code, len(answers)) == (1, 3)
    assert {one["execution_id"]: "error" in one for one in answers} == {ids[0]: False, ids[1]: False, "nowhere": True}
    resumed = await noetl(stage, "execution", "resume", *by_path, "--yes", "-o", "json")
    assert {one["execution_id"] for one in json.loads(resumed.out)} == set(ids[:2])
    patched = await noetl(stage, "execution", "patch", "--status", "waiting", "--set", "decision=approved", "--yes")
    assert (patched.code, patched.out.count("done, at position")) == (0, 3)
    waited = await noetl(stage, "execution", "wait", ids[0], "-o", "yaml")
    assert (waited.code, "status: completed\n" in waited.out) == (0, True)
    for execution_id in ids[1:]:
        await stage.operations.executions.wait(execution_id, TIMEOUT_S)
    again = await noetl(stage, "execution", "cancel", *by_path, "--yes")
    assert (again.code, again.out, again.err) == (0, "", "no execution matches\n")
    deleted = await noetl(stage, "execution", "delete", *by_path, "--yes", "-o", "name")
    assert (deleted.code, sorted(deleted.out.split())) == (0, sorted(ids))
    assert (await stage.operations.executions.page(ExecutionFilter(), 10, None)).items == []


async def test_ended_executions_are_run_again_from_a_step_each_with_a_result_of_its_own(stage: GatewayStage) -> None:
    ids = [await held(stage) for _ in range(3)]
    assert (await noetl(stage, "execution", "patch", *ids[:2], "--set", "decision=approved")).code == 0
    for one in ids[:2]:
        await stage.operations.executions.wait(one, TIMEOUT_S)
    tried = await noetl(stage, "execution", "rerun", *ids, "--from", "decide", "--dry-run", "-o", "name")
    assert (tried.code, tried.out.split()) == (0, ids)
    assert tried.err == f"{ids[2]}: would be skipped: it has not ended (waiting)\n"
    again = ("execution", "rerun", "--path", "examples/approval", "--from", "decide", "--ctx", "decision=refused")
    asked = await noetl(stage, *again)
    assert (asked.code, "this would rerun 2 executions" in asked.err) == (2, True)
    done = await noetl(stage, *again, "--reason", "the wrong ones", "--yes", "-o", "json")
    made = {one["rerun_of"]: one["execution_id"] for one in json.loads(done.out)}
    assert (done.code, set(made)) == (0, set(ids[:2]))
    for one in made.values():
        assert (await stage.operations.executions.wait(one, TIMEOUT_S)).ctx["decision"] == "refused"
    single = await noetl(stage, "execution", "rerun", ids[0], "decide", "-o", "json")
    assert (single.code, json.loads(single.out)["rerun_of"]) == (0, ids[0])
    elsewhere = await noetl(stage, "execution", "rerun", *ids[:2], "--from", "nowhere")
    assert (elsewhere.code, elsewhere.err.count("nowhere")) == (1, 2)


async def test_a_rerun_needs_a_step_and_what_follows_it_a_single_id(stage: GatewayStage) -> None:
    one = await held(stage)
    for words, said in (
        ((one,), "--from STEP"),
        ((one, one, one), "--from STEP"),
        (("--status", "failed"), "--from STEP"),
        ((one, one, "--from", "decide", "--wait"), "--wait and --watch need a single ID"),
        ((one, one, "--from", "decide", "--step-run", "run"), "--step-run needs a single ID"),
    ):
        refused = await noetl(stage, "execution", "rerun", *words)
        assert (refused.code, said in refused.err) == (2, True), refused


async def test_a_quarantined_execution_says_why_and_is_resumed(stage: GatewayStage) -> None:
    execution_id = await held(stage)
    with stage.refusing(execution_id, "ctx.patched"):
        refused = await noetl(stage, "execution", "patch", execution_id, "--set", "decision=approved")
    assert refused.code and "cannot be stored" in refused.err
    listed = await noetl(stage, "execution", "list", "--status", "quarantined", "-o", "name")
    assert listed.out.split() == [execution_id]
    why = await noetl(stage, "execution", "why", execution_id)
    assert "quarantined" in why.out and "cannot hold" in why.out
    assert f"noetl-stream execution resume {execution_id}" in why.out
    assert execution_id in (await noetl(stage, "dead-letter", "list")).out
    resumed = await noetl(stage, "execution", "resume", "--status", "quarantined", "--yes", "-o", "json")
    assert [one["execution_id"] for one in json.loads(resumed.out)] == [execution_id]
    assert (await noetl(stage, "execution", "patch", execution_id, "--set", "decision=approved")).code == 0
    assert (await noetl(stage, "execution", "wait", execution_id)).code == 0


async def test_an_execution_is_watched_as_it_goes(stage: GatewayStage) -> None:
    execution_id = await held(stage)
    watching = await begin(stage, "execution", "watch", execution_id)
    assert watching.stdout is not None
    lines = []
    while not lines or not lines[-1].startswith("waiting: "):
        lines.append((await watching.stdout.readline()).decode())
    assert lines[0] == "start: done\n"
    assert "step `decide` is held at admission" in lines[-1] and "(until 2" in lines[-1]
    assert (await noetl(stage, "execution", "patch", execution_id, "--set", "decision=approved")).code == 0
    out, err = await watching.communicate()
    assert (watching.returncode, b"pay: done" in out, b"completed in" in err) == (0, True, True)
    events = await noetl(stage, "execution", "watch", execution_id, "-o", "jsonl")
    journal = await stage.operations.executions.events(execution_id, 0, 1000)
    assert [json.loads(line) for line in events.out.splitlines()] == plain(journal)


async def test_watching_ends_without_touching_what_is_watched(stage: GatewayStage) -> None:
    execution_id = await held(stage)
    timely = await noetl(stage, "execution", "watch", execution_id, "--timeout", "0.1")
    assert (timely.code, timely.err) == (124, f"timeout after 0.1 s: execution {execution_id} continues\n")
    watching = await begin(stage, "execution", "watch", execution_id)
    assert watching.stdout is not None
    await watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    _, err = await watching.communicate()
    assert (watching.returncode, err.decode().split("\n")[0]) == (130, f"execution {execution_id} continues")
    assert (await stage.operations.executions.get(execution_id)).status == "waiting"


async def test_a_run_that_is_interrupted_says_by_which_command_it_is_watched(
    stage: GatewayStage, tmp_path: Path
) -> None:
    file = tmp_path / "approval.yaml"
    file.write_text(APPROVAL)
    running = await begin(stage, "run", str(file), "--set", "amount=250", "--url", stage.url)
    assert running.stderr is not None
    await running.stderr.readline()
    running.send_signal(signal.SIGTERM)
    _, err = await running.communicate()
    (held_one,) = (await stage.operations.executions.page(ExecutionFilter(), 10, None)).items
    assert running.returncode == 130
    assert err.decode().splitlines()[-2:] == [
        f"interrupted: execution {held_one.execution_id} continues",
        f"  show it: noetl-stream execution get {held_one.execution_id} --url {stage.url}",
    ]


async def test_the_exit_code_is_the_executions(stage: GatewayStage, tmp_path: Path) -> None:
    (tmp_path / "fails.yaml").write_text(FAILS)
    (tmp_path / "wrong.yaml").write_text(FAILS.replace("tool", "tol"))
    failed = await noetl(stage, "execution", "start", str(tmp_path / "fails.yaml"), "--wait", "-o", "json")
    shown: dict[str, Any] = json.loads(failed.out)
    assert (failed.code, shown["status"]) == (1, "failed")
    retried = await noetl(stage, "execution", "retry", shown["execution_id"], "--ctx", 'missing={"key": 1}', "--watch")
    assert (retried.code, "start: done" in retried.out) == (0, True)
    ran = await noetl(stage, "run", str(tmp_path / "fails.yaml"))
    assert (ran.code, ran.out, "missing" in ran.err, "failed in" in ran.err) == (1, "", True, True)
    wrong = await noetl(stage, "run", str(tmp_path / "wrong.yaml"))
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.startswith(f"{tmp_path / 'wrong.yaml'}:") and "error[" in wrong.err
    checked = await noetl(stage, "playbook", "check", str(tmp_path / "wrong.yaml"), "--url", stage.url)
    assert (checked.code, checked.out) == (2, wrong.err)


async def test_a_check_looks_up_what_is_called_and_strictly_that_is_an_error(
    stage: GatewayStage, tmp_path: Path
) -> None:
    called = tmp_path / "called.yaml"
    called.write_text(FAILS)
    caller = tmp_path / "caller.yaml"
    call = "workflow: [ { step: start, tool: { kind: playbook, path: examples/called } } ]\n"
    caller.write_text(FAILS.partition("metadata")[0] + "metadata: { name: caller, path: examples/caller }\n" + call)
    called.write_text(caller.read_text().partition("workflow")[0].replace("caller", "called") + ONLY_NOOP)
    found = await noetl(stage, "playbook", "check", str(caller))
    assert (found.code, found.out) == (0, f"{caller}: ok\n")
    found = await noetl(stage, "playbook", "check", str(caller), "--url", stage.url)
    warning = f"{caller}:5:58: warning[unregistered_playbook]: no playbook `examples/called` is registered"
    assert (found.code, found.out.splitlines()[0]) == (0, warning)
    found = await noetl(stage, "playbook", "check", str(caller), "--url", stage.url, "--strict")
    assert (found.code, found.out.splitlines()[0]) == (2, warning.replace("warning[", "error["))
    found = await noetl(stage, "playbook", "check", str(caller), str(called), "--url", stage.url, "--strict")
    assert (found.code, found.out) == (0, f"{caller}: ok\n{called}: ok\n")
    await noetl(stage, "playbook", "register", str(called))
    found = await noetl(stage, "playbook", "check", str(caller), "--url", stage.url, "--strict")
    assert (found.code, found.out) == (0, f"{caller}: ok\n")


async def test_a_gateway_checks_what_calls_the_functions_of_a_project(stage: GatewayStage, tmp_path: Path) -> None:
    (tmp_path / "noetl-stream.toml").write_text('name = "team/x"\npackages = ["src"]\n')
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "checked_here.py").write_text("def double(n: int) -> int:\n    return 2 * n\n")
    file = tmp_path / "flow.yaml"
    step = '- { step: start, tool: { kind: python, function: "checked_here:double", args: { m: 1 } } }'
    metadata = "metadata: { name: flow, path: team/x/flow }"
    file.write_text(f"apiVersion: noetl.io/v2\nkind: Playbook\n{metadata}\nworkflow:\n  {step}\n")
    found = await noetl(stage, "playbook", "check", str(file), "--url", stage.url)
    assert "checked_here:double(n: int) needs `n`, takes no `m`" in found.out
    assert found.code == 0


async def test_a_check_looks_up_the_schemas_that_are_named(stage: GatewayStage, tmp_path: Path) -> None:
    head = FAILS.partition("kind")[0]
    schema, typed = tmp_path / "schema.yaml", tmp_path / "typed.yaml"
    schema.write_text(f"{head}kind: Schema\nmetadata: {{ name: s, path: examples/s }}\nspec: {{ type: array }}\n")
    task = "{ name: a, kind: noop, spec: { result: { schema: { path: examples/s } } } }"
    then = "{ name: b, kind: noop, args: { b: '{{ a.b }}' } }"
    typed.write_text(
        f"{head}kind: Playbook\nmetadata: {{ name: typed, path: examples/typed }}\n"
        f"workflow: [ {{ step: start, tool: [ {task}, {then} ] }} ]\n"
    )
    given = ["--url", stage.url]
    found = await noetl(stage, "playbook", "check", str(typed), *given)
    assert (found.code, "warning[unregistered_schema]: no schema `examples/s`" in found.out) == (0, True)
    found = await noetl(stage, "playbook", "check", str(typed), str(schema), *given)
    assert (found.code, found.out) == (0, f"{typed}: ok\n{schema}: ok\n")
    await noetl(stage, "playbook", "register", str(schema))
    found = await noetl(stage, "playbook", "check", str(typed), *given)
    assert "warning[unknown_result_key]: the schema of task `a`'s result has no `b`" in found.out


async def test_a_forbidden_caller_gets_the_context_and_the_required_role(tmp_path: Path) -> None:
    async with GatewayStage(GatewayLimits(), signed_in=False).open() as stage:
        made = await stage.operations.access.create_token(NewToken("eve", "viewer"), "test")
        file = tmp_path / "noetl-stream" / "contexts.yaml"
        file.parent.mkdir()
        (tmp_path / "token").write_text(made.secret)
        contexts = {"shop": {"url": stage.url, "token_file": str(tmp_path / "token")}, "bare": {"url": stage.url}}
        file.write_text(json.dumps({"current": "shop", "contexts": contexts}))
        place = dict.fromkeys(("NOETL_URL", "NOETL_TOKEN", "NOETL_NATS_URL", "NOETL_POSTGRES_DSN"), "")
        place |= {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
        assert (await noetl(stage, "execution", "list", **place)).code == 0
        bare = await noetl(stage, "execution", "list", "--context", "bare", **place)
        assert (bare.code, bare.out) == (1, "")
        assert bare.err.startswith("noetl-stream: context bare: ") and "set NOETL_TOKEN" in bare.err
        viewer = await noetl(stage, "execution", "cancel", "some-id", **place)
        assert (viewer.code, viewer.err.splitlines()[0]) == (
            1,
            "noetl-stream: context shop: cancelExecution needs the role operator; token:eve has viewer",
        )
        wrong = await noetl(stage, "execution", "list", NOETL_TOKEN=made.secret[:-1])
        assert (wrong.code, f"NOETL_URL {stage.url}" in wrong.err, made.secret[:-1] in wrong.err) == (1, True, False)


async def test_a_dead_letter_is_shown_sent_again_and_discarded(stage: GatewayStage) -> None:
    cluster = stage.operations.cluster

    async def wait_for_letter() -> str:
        await stage.until(lambda: _is_any(cluster))
        [letter] = (await cluster.dead_letters(10, None)).items
        return letter.id

    await stage.broker.event_log.publish_request("lost", "m1", b"no message")
    letter = await wait_for_letter()
    assert (await noetl(stage, "dead-letter", "list", "-o", "name")).out == f"{letter}\n"
    assert "body: no message\n" in (await noetl(stage, "dead-letter", "show", letter)).out
    requeued = await noetl(stage, "dead-letter", "requeue", letter, "--reason", "the server is mended")
    assert (requeued.code, requeued.out) == (0, f"requeued {letter}\n")
    again = await wait_for_letter()
    discarded = await noetl(stage, "dead-letter", "discard", again, letter)
    assert (discarded.code, discarded.out) == (1, f"discarded {again}\n")
    assert (await cluster.dead_letters(10, None)).items == []
    [entry] = (await stage.operations.access.audit(10, None, operation="requeueDeadLetter")).items
    assert (entry.target, entry.reason) == (letter, "the server is mended")


async def test_a_key_of_several_namespaces_is_asked_for_by_its_namespace(stage: GatewayStage) -> None:
    policy = "policy: { concurrency: { key: deploy, limit: 1 } }"
    for path in ("a/x", "b/x"):
        head = f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{ name: x, path: {path} }}\n"
        text = f"{head}executor: {{ spec: {{ {policy} }} }}\n" + WAITS
        await stage.operations.executions.start(Start(playbook=text), "test")
    await until_it_is(2, lambda: _count_held(stage.operations.cluster))
    listed = await noetl(stage, "limit", "list", "-o", "json")
    assert [(one["key"], one["namespace"]) for one in json.loads(listed.out)] == [("deploy", "a"), ("deploy", "b")]
    several = await noetl(stage, "limit", "get", "deploy")
    assert (several.code, several.out) != (0, "") and "in use in 2 namespaces: a, b" in several.err
    assert "--namespace" in several.err
    shown = await noetl(stage, "limit", "get", "deploy", "--namespace", "b")
    assert shown.out.startswith("deploy of namespace b: 1 of 1 held, 0 waiting (as b/x says)\nholds  ")
    shared = await noetl(stage, "limit", "get", "deploy", "--namespace", "")
    assert "nobody holds key deploy" in shared.err


async def _count_held(cluster: Cluster) -> int:
    return sum(one.held for one in (await cluster.limits(10, None)).items)


async def _is_any(cluster: Cluster) -> bool:
    return bool((await cluster.dead_letters(1, None)).items)
