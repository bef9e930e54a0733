"""A worker reads secrets of its own; another, which never had them, echoes them; nobody sees them (LANGUAGE §11)."""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession
from journey_stack import NOETL

from cli_program import environment
from warm_program import all_at_once, noetl

pytestmark = pytest.mark.xdist_group("stack")

POOL = "journey-vault"
VARIABLE = "JOURNEY_SECRET"
CREDENTIAL = "journey_hidden"
PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: hidden, path: journey/hidden}
keychain:
  - {name: variable, kind: env, variable: %s}
  - {name: file, kind: file, path: %s}
  - {name: kept, kind: credential, credential: %s, scope: global}
workload: {typed: ""}
workflow:
  - step: read
    spec: {pool: %s}
    tool:
      kind: python
      args: {found: ["{{ keychain.variable }}", "{{ keychain.file }}", "{{ keychain.kept }}"]}
      code: return len(found)
    next: {arcs: [{step: echo}]}
  - step: echo
    tool:
      name: say
      kind: python
      args: {typed: "{{ workload.typed }}"}
      code: |
        print(typed)
        return {"said": typed}
      spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {said: "{{ outcome.result.said }}"}}}}]}}
    next: {arcs: [{step: call}]}
  - step: call
    tool: {kind: playbook, path: journey/hidden_child, args: {typed: "{{ workload.typed }}"}}
    next: {arcs: [{step: fail}]}
  - step: fail
    tool:
      kind: python
      args: {typed: "{{ workload.typed }}"}
      code: raise ValueError(typed)
"""
CHILD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: hidden_child, path: journey/hidden_child}
workload: {typed: ""}
workflow:
  - step: back
    tool: {kind: noop, args: {typed: "{{ workload.typed }}"}}
"""


@contextmanager
def vault_worker(home: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """The one worker that can read the secrets."""
    arguments = ("worker", "--pool", POOL, "--home", str(home))
    process = subprocess.Popen([*NOETL, *arguments], stderr=subprocess.DEVNULL, env=environment(**variables))
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def run(home: Path, playbook: Path, typed: str) -> tuple[str, str]:
    """An execution that has ended: its id, and what the command said."""
    done = noetl("run", playbook, "--set-string", f"typed={typed}", "--home", home, "-o", "json")
    found = json.loads(done.stdout)
    assert found["status"] == "failed", done.stdout + done.stderr
    return found["execution_id"], done.stdout + done.stderr


def by_command(home: Path, execution_id: str) -> dict[str, str]:
    """What the command line shows of an execution."""
    words = [("execution", verb, execution_id, "-o", "json") for verb in ("get", "result", "steps", "events", "ctx")]
    words += [("execution", verb, execution_id) for verb in ("get", "why")]
    words.append(("execution", "list", "--path", "journey", "-o", "json"))
    done = all_at_once([(*one, "--home", home) for one in words])
    return {" ".join(one): each.stdout + each.stderr for one, each in zip(words, done, strict=True)}


async def over_http(home: Path, port: int, execution_id: str) -> dict[str, str]:
    """What the gateway shows of it."""
    one = f"/api/v1/executions/{execution_id}"
    token = (home / "gateway.token").read_text().strip()
    shown = {}
    async with ClientSession(f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {token}"}) as session:
        for path in (one, *(f"{one}/{part}" for part in ("result", "steps", "events", "ctx", "why", "events/stream"))):
            async with session.get(path) as answer:
                assert answer.status == 200, await answer.text()
                shown[path] = await answer.text()
    return shown


async def test_a_value_read_by_one_worker_is_hidden_in_the_output_of_another(
    shared_home: Path, shared_gateway_port: int, keychain_folder: Path, tmp_path: Path
) -> None:
    planted = {place: f"{place}-{secrets.token_hex(12)}" for place in ("variable", "file", "kept")}
    file = keychain_folder / "journey-hidden"
    file.write_text(planted["file"])
    (tmp_path / "hidden.yaml").write_text(PLAYBOOK % (VARIABLE, file, CREDENTIAL, POOL))
    (tmp_path / "child.yaml").write_text(CHILD)
    for words, given in (
        (("playbook", "register", tmp_path / "child.yaml"), ""),
        (("credential", "set", CREDENTIAL, "--value-stdin"), planted["kept"]),
    ):
        done = await asyncio.to_thread(noetl, *words, "--home", shared_home, given=given)
        assert done.returncode == 0, done.stderr
    variables = {VARIABLE: planted["variable"], "NOETL_KEYCHAIN_FOLDERS": str(keychain_folder)}
    with vault_worker(shared_home, variables):
        typed = " and ".join(planted.values())
        for _ in range(2):  # the second execution finds `kept` with the worker
            execution_id, said = await asyncio.to_thread(run, shared_home, tmp_path / "hidden.yaml", typed)
    shown = {"run": said, **await asyncio.to_thread(by_command, shared_home, execution_id)}
    shown |= await over_http(shared_home, shared_gateway_port, execution_id)
    shown["the log of servers, gateway and workers"] = (shared_home / "dev.log").read_text()
    assert [
        f"{place} in {where}" for where, text in shown.items() for place, value in planted.items() if value in text
    ] == []
    for where in ("run", f"/api/v1/executions/{execution_id}/events/stream"):
        assert "*** and *** and ***" in shown[where]
