"""``kind: quantum`` on its embedded simulator, and on a backend that comes by entry point."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from noetl_stream.errors import UsageError
from noetl_stream.playbook.compile.compiler import check
from noetl_stream.playbook.schema import playbook_schema
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.tools.contract import ToolFailure, ToolResult
from noetl_stream.tools.registry import create_tools, kinds_of, load_tools
from noetl_stream_quantum import aer
from noetl_stream_quantum.settings import QuantumSettings
from noetl_stream_quantum.tool import QuantumInputs, QuantumKnobs, QuantumTool

pytestmark = pytest.mark.asyncio(loop_scope="module")

BELL = """\
OPENQASM 3.0;
include "stdgates.inc";
qubit[2] q;
bit[2] c;
h q[0];
cx q[0], q[1];
c = measure q;
"""
TURNED = 'OPENQASM 3.0; include "stdgates.inc"; input float theta; qubit q; bit c; rx(theta) q; c = measure q;'
ENDLESS = 'OPENQASM 3.0; include "stdgates.inc"; qubit q; bit c; while (c == false) { c = measure q; }'
WIDE = 'OPENQASM 3.0; include "stdgates.inc"; qubit[20] q; bit[20] c; rx(0.1) q; c = measure q;'
SETTINGS = ToolSettings(own={"quantum": {"max_qubits": 20, "max_memory_mb": 8, "max_simulations": 1}})


class Runner:
    """Runs tasks on one tool, which simulates one circuit at a time."""

    def __init__(self, make_call: Any, settings: ToolSettings = SETTINGS) -> None:
        self.tool = QuantumTool.configured(settings)
        self._make_call = make_call

    async def __call__(self, *, knobs: Any = None, trust_domain: str = "ours", **inputs: Any) -> Any:
        async with asyncio.timeout(60):
            call = self._make_call(inputs, knobs=knobs, trust_domain=trust_domain)
            result: ToolResult = await self.tool.run(call)
        return result.result

    async def failure(self, **inputs: Any) -> tuple[str, str | None, str]:
        with pytest.raises(ToolFailure) as failed:
            await self(**inputs)
        error = failed.value.error
        return error.kind, error.code, error.message

    async def until(self, status: str, job: Any) -> Any:
        """What a poll returns once the job is in this state."""
        async with asyncio.timeout(60):
            while True:
                polled = await self(action="poll", job=job)
                if polled["status"] == status:
                    return polled
                await asyncio.sleep(0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def quantum(make_call: Any) -> AsyncIterator[Runner]:
    runner = Runner(make_call)
    yield runner
    await runner.tool.close()


async def test_a_circuit_gives_counts(quantum: Runner) -> None:
    result = await quantum(circuit=BELL, shots=1000, seed=7)
    counts = result.pop("counts")
    assert counts.keys() == {"00", "11"}
    assert sum(counts.values()) == 1000
    assert result == {"backend": "aer", "status": "done", "shots": 1000, "seed": 7, "qubits": 2}


async def test_the_same_seed_gives_the_same_counts_and_another_one_gives_others(quantum: Runner) -> None:
    first, again, other = [await quantum(circuit=BELL, shots=100_000, seed=seed) for seed in (1, 1, 2)]
    assert first == again
    assert first["counts"] != other["counts"]


async def test_without_a_seed_a_repetition_of_the_task_gives_the_same_counts(quantum: Runner) -> None:
    assert await quantum(circuit=BELL) == await quantum(circuit=BELL)


async def test_parameters_stand_for_the_inputs_of_the_circuit(quantum: Runner) -> None:
    assert (await quantum(circuit=TURNED, parameters={"theta": 0}))["counts"] == {"0": 1024}
    assert (await quantum(circuit=TURNED, parameters={"theta": 3.141592653589793}))["counts"] == {"1": 1024}


async def test_memory_has_the_outcome_of_each_shot(quantum: Runner) -> None:
    result = await quantum(circuit=BELL, shots=50, memory=True)
    assert {bits: result["memory"].count(bits) for bits in result["counts"]} == result["counts"]


async def test_a_method_is_a_knob(quantum: Runner) -> None:
    assert sum((await quantum(circuit=BELL, knobs={"method": "stabilizer"}))["counts"].values()) == 1024
    kind, _, message = await quantum.failure(circuit=TURNED, parameters={"theta": 0.1}, knobs={"method": "stabilizer"})
    assert (kind, message.startswith("the simulator refused the circuit: ")) == ("refused", True)


@pytest.mark.parametrize(
    ("inputs", "kind", "code", "message"),
    [
        ({"circuit": "bell"}, "syntax", None, "circuit: line 1, column 5: does not parse at '<EOF>'"),
        ({"circuit": BELL + "x q[0]"}, "syntax", None, "circuit: line 8, column 7: does not parse at '<EOF>'"),
        ({"circuit": "OPENQASM 3.0;\nqubit q; h q;"}, "syntax", None, "line 2, column 10: gate 'h' is not defined"),
        ({"circuit": 'OPENQASM 3.0;\ninclude "x'}, "syntax", None, "line 2, column 9: token recognition error"),
        ({"circuit": BELL + "x q[7];"}, "syntax", None, "circuit: is not a program that Qiskit can import"),
        ({"circuit": "(" * 5000}, "syntax", None, "circuit: nests too deeply"),
        ({"circuit": "OPENQASM 3.0; qubit q; bit c;"}, "invalid_input", None, "circuit: measures nothing"),
        ({"circuit": TURNED}, "invalid_input", None, "parameters.theta: missing"),
        ({"circuit": BELL, "parameters": {"phi": 1}}, "invalid_input", None, "no such input; it has none"),
        ({"circuit": "qubit[1000000000] q;"}, "not_allowed", "max_qubits", "has 1000000000 qubits, more than"),
        ({"circuit": "qubit[11] p; qubit[11] q;"}, "not_allowed", "max_qubits", "max_qubits: 20"),
        ({"circuit": BELL, "shots": 100_001}, "not_allowed", "max_shots", "NOETL_TOOL_QUANTUM, max_shots: 100000"),
        ({"circuit": WIDE}, "refused", None, "memory"),
        ({"circuit": BELL, "shots": 0}, "invalid_input", None, "shots: input should be greater than or equal to 1"),
        ({"circuit": BELL, "backend": "ibm_torino"}, "not_found", "backend", "no backend 'ibm_torino'"),
        ({"circuit": BELL, "auth": "a_name"}, "invalid_input", None, "auth: the backend aer needs none"),
        ({"circuit": BELL, "action": "poll"}, "invalid_input", None, "action: poll needs `job`"),
        ({"shots": 10}, "invalid_input", None, "needs either `circuit` (to run or submit) or `job`"),
    ],
)
async def test_an_impossible_action_is_an_error_with_the_reason(
    quantum: Runner, inputs: Any, kind: str, code: str | None, message: str
) -> None:
    found = await quantum.failure(**inputs)
    assert found[:2] == (kind, code)
    assert message in found[2]


async def test_a_job_is_submitted_and_polled_until_it_has_counts(quantum: Runner) -> None:
    job = await quantum(action="submit", circuit=BELL, shots=500, seed=3)
    assert (job["job_id"][:4], job["backend"], job["status"]) == ("aer-", "aer", "queued")
    done = await quantum.until("done", job)
    assert done == {"job_id": job["job_id"], **await quantum(circuit=BELL, shots=500, seed=3)}
    assert await quantum(action="poll", job=job) == done


async def test_a_submission_that_is_repeated_is_the_same_job(quantum: Runner) -> None:
    assert await quantum(action="submit", circuit=BELL) == await quantum(action="submit", circuit=BELL)


async def test_a_job_of_a_worker_that_has_ended_gives_the_same_counts_on_another(
    quantum: Runner, make_call: Any
) -> None:
    job = await quantum(action="submit", circuit=BELL, seed=3)
    other = Runner(make_call)
    try:
        assert await other.until("done", job) == await quantum.until("done", job)
    finally:
        await other.tool.close()


async def test_a_job_waits_for_the_one_before_and_cancelling_that_makes_room(quantum: Runner) -> None:
    endless = await quantum(action="submit", circuit=ENDLESS)
    await quantum.until("running", endless)
    waiting = await quantum(action="submit", circuit=BELL, seed=11)
    assert (await quantum(action="poll", job=waiting))["status"] == "queued"
    assert (await quantum(action="cancel", job=endless))["status"] == "cancelled"
    assert (await quantum.until("done", waiting))["seed"] == 11


async def test_a_worker_takes_only_its_number_of_jobs(quantum: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aer, "MAX_JOBS", 2)
    endless = await quantum(action="submit", circuit=ENDLESS, seed=21)
    waiting = await quantum(action="submit", circuit=BELL, seed=22)
    assert (await quantum.failure(action="submit", circuit=BELL, seed=23))[:2] == ("refused", "max_jobs")
    await quantum(action="cancel", job=endless)
    assert (await quantum.until("done", waiting))["seed"] == 22
    assert (await quantum(action="submit", circuit=BELL, seed=23))["status"] == "queued"


async def test_cancelling_a_run_ends_its_simulation(quantum: Runner) -> None:
    endless = asyncio.ensure_future(quantum(circuit=ENDLESS))
    waiting = await quantum(action="submit", circuit=BELL, seed=12)
    endless.cancel()
    assert (await quantum.until("done", waiting))["seed"] == 12


async def test_a_job_that_takes_too_long_fails(make_call: Any) -> None:
    runner = Runner(make_call, ToolSettings(own={"quantum": {"max_job_s": 0.01}}))
    try:
        job = await runner(action="submit", circuit=ENDLESS)
        found = await asyncio.wait_for(_failure_of(runner, job), 60)
    finally:
        await runner.tool.close()
    assert (found.error.kind, found.error.code) == ("timeout", "max_job_s")


async def _failure_of(runner: Runner, job: Any) -> ToolFailure:
    while True:
        try:
            await runner(action="poll", job=job)
        except ToolFailure as failed:
            return failed
        await asyncio.sleep(0)


@pytest.mark.parametrize("change", [{"job_id": "aer-0"}, {"program": {}}])
async def test_a_job_that_was_changed_is_refused(quantum: Runner, change: Any) -> None:
    job = await quantum(action="submit", circuit=BELL)
    kind, _, message = await quantum.failure(action="poll", job={**job, **change})
    assert (kind, message.startswith("job")) == ("invalid_input", True)


PRINTER = """
from noetl_stream.tools.inputs import credential_of
from noetl_stream_quantum.program import Counts, JobState

