"""``kind: python`` with ``function``: a function of a module is called with the task's inputs (LANGUAGE §12)."""

from __future__ import annotations

import asyncio
import importlib
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from noetl_stream.settings.children import ChildSettings
from noetl_stream.tools.contract import ToolFailure, ToolResult
from noetl_stream.tools.python.ahead import CompiledModules
from noetl_stream.tools.python.job import JobFailed, run_job
from noetl_stream.tools.python.signatures import args_warning
from noetl_stream.tools.python.tool import PythonTool
from noetl_testkit.waiting import TIMEOUT_S, until, until_it_is

in_child = pytest.mark.asyncio(loop_scope="module")

ORDER = {"id": "A-1", "due": "2026-01-31", "total": 12.5}


def call(function: str, **args: Any) -> Any:
    """The value of a function of the samples, called in this process."""
    module, _, name = function.rpartition(":")
    context = dict.fromkeys(("execution_id", "step", "task", "idempotency_key", "attempt", "deadline"))
    return run_job({
        "function": f"{module or 'function_samples'}:{name}", "args": args, "place": "step.task", "context": context
    })  # fmt: skip


def refusal(function: str, **args: Any) -> str:
    with pytest.raises(JobFailed) as failed:
        call(function, **args)
    assert failed.value.error["kind"] == "invalid_input"
    return str(failed.value.error["message"])


def open_folder(factory: pytest.TempPathFactory) -> Path:
    """A folder that children with a user of their own can read."""
    folder = factory.mktemp("flows")
    for opened in (folder, folder.parent):
        opened.chmod(0o755)
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tool() -> AsyncIterator[PythonTool]:
    tool = PythonTool(max_children=1)
    yield tool
    await tool.close()


async def run(tool: PythonTool, make_call: Any, *, knobs: Any = None, **inputs: Any) -> ToolResult:
    async with asyncio.timeout(TIMEOUT_S):
        return await tool.run(make_call(inputs, knobs=knobs))


# --- what runs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "args", "expected"),
    [
        ("bill", {"order": ORDER}, {"id": "A-1", "due": "2026-03-02", "total": 25, "size": "s"}),
        (
            "bill",
            {"order": {**ORDER, "size": "s"}, "days": 1},
            {**ORDER, "due": "2026-02-01", "total": 25, "size": "s"},
        ),
        ("count", {"rows": [1, 2, 3], "factor": 2}, 6.0),
        ("later", {"n": 1}, 2),
        ("placed", {"first": 1, "third": 9}, [1.0, 2, 9]),
        ("add_ten", {"rows": [1, 2]}, 20),
        ("multiply", {"due": "2026-01-31"}, 4052),
        ("anything", {"a": 1, "b": [None]}, {"a": 1, "b": [None]}),
        ("Reports.total", {"rows": [1, 2]}, 3),
        (
            "model_samples:longest",
            {"visits": [{"at": "2026-01-01T00:00:00Z", "pages": 2}, {"at": "2026-01-02T00:00:00Z", "pages": 9}]},
            {"at": "2026-01-02T00:00:00+00:00", "pages": 9},
        ),
    ],
)
def test_inputs_become_values_of_the_parameters_types_and_results_plain_values(
    function: str, args: dict[str, Any], expected: Any
) -> None:
    assert call(function, **args) == expected


@in_child
async def test_a_function_runs_in_a_child_and_what_it_prints_is_kept(tool: PythonTool, make_call: Any) -> None:
    ran = await run(tool, make_call, function="function_samples:bill", args={"order": ORDER})
    assert (ran.result["total"], ran.output) == (25, "bills A-1\n")


@in_child
async def test_a_parameter_annotated_with_the_context_gets_the_run(tool: PythonTool, make_call: Any) -> None:
    ran = await run(tool, make_call, function="function_samples:place", args={"n": 1})
    call = make_call({})
    assert ran.result == [1, call.execution_id, call.step, call.task, call.idempotency_key, True]
    assert ran.output == "INFO:task:at attempt 1\n"


