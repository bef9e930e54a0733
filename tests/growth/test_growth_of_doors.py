"""Ten times the headers, parameters, rows, secrets or tokens is about ten times the work at the doors they come by."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest
from counted import Act, Door, assert_near_linear
from grown_documents import document, keyed, step
from multidict import CIMultiDict, CIMultiDictProxy, MultiDict

from effort import in_gate
from noetl_stream.cli.base.output import columns_of, print_documents
from noetl_stream.client.why.answer import explain
from noetl_stream.client.why.journal import read_history
from noetl_stream.client.why.reason import Environment
from noetl_stream.gateway.http.parameters import read_parameters
from noetl_stream.gateway.http.problems import HttpProblem
from noetl_stream.gateway.resources.executions import ExecutionsOf
from noetl_stream.model import pieces
from noetl_stream.model.redaction import Redactor
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.http.request import HttpInputs, request_of
from noetl_stream.tools.http.response import header_mapping, read_body
from noetl_stream.tools.inputs import validated
from noetl_stream.tools.postgres.tool import read_statements
from noetl_stream.tools.shell import ShellInputs
from noetl_stream.tools.sql import Returned, result_of
from noetl_testkit.scenario.scenario import Scenario

PARTS: Final = 15
NO_HEADERS: Final[CIMultiDictProxy[str]] = CIMultiDictProxy(CIMultiDict())


def refused(act: Act) -> Act:
    def run() -> None:
        with pytest.raises((HttpProblem, ToolFailure)):
            act()

    return run


def query(pairs: Sequence[tuple[str, str]]) -> Act:
    given = MultiDict(pairs)
    return lambda: read_parameters(ExecutionsOf, {}, given, NO_HEADERS)


def request(**inputs: Any) -> Act:
    given = {"url": "http://a/", "method": "POST"} | inputs
    return lambda: request_of(validated(HttpInputs, given), None, "key")


def listed(output: str) -> Door:
    def listing(count: int) -> Act:
        rows = [{"a": n, "b": f"text {n}"} for n in range(count)]
        return lambda: print_documents(rows, output, columns_of("a", "b"), "a")

    return listing


def many_secrets(count: int) -> Act:
    def run() -> None:
        redactor = Redactor()
        redactor.learn(keyed(count, lambda n: f"secret number {n}"))
        assert redactor.value({"a": "secret number 1"}) == {"a": "***"}

    return run


def values_with_a_secret(count: int) -> Act:
    redactor = Redactor()
    redactor.learn("correct-horse")
    return lambda: redactor.value([{"k": n, "t": "correct-horse"} for n in range(count)])


def reasons(play: Callable[[Scenario, list[str]], object], **spec: Any) -> Door:
    """Why an execution with so many branches goes no further, once they were played."""

    def explaining(count: int) -> Act:
        names = [f"s{n}" for n in range(count)]
        steps = [*(step(name, "end", spec=spec) for name in names), step("end", spec={"join": "all"})]
        scenario = Scenario(document(workflow=[step("start", *names, mode="inclusive"), *steps]))
        scenario.start()
        scenario.done("start")
        play(scenario, names)
        rows, around = scenario.rows(), Environment(scenario.now_ms)
        return lambda: explain(scenario.execution_id, read_history(scenario.execution_id, rows), scenario.plan, around)

    return explaining


def long_results(count: int) -> Act:
    value = [{"k": n, "t": [str(n)]} for n in range(200 * count)]
    return lambda: pieces.decode(pieces.encode(value))


HELD: Final = {
    "rules": [{"when": "{{ ctx.open | default(false) }}", "then": {"allow": True}}],
    "wait": {"timeout_s": 9},
}
DOORS: Final[dict[str, Door]] = {
    "labels of a query": lambda count: query([("label", f"k{n}=v") for n in range(count)]),
    "unknown parameters": lambda count: refused(query([(f"k{n}", "v") for n in range(count)])),
    "headers": lambda count: request(headers=keyed(count, str)),
    "headers that are no text": lambda count: refused(request(headers=keyed(count, lambda n: [n]))),
    "params": lambda count: request(params=keyed(count)),
    "items of a param": lambda count: request(params={"k": [*range(count)]}),
    "fields of a form": lambda count: request(form=keyed(count)),
    "parts of a body": lambda count: request(multipart=keyed(count, str)),
    "unknown inputs": lambda count: refused(request(**keyed(count))),
    "headers of an answer": lambda count: lambda: header_mapping([(f"K{n}".encode(), b"v") for n in range(count)]),
    "one header of an answer": lambda count: lambda: header_mapping([(b"Set-Cookie", b"v")] * count),
    "JSON of an answer": lambda count: lambda: read_body("application/json", json.dumps([*range(count)]).encode()),
    "parameters by number": lambda count: (
        lambda: read_statements(["select " + ", ".join(f"${n + 1}" for n in range(count))], [*range(count)])
    ),
    "uses of a parameter": lambda count: lambda: read_statements(["select " + ", ".join(["$a"] * count)], {"a": 1}),
    "statements": lambda count: lambda: read_statements(["select 1;" * count], None),
    "rows": lambda count: lambda: result_of(Returned(["a", "b"], [(n, str(n)) for n in range(count)]), []),
    "columns": lambda count: lambda: result_of(Returned([*keyed(count)], [tuple(range(count))]), []),
    "env": lambda count: lambda: validated(ShellInputs, {"command": "true", "env": keyed(count, str)}),
    "secrets": many_secrets,
    "values with a secret": values_with_a_secret,
    "long results": long_results,
    "reasons of commands": reasons(lambda scenario, names: [scenario.take(name) for name in names]),
    "reasons of held tokens": reasons(lambda scenario, names: None, policy={"admit": HELD}),
    "reasons of a join": reasons(lambda scenario, names: [scenario.done(name) for name in names[1:]]),
    "reasons of a failure": reasons(lambda scenario, names: scenario.failed(names[0])),
} | {f"a list as {output}": listed(output) for output in ("text", "yaml", "name")}


@pytest.mark.parametrize("name", in_gate(DOORS, 3))
def test_a_door_takes_work_that_grows_with_what_comes(name: str) -> None:
    assert_near_linear(DOORS[name], PARTS)