class Printer:
    def __init__(self, settings): self.allowed = settings.egress
    async def run(self, request): return Counts({await credential_of(request.call, request.auth): 1}, 1)
    async def submit(self, request): return "page-1"
    async def poll(self, job_id, request): return JobState("running" if job_id == "page-1" else "done")
    async def cancel(self, job_id, request): pass
    async def close(self): pass
"""


async def test_a_backend_comes_by_entry_point(make_call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    information = tmp_path / "printers-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: printers\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[noetl_stream_quantum.backends]\nprinter = quantum_printer:Printer\n"
    )
    (tmp_path / "quantum_printer.py").write_text(PRINTER)
    monkeypatch.syspath_prepend(tmp_path)
    tool = QuantumTool()
    call = make_call({"circuit": "bell", "backend": "printer", "auth": "ink"}, credentials={"ink": "blue"})
    assert (await tool.run(call)).result["counts"] == {"blue": 1}
    job = (await tool.run(make_call({"action": "submit", "circuit": "bell", "backend": "printer"}))).result
    polled = (await tool.run(make_call({"action": "poll", "job": job}))).result
    assert polled == {"job_id": "page-1", "backend": "printer", "status": "running"}
    await tool.close()


async def test_the_operator_s_settings_are_checked_when_a_worker_starts() -> None:
    with pytest.raises(UsageError, match="NOETL_TOOL_QUANTUM: max_qubit: Extra inputs"):
        create_tools(load_tools(), ToolSettings(own={"quantum": {"max_qubit": 1}}))


PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{ name: t, path: tests/t }}
workflow:
  - step: start
    tool: {{ kind: quantum, {} }}
"""