@in_child
async def test_of_runs_that_share_a_process_the_first_imports_the_module(
    make_call: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = open_folder(tmp_path_factory)
    (folder / "shared_flow.py").write_text("print('imported')\nasync def told() -> str:\n    return 'told'\n")
    tool = PythonTool(ChildSettings(python_path=(str(folder),)), max_children=1)
    ran = [
        await run(tool, make_call, function="shared_flow:told", args={}, knobs={"python_shared": True})
        for _ in range(3)
    ]
    await tool.close()
    assert [(one.result, one.output) for one in ran] == [("told", "imported\n"), ("told", ""), ("told", "")]


@in_child
async def test_an_async_function_shares_a_process(tool: PythonTool, make_call: Any) -> None:
    ran = await run(tool, make_call, function="function_samples:later", args={"n": 4}, knobs={"python_shared": True})
    assert ran.result == 5


@in_child
async def test_a_run_sees_the_present_file_and_its_output_though_the_module_is_imported_ahead(
    make_call: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = open_folder(tmp_path_factory)
    module, printed = folder / "edited_flow.py", []
    tool = PythonTool(ChildSettings(python_path=(str(folder),)), max_children=1)
    for text in ("first", "first", "first", "second"):
        module.write_text(f"print('imported')\ndef told() -> str:\n    print('called')\n    return {text!r}\n")
        ran = await run(tool, make_call, function="edited_flow:told", args={})
        printed.append((ran.result, ran.output))
    await tool.close()
    assert printed == [(text, "imported\ncalled\n") for text in ("first", "first", "first", "second")]


@in_child
async def test_a_callback_of_another_run_leaves_no_trace(
    make_call: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = open_folder(tmp_path_factory)
    for name in ("first_flow", "second_flow"):
        (folder / f"{name}.py").write_text(
            f"import os, tempfile\nprint('{name}')\nMADE = tempfile.mkdtemp()\n"
            "def there() -> bool:\n    return os.path.isdir(MADE)\n"
        )
    tool = PythonTool(ChildSettings(python_path=(str(folder),)), max_children=1)
    called = ("first_flow", "second_flow", "first_flow", "first_flow")
    ran = [await run(tool, make_call, function=f"{name}:there", args={}) for name in called]
    code = "import first_flow\nreturn first_flow.there()"
    ran.append(await run(tool, make_call, code=code))
    await tool.close()
    assert [(one.result, one.output) for one in ran] == [(True, f"{name}\n") for name in (*called, "first_flow")]


@in_child
async def test_a_module_is_imported_ahead_once_two_runs_in_a_row_have_called_it(
    make_call: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = open_folder(tmp_path_factory)
    text = "import os\nos.environ['SEEN'] = 'yes'\ndef one() -> int:\n    return 1\ndef two() -> int:\n    return 2\n"
    (folder / "heavy_flow.py").write_text(text)
    tool = PythonTool(ChildSettings(python_path=(str(folder),)), max_children=1)

    async def has_seen(*called: str) -> Any:
        """Whether the module was imported in the process of code, after these runs."""
        for name in called:
            await run(tool, make_call, function=f"heavy_flow:{name}", args={})
        return (await run(tool, make_call, code="import os\nreturn os.environ.get('SEEN')")).result

    assert await has_seen("one") is None
    await until_it_is("yes", lambda: has_seen("one", "two"))
    await until_it_is(None, has_seen)
    await tool.close()


@pytest.mark.parametrize("end", ["close()", "detach()"])
@pytest.mark.parametrize("is_shared", [False, True])
@in_child
async def test_code_may_close_its_output(tool: PythonTool, make_call: Any, end: str, is_shared: bool) -> None:
    code = f"import sys\nasync def main():\n    print('told')\n    sys.stdout.{end}\n    return 1"
    ran = await run(tool, make_call, code=code, knobs={"python_shared": is_shared})
    assert (ran.result, ran.output) == (1, "told\n")


@in_child
async def test_a_model_of_msgspec_is_one_although_something_loads_pydantic(tool: PythonTool, make_call: Any) -> None:
    ran = await run(tool, make_call, function="model_samples:double", args={"paid": {"amount": 4}})
    assert ran.result == 8


async def test_a_template_compiles_a_module_and_compiles_it_again_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "compiled_flows"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "daily.py").write_text("raise RuntimeError('a template runs nothing')")
    monkeypatch.syspath_prepend(tmp_path)
    modules = CompiledModules()

    def compiled() -> bool:
        modules.compile("compiled_flows.daily:run")
        return modules.find_spec("compiled_flows.daily") is not None

    await until(compiled)
    monkeypatch.setattr(sys, "meta_path", [modules, *sys.meta_path])
    with pytest.raises(RuntimeError, match="runs nothing"):
        importlib.import_module("compiled_flows.daily")
    assert type(vars(sys.modules["compiled_flows"])["__loader__"]).__name__ == "_CompiledLoader"

    with pytest.raises(RuntimeError, match="runs nothing"):
        modules.load("compiled_flows.daily")
    assert "compiled_flows.daily" not in sys.modules

    (package / "daily.py").write_text("VERSION = 2")
    assert modules.find_spec("compiled_flows.daily") is None
    await until(compiled)
    del sys.modules["compiled_flows"]
    assert modules.load("compiled_flows.daily").VERSION == 2
    assert sys.modules["compiled_flows"].daily is sys.modules["compiled_flows.daily"]


# --- heartbeats and cancellation --------------------------------------------------------------------------------------


def told(make_call: Any, *, is_shared: bool = False, **inputs: Any) -> tuple[Any, list[Any], list[bytes]]:
    """A call, the details of its heartbeats, and its output."""
    details: list[Any] = []
    written: list[bytes] = []
    call = make_call(inputs, knobs={"python_shared": True} if is_shared else None)
    call = replace(call, beat=details.append, write=lambda _, data: written.append(data), previous_details={"row": 9})
    return call, details, written


@in_child
async def test_a_function_sends_heartbeats_and_gets_the_details_of_the_attempt_before(
    tool: PythonTool, make_call: Any
) -> None:
    call, details, _ = told(
        make_call, function="function_samples:long", args={"details": [1, {"row": 2}]}, auth=["warehouse"]
    )

    async def credential(name: str) -> str:
        return f"the secret of {name}"

    ran = await tool.run(replace(call, credential=credential))
    assert details == [1, {"row": 2}]
    assert ran.result == [{"row": 9}, {"warehouse": "the secret of warehouse"}]


@pytest.mark.parametrize(
    ("details", "message"),
    [("x" * 20_000, "a heartbeat has 20,016 bytes"), ("a\0b", "must not contain a NUL character")],
)
@in_child
async def test_details_that_are_too_much_raise_in_the_function(
    tool: PythonTool, make_call: Any, details: str, message: str
) -> None:
    with pytest.raises(ToolFailure, match=message):
        await run(tool, make_call, function="function_samples:long", args={"details": [details]})


@pytest.mark.parametrize("is_shared", [False, True])
@in_child
async def test_a_function_that_asks_whether_it_is_cancelled_may_end_by_itself(
    tool: PythonTool, make_call: Any, is_shared: bool
) -> None:
    call, details, written = told(make_call, function="function_samples:asks", args={}, is_shared=is_shared)
    running = asyncio.create_task(tool.run(call))
    await until(lambda: details == ["asked"])
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    if not is_shared:  # there asyncio cancels it
        await until(lambda: b"".join(written) == b"ends\n")


@in_child
async def test_code_that_sends_what_is_no_heartbeat_is_killed(tool: PythonTool, make_call: Any) -> None:
    code = """
        import os, socket, stat
        for number in range(3, 64):
            try:
                if stat.S_ISSOCK(os.fstat(number).st_mode):
                    note = b'{"heartbeat":"a\\\\u0000"}'
                    socket.socket(fileno=number).sendall(len(note).to_bytes(4, "big") + note)
            except OSError:
                pass
        import time
        time.sleep(600)
    """
    with pytest.raises(ToolFailure) as failed:
        await run(tool, make_call, code=textwrap.dedent(code))
    assert failed.value.error.kind == "crashed"


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "args", "message"),
    [
        ("count", {}, "function_samples:count: missing a required argument: 'rows': it is count(rows: "),
        ("count", {"rows": [], "n": 1}, "function_samples:count: got an unexpected keyword argument 'n': it is count("),
        ("placed", {"second": 1}, "function_samples:placed: missing a required argument: 'first'"),
        ("several", {"rest": [1]}, "function_samples:several: got an unexpected keyword argument 'rest'"),
        ("later", {"m": 1}, "function_samples:later: missing a required argument: 'n': it is later(n: 'int')"),
        ("later", {"n": "1"}, "function_samples:later: args.n: Expected `int`, got `str`"),
        ("count", {"rows": ["1"]}, "function_samples:count: args.rows: Expected `int`, got `str` - at `$[0]`"),
        ("bill", {"order": {"id": "A"}}, "function_samples:bill: args.order: Object missing required field `due`"),
        ("nothing", {}, "function: function_samples has no nothing"),
        ("NUMBER", {}, "function: function_samples:NUMBER is not a function but int"),
        (
            "model_samples:longest",
            {"visits": [{"at": "2026-01-01T00:00:00Z", "pages": 0}]},
            "model_samples:longest: args.visits.0.pages: Input should be greater than 0",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_named(function: str, args: dict[str, Any], message: str) -> None:
    assert refusal(function, **args).startswith(message)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("thing", "result.things[1]: function_samples.Thing cannot be converted to JSON"),
        ("lazy", "result: generator cannot be converted to JSON; write list(value)"),
        ("undefined", "function_samples:undefined: its annotations cannot be read: name 'Elsewhere' is not defined"),
    ],
)
def test_a_value_that_fits_no_type_is_named(function: str, message: str) -> None:
    with pytest.raises(JobFailed) as failed:
        call(function, n=1)
    assert failed.value.error["message"] == message
    assert failed.value.error["kind"] == ("invalid_input" if function == "undefined" else "result_not_json")


@in_child
async def test_plain_types_are_read_without_pydantic(tool: PythonTool, make_call: Any) -> None:
    with pytest.raises(ToolFailure) as failed:
        await run(tool, make_call, function="function_samples:bill", args={"order": {**ORDER, "due": "tomorrow"}})
    assert failed.value.error.message == "function_samples:bill: args.order: Invalid RFC3339 encoded date - at `$.due`"


def test_a_missing_module_is_reported_with_where_to_install_it() -> None:
    with pytest.raises(JobFailed) as failed:
        call("no_such_module:main")
    message = failed.value.error["message"]
    assert message.startswith("function: No module named 'no_such_module'; install it in ")
    assert "`python: { requires: [...] }`" in message and "NOETL_PYTHON_PATH" in message


@in_child
async def test_an_exception_says_whether_to_try_again_and_where_it_was_raised(tool: PythonTool, make_call: Any) -> None:
    with pytest.raises(ToolFailure) as failed:
        await run(tool, make_call, function="function_samples:refuse", args={"n": 3})
    error = failed.value.error
    assert (error.kind, error.retryable, error.retry_after_s) == ("exception", True, 7)
    assert "3 are waiting (line " in error.message and "function_samples.py)" in error.message
    assert set(failed.value.helper) == {"exception_type", "traceback"}
    assert "call_function" not in failed.value.helper["traceback"], "it begins in the author's file"


@pytest.mark.parametrize(("count", "retryable", "after_s"), [(2, True, 1), (3, False, None)])
def test_exceptions_of_a_group_decide_together_and_are_named(
    count: int, retryable: bool, after_s: float | None
) -> None:
    with pytest.raises(JobFailed) as failed:
        call("refuse_together", n=count)
    error = failed.value.error
    assert (error["retryable"], error["retry_after_s"]) == (retryable, after_s)
    assert f"({count} sub-exceptions): noetl_stream_client.tasks.Retryable: later; " in error["message"]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "exactly one of `code` and `function`"),
        ({"code": "return 1", "function": "a:b"}, "exactly one of `code` and `function`"),
        ({"function": "a.b"}, "should match pattern"),
        ({"function": "a:b", "libs": {"np": "numpy"}}, "`libs` goes with `code`"),
        ({"code": "return 1", "auth": "shop"}, "`auth` goes with `function`"),
        ({"function": "function_samples:count", "args": {"rows": []}, "shared": True}, "must be `async def`"),
    ],
)
@in_child
async def test_a_task_has_code_or_a_function(
    tool: PythonTool, make_call: Any, inputs: dict[str, Any], message: str
) -> None:
    knobs = {"python_shared": True} if inputs.pop("shared", False) else None
    with pytest.raises(ToolFailure, match=message):
        await run(tool, make_call, knobs=knobs, **inputs)


# --- what check says, without importing -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "args", "said"),
    [
        ("count", {"rows": "{{ fetch.rows }}"}, None),
        ("count", {"rows": [], "factor": "x"}, "(rows: list[int], *, factor: float=1.0) wants float for `factor`"),
        ("count", {"row": []}, " needs `rows`, takes no `row`; did you mean `rows`?"),
        ("bill", {"order": ORDER, "days": "{{ workload.days }}"}, None),
        ("bill", {"order": ORDER, "days": True}, " wants int for `days`"),
        ("anything", {"whatever": 1}, None),
        ("place", {"n": 1}, None),
        ("Reports.total", {"rows": []}, None),
        ("cuont", {}, "`function_samples` has no function `cuont`; did you mean `count`?"),
        ("NUMBER", {}, None),
        ("Any", {}, None),
        ("model_samples:Visit", {}, None),
        ("no.such.module:main", {}, None),
        ("count", "{{ workload.args }}", None),
    ],
)
def test_check_reads_the_signature_from_the_source(function: str, args: Any, said: str | None) -> None:
    path = function if ":" in function else f"function_samples:{function}"
    found = args_warning({"function": path, "args": args})
    assert found is None if said is None else found is not None and found.endswith(said)
