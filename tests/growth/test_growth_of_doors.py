"""Ten times the headers, parameters, rows, secrets or tokens is about ten times the work at the doors they come by."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Generator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from counted import Act, Door, assert_near_linear
from grown_documents import document, keyed, step
from multidict import CIMultiDict, CIMultiDictProxy, MultiDict

from effort import in_gate
from noetl_stream.cli.base.output import columns_of, print_documents
from noetl_stream.concurrency import Capacity
from noetl_stream.gateway.http.inputs import read_parameters
from noetl_stream.gateway.http.problems import HttpProblem
from noetl_stream.gateway.http.routes import route_of
from noetl_stream.model.json import pieces
from noetl_stream.model.messages import WorkerPresence
from noetl_stream.model.outcome import Outcome, Payload, Reference
from noetl_stream.model.secrets.credential import Redactor
from noetl_stream.operations.diff.course import Likeness, differences
from noetl_stream.operations.doctor import checks
from noetl_stream.operations.doctor.checks import Finding
from noetl_stream.operations.doctor.readings import Timed
from noetl_stream.operations.why.answer import explain
from noetl_stream.operations.why.journal import JournalHistory
from noetl_stream.operations.why.reason import Environment
from noetl_stream.ports.operations.executions import Executions
from noetl_stream.ports.stores.credentials import CredentialInfo
from noetl_stream.ports.stores.identities import StoredToken
from noetl_stream.ports.streams.command_queue import QueuedPool
from noetl_stream.sealing.keys import Key, KeyRing
from noetl_stream.template import ResultView, Scope, compile_template
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.http.request import HttpInputs, request_of
from noetl_stream.tools.http.response import header_mapping, read_body
from noetl_stream.tools.inputs import validated
from noetl_stream.tools.postgres.tool import read_statements
from noetl_stream.tools.python.tool import PythonInputs
from noetl_stream.tools.shell import ShellInputs
from noetl_stream.tools.sql import Returned, result_of
from noetl_stream.worker.command.attempt import render_inputs, when_loaded
from noetl_stream.worker.command.results import RunResults
from noetl_stream.worker.secrets.keychain import Secret
from noetl_stream.worker.secrets.run_secrets import RunSecrets, TaskSecrets
from noetl_stream.worker.task_logs.lines import OutputLines
from noetl_testkit.scenario.scenario import Scenario

PARTS: Final = 15
LISTED: Final = route_of("executions", Executions.page).parameters
NO_HEADERS: Final[CIMultiDictProxy[str]] = CIMultiDictProxy(CIMultiDict())


def refused(act: Act) -> Act:
    def run() -> None:
        with pytest.raises((HttpProblem, ToolFailure)):
            act()

    return run


def query(pairs: Sequence[tuple[str, str]]) -> Act:
    given = MultiDict(pairs)
    return lambda: read_parameters(LISTED, {}, given, NO_HEADERS)


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

        def act() -> None:
            history = JournalHistory(scenario.execution_id)
            history.take(rows)
            explain(scenario.execution_id, history, scenario.plan, around)

        return act

    return explaining


def long_results(count: int) -> Act:
    value = [{"k": n, "t": [str(n)]} for n in range(200 * count)]
    return lambda: pieces.decode(pieces.encode(value))


class Given:
    """A reading of the doctor that is there."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __await__(self) -> Generator[None, None, Any]:
        return self._value
        yield


def examined(
    check: Callable[..., Coroutine[None, None, Finding]], read: Callable[[int], dict[str, Any]], **others: object
) -> Door:
    """A check of the doctor, by what it reads of each of so many."""

    def examining(count: int) -> Act:
        given = SimpleNamespace(**others, **{name: Given(value) for name, value in read(count).items()})

        def run() -> None:
            checking = check(given)
            with pytest.raises(StopIteration):
                checking.send(None)

        return run

    return examining


def workers(count: int) -> Timed[list[WorkerPresence]]:
    return Timed([WorkerPresence(f"w{n}", f"p{n}", 1, 0, 0, [], f"{n}") for n in range(count)], 0, 0)


def stored_keys(count: int) -> list[CredentialInfo]:
    return [CredentialInfo(f"c{n}", "text", "", (), 1, f"key{n}", 0, 0) for n in range(count)]


def tokens(count: int) -> list[StoredToken]:
    return [StoredToken(f"t{n}", f"t{n}", "admin", (), b"", 0, "ann", expires_ms=9) for n in range(count)]