def diagnostics(inputs: str) -> list[str]:
    return [found.message for found in check(PLAYBOOK.format(inputs), kinds_of(load_tools())).diagnostics]


async def test_check_knows_the_inputs_of_the_kind() -> None:
    assert diagnostics("backend: ibm_torino, circuit: bell, shots: 100") == []
    (misspelt,) = diagnostics("circuit: bell, shot: 100")
    assert "`shot`" in misspelt
    (neither,) = diagnostics("shots: 100")
    assert "needs either `circuit`" in neither
    assert "needs either `circuit`" in diagnostics("circuit: bell, job: '{{ workload.job }}'")[-1]
    shown = playbook_schema(kinds_of(load_tools()))["$defs"]["inputs_quantum"]["properties"]
    assert shown["circuit"]["anyOf"][0]["description"] == "The program, in OpenQASM 3."


async def test_the_page_describes_every_input_knob_and_setting() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "quantum.md").read_text()
    tables = dict(re.findall(r"^\| (\w+) \|.*\n\| ---.*\n((?:\|.*\n)+)", page, re.M))
    described = {title: re.findall(r"^\| `(\w+)`", rows, re.M) for title, rows in tables.items()}
    assert set(described["input"]) == {*QuantumInputs.model_fields}
    for title, model in (("knob", QuantumKnobs), ("setting", QuantumSettings)):
        for name, field in model.model_fields.items():
            shown = "the processors" if field.default is None else field.default
            assert f"| `{name}` | {shown} |" in tables[title]
        assert set(described[title]) == {*model.model_fields}