DOCTOR: Final[dict[str, Door]] = {
    "versions of workers": examined(checks.versions, lambda count: {"known": [], "workers": workers(count)}),
    "pools": examined(
        checks.pools,
        lambda count: {"pools": [QueuedPool(f"q{n}", 1, 0, 0) for n in range(count)], "workers": workers(count)},
    ),
    "keys of credentials": examined(
        checks.keys,
        lambda count: {"credentials": stored_keys(count)},
        ports=SimpleNamespace(keys=KeyRing(Key("key0", b""), ())),
    ),
    "tokens": examined(checks.tokens, lambda count: {"tokens": tokens(count)}, now_ms=1),
}


def secrets_in_turn(count: int) -> Act:
    """The entries of a keychain, each as it is read."""

    def run() -> None:
        redactor = Redactor()
        for n in range(count):
            redactor.learn(f"secret number {n}")
        redactor.text("secret number 1, and more")

    return run


def values_to_load(source: Callable[[list[str]], Any]) -> Door:
    """Inputs of a task that read so many secrets and as many results by reference, none of which is loaded."""

    def loading(count: int) -> Act:
        names = [*keyed(count)]
        reads = [f"{{{{ {namespace}.{name} }}}}" for namespace in ("keychain", "steps") for name in names]
        template = compile_template(source(reads), namespaces=frozenset({"keychain", "steps"}), bindings={})
        steps = {name: ResultView(Outcome("ok", Payload(reference=Reference("nats", name, 2)))) for name in names}

        async def resolve(name: str) -> tuple[Secret, None]:
            return Secret(f"secret {name}"), None

        def run() -> None:
            loaded: dict[str, str] = {}

            async def load(reference: Reference) -> None:
                loaded[reference.key] = f"result {reference.key}"

            secrets = TaskSecrets(cast(RunSecrets, SimpleNamespace(entries=steps, resolve=resolve)))
            scope = Scope({"keychain": secrets, "steps": steps}, loaded)
            rendering = when_loaded(
                partial(render_inputs, template, scope, Capacity(1), ""), cast(RunResults, SimpleNamespace(load=load))
            )
            with pytest.raises(StopIteration):
                rendering.send(None)

        return run

    return loading


def written_lines(count: int) -> Act:
    lines = OutputLines(cast(RunSecrets, SimpleNamespace(used=None)))

    def run() -> None:
        lines.add(b"a line of 20 bytes.\n" * 100 * count, 0, lambda size: True)
        lines.take(ended=True)

    return run


def different_values(count: int) -> Act:
    a, b = ([{"n": n, "text": f"{side} {n}"} for n in range(count)] for side in "ab")
    return lambda: differences(a, b, Likeness("a" * 20), Likeness("b" * 20))


def code(**inputs: Any) -> Act:
    return lambda: validated(PythonInputs, {"code": "return 1"} | inputs)


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
    "statements with a parameter each": lambda count: (
        lambda: read_statements(
            ["; ".join(f"select $p{n} as a" for n in range(count))], {f"p{n}": n for n in range(count)}
        )
    ),
    "comments and quotes": lambda count: (
        lambda: read_statements(["/* ; */ -- ';'\n;" * count + "select 'a;b', $$;$$" + ", (e'\\';')" * count], None)
    ),
    "rows": lambda count: lambda: result_of(Returned(["a", "b"], [(n, str(n)) for n in range(count)]), []),
    "columns": lambda count: lambda: result_of(Returned([*keyed(count)], [tuple(range(count))]), []),
    "env": lambda count: lambda: validated(ShellInputs, {"command": "true", "env": keyed(count, str)}),
    "secrets": many_secrets,
    "values with a secret": values_with_a_secret,
    "long results": long_results,
    "entries of a keychain": secrets_in_turn,
    "values that inputs read": values_to_load(
        lambda reads: {"args": keyed(len(reads), reads.__getitem__), "list": reads}
    ),
    "values that a text reads": values_to_load(lambda reads: {"text": " ".join(reads)}),
    "lines that a task writes": written_lines,
    "values of a diff": different_values,
    "args of code": lambda count: code(args=keyed(count)),
    "libs of code": lambda count: code(libs=keyed(count, lambda n: "math")),
    "reasons of commands": reasons(lambda scenario, names: [scenario.take(name) for name in names]),
    "reasons of held tokens": reasons(lambda scenario, names: None, policy={"admit": HELD}),
    "reasons of a join": reasons(lambda scenario, names: [scenario.done(name) for name in names[1:]]),
    "reasons of a failure": reasons(lambda scenario, names: scenario.failed(names[0])),
} | {f"a list as {output}": listed(output) for output in ("text", "yaml", "name")}
DOORS |= DOCTOR


@pytest.mark.parametrize("name", in_gate(DOORS, 3))
def test_a_door_takes_work_that_grows_with_what_comes(name: str) -> None:
    assert_near_linear(DOORS[name], PARTS)
