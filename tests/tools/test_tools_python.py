from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from noetl_stream.tools.contract import ToolFailure, ToolResult
from noetl_stream.tools.python.tool import PythonTool
from noetl_testkit.waiting import TIMEOUT_S

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Runner:
    """Runs code in a single child process."""

    def __init__(self, tool: PythonTool, make_call: Any) -> None:
        self.tool = tool
        self._make_call = make_call

    async def __call__(self, code: str, *, scope: Any = None, knobs: Any = None, **inputs: Any) -> ToolResult:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.tool.run(self._make_call({"code": code, **inputs}, scope=scope, knobs=knobs))

    async def failure(self, code: str, **inputs: Any) -> ToolFailure:
        with pytest.raises(ToolFailure) as failed:
            await self(code, **inputs)
        return failed.value


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def run(make_call: Any) -> AsyncIterator[Runner]:
    tool = PythonTool(max_children=1)
    yield Runner(tool, make_call)
    await tool.close()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("result = 1 + 1", 2),
        ("return 3", 3),
        ("if n:\n    return 'early'\nresult = 'late'", "early"),
        ("if not n:\n    return 'early'\nresult = 'late'", "late"),
        ("def main(n, m=5):\n    return [n, m]", [7, 5]),
        ("def main(*, n, **rest):\n    return [n, rest]", [7, {"word": "w"}]),
        ("def main(n, /, word):\n    return [n, word]", [7, "w"]),
        ("def main(args, execution_id):\n    return [args, execution_id]", [{"n": 7, "word": "w"}, "execution-1"]),
        ("async def main(n):\n    return n", 7),
        ("main = lambda word: word", "w"),
        ("def main():\n    return 'main'\nresult = 'variable'", "variable"),
        ("x = 1", None),
        ("", None),
        ("result = None", None),
    ],
)
async def test_the_result_is_the_variable_or_the_return_or_main(run: Runner, code: str, expected: Any) -> None:
    assert (await run(code, args={"n": 7, "word": "w"})).result == expected


async def test_an_input_called_result_is_not_the_result(run: Runner) -> None:
    assert (await run("x = 1", args={"result": 5})).result is None
    assert (await run("def main(result):\n    return result + 1", args={"result": 5})).result == 6


async def test_an_input_called_main_is_not_called(run: Runner) -> None:
    assert (await run("result = main", args={"main": "text"})).result == "text"
    assert (await run("pass", libs={"main": {"from": "os", "import": "getpid"}})).result is None


@pytest.mark.parametrize(
    "code",
    [
        "'''A docstring.'''\nfrom __future__ import annotations\nx: int = 3\ndef f():\n    return x\nreturn f()",
        "import math\nfor x in [2, 3]:\n    pass\ntry:\n    raise ValueError\nexcept ValueError as e:\n    return x",
        "class A:\n    def f(self):\n        return 3\nreturn A().f()",
        "x = 3\ng = [y for y in range(x)]\ndef f():\n    return len(g)\nreturn f()",
        "with open('/dev/null') as f:\n    return 3",
        "x: int\nx = 3\nreturn globals()['x']",
        "def f():\n    return g()\ndef g():\n    return 3\nreturn f()",
    ],
)
async def test_code_with_a_return_at_the_top_level_still_behaves_like_a_module(run: Runner, code: str) -> None:
    assert (await run(code)).result == 3


async def test_inputs_come_by_name_and_together(run: Runner) -> None:
    code = "result = [a, args['a'], input_data['a'], args['not a name'], idempotency_key, execution_id]"
    assert (await run(code, args={"a": 1, "not a name": 2})).result == [1, 1, 1, 2, "key-1", "execution-1"]


async def test_an_input_may_be_called_input_data(run: Runner) -> None:
    assert (await run("result = [input_data, args]", args={"input_data": 1})).result == [1, {"input_data": 1}]


async def test_an_input_cannot_hide_a_reserved_name(run: Runner) -> None:
    failed = await run.failure("pass", args={"ctx": 1})
    assert failed.error.kind == "invalid_input"
    assert "args.ctx: reserved variable name" in failed.error.message


async def test_libs_are_bound_before_the_code(run: Runner) -> None:
    libs = {
        "m": "math",
        "root": {"from": "math", "import": "sqrt"},
        "p": {"from": "os", "import": "path"},
        "q": "os.path",
    }
    assert (await run("result = [m.floor(2.5), root(9), p is q]", libs=libs)).result == [2, 3.0, True]


async def test_a_missing_library_says_which(run: Runner) -> None:
    failed = await run.failure("pass", libs={"pd": "no_such_library_here"})
    assert failed.error.kind == "exception"
    assert failed.error.message.startswith("libs.pd: No module named 'no_such_library_here'")
    assert failed.helper["exception_type"] == "ModuleNotFoundError"


async def test_a_missing_module_is_to_be_installed_in_the_python_of_the_worker(run: Runner) -> None:
    failed = await run.failure("import no_such_library_here")
    assert f"install it in {sys.prefix}, the worker's Python, and restart workers" in failed.error.message
    assert "or deploy it with a project, in its `packages`" in failed.error.message


async def test_a_refused_path_names_the_setting_that_allows_it(run: Runner) -> None:
    failed = await run.failure("raise PermissionError(13, 'Permission denied', '/srv/data')")
    assert "'/srv/data'; a task may use its own folder, $HOME, and what" in failed.error.message
    assert "NOETL_CHILD_PATHS" in failed.error.message


async def test_log_records_of_the_code_are_shown_from_info_on(run: Runner) -> None:
    code = "import logging\nlog = logging.getLogger('my.tasks')\nlog.info('loading %d', 3)\nlog.debug('hidden')"
    assert (await run(code)).output == "INFO:my.tasks:loading 3\n"


async def test_code_that_sets_up_logging_itself_is_obeyed(run: Runner) -> None:
    code = "import logging\nlogging.basicConfig(format='%(message)s!', force=True)\nlogging.getLogger('x').info('own')"
    assert (await run(code)).output == "own!\n"


@pytest.mark.parametrize("code", ["await f()", "async with f(): pass", "return [x async for x in f()]"])
async def test_await_at_the_top_level_is_refused_with_the_way(run: Runner, code: str) -> None:
    failed = await run.failure(code)
    assert failed.error.kind == "syntax"
    assert "write `async def main(): …`" in failed.error.message


async def test_a_library_must_not_take_an_input_s_name(run: Runner) -> None:
    failed = await run.failure("pass", libs={"a": "math", "b c": "math"}, args={"a": 1})
    assert failed.error.message == "libs.a: already used by an input; use another name"


async def test_workload_ctx_and_iter_are_readable(run: Runner) -> None:
    scope = {"workload": {"a": [1]}, "ctx": {"b": 2}, "iter": {"index": 3}, "execution_id": "execution-1"}
    code = "import json\nresult = [workload['a'][0], ctx['b'], iter['index'], json.dumps(workload)]"
    assert (await run(code, scope=scope)).result == [1, 2, 3, '{"a": [1]}']
    assert (await run("result = sorted(set(globals()) & {'workload', 'ctx', 'iter'})", scope=scope)).result == [
        "ctx",
        "iter",
        "workload",
    ]


async def test_execution_is_readable_unless_an_input_or_the_code_has_that_name(run: Runner) -> None:
    scope = {"workload": {}, "ctx": {}, "iter": {}, "execution": {"due": "2026-12-20", "started": "2026-12-21"}}
    assert (await run("return execution['due']", scope=scope)).result == "2026-12-20"
    assert (await run("def main(execution): return execution['started']", scope=scope)).result == "2026-12-21"
    assert (await run("return execution", args={"execution": 7}, scope=scope)).result == 7
    assert (await run("execution = 8\nresult = execution", scope=scope)).result == 8
    failed = await run.failure("execution['due'] = 1", scope=scope)
    assert "read-only" in failed.error.message


@pytest.mark.parametrize(
    "change",
    [
        "ctx['a'] = 1",
        "ctx['list'].append(1)",
        "ctx['map'].update(b=1)",
        "del ctx['a']",
        "ctx['list'] += [1]",
        "ctx.clear()",
        "workload['a'] = 1",
        "iter['index'] = 1",
    ],
)
async def test_changing_them_is_an_error_and_not_a_silent_loss(run: Runner, change: str) -> None:
    scope = {"workload": {}, "ctx": {"a": 0, "list": [], "map": {}}, "iter": {}}
    failed = await run.failure(change, scope=scope)
    assert "workload, ctx and iter are read-only" in failed.error.message


async def test_a_copy_of_inputs_can_be_changed(run: Runner) -> None:
    code = """
import copy, pickle
deep = copy.deepcopy(ctx)
deep['list'].append(1)
shallow = dict(ctx)
shallow['new'] = 1
other = ctx['list'].copy()
other.append(2)
again = pickle.loads(pickle.dumps(ctx))
again['x'] = 1
result = [deep, shallow, other, ctx]
"""
    scope = {"workload": {}, "ctx": {"list": []}, "iter": {}}
    assert (await run(code, scope=scope)).result == [{"list": [1]}, {"list": [], "new": 1}, [2], {"list": []}]


async def test_values_python_has_and_json_has_not_are_converted(run: Runner) -> None:
    code = (
        "import datetime, decimal\nresult = {'d': datetime.date(2024, 1, 2), 'n': decimal.Decimal('1.5'), 's': {2, 1}}"
    )
    assert (await run(code)).result == {"d": "2024-01-02", "n": 1.5, "s": [1, 2]}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("result = {'rows': [{'ratio': float('nan')}]}", "result.rows[0].ratio: nan is not a valid JSON number"),
        ("return [object()]", "result[0]: object cannot be converted to JSON"),
        ("def main():\n    return {'f': main}", "result.f: function cannot be converted to JSON"),
    ],
)
async def test_a_result_without_a_json_form_is_refused_with_its_path(run: Runner, code: str, message: str) -> None:
    failed = await run.failure(code)
    assert (failed.error.kind, failed.error.message) == ("result_not_json", message)


@pytest.mark.parametrize("code", ["return 10**5000", "return {'n': [-(10**5000)]}"])
async def test_a_number_too_long_for_json_is_refused_with_its_path(run: Runner, code: str) -> None:
    failed = await run.failure(code)
    assert failed.error.kind == "result_not_json"
    assert "number longer than 4000 digits" in failed.error.message
    assert failed.error.message.startswith("result" if "n" not in code.partition("return")[2] else "result.n[0]")


async def test_the_longest_number_arrives_whole(run: Runner) -> None:
    assert (await run("return 10**3999")).result == 10**3999


async def test_a_result_over_the_limit_is_refused(run: Runner) -> None:
    assert (await run("result = 'x' * 98", knobs={"max_result_bytes": 100})).result == "x" * 98
    failed = await run.failure("result = 'x' * 99", knobs={"max_result_bytes": 100})
    assert failed.error.kind == "result_too_large"
    assert "101 bytes" in failed.error.message


async def test_an_exception_shows_the_playbook_s_own_lines(run: Runner) -> None:
    code = "def half(n):\n    raise ValueError('odd')\n\nprint('before')\nhalf(3)"
    failed = await run.failure(code)
    assert failed.error.kind == "exception"
    assert failed.error.message == "ValueError: odd (line 2 of step.task)"
    assert failed.helper["exception_type"] == "ValueError"
    assert failed.output == "before\n"
    assert failed.helper["traceback"].splitlines() == [
        "Traceback (most recent call last):",
        '  File "<step.task>", line 5, in <module>',
        "    half(3)",
        '  File "<step.task>", line 2, in half',
        "    raise ValueError('odd')",
        "ValueError: odd",
    ]


async def test_an_exception_after_a_top_level_return_has_the_same_lines(run: Runner) -> None:
    failed = await run.failure("if False:\n    return 1\n1 / 0")
    assert failed.error.message == "ZeroDivisionError: division by zero (line 3 of step.task)"
    assert '  File "<step.task>", line 3, in <module>\n    1 / 0' in failed.helper["traceback"]


async def test_the_playbook_s_own_exceptions_have_their_bare_name(run: Runner) -> None:
    failed = await run.failure("class Odd(Exception):\n    pass\nraise Odd()")
    assert failed.helper["exception_type"] == "Odd"
    failed = await run.failure("import json\njson.loads('{')")
    assert failed.helper["exception_type"] == "json.decoder.JSONDecodeError"


@pytest.mark.parametrize(
    ("code", "line"), [("x = 1\nif x\n    pass", 2), ("yield 1\nreturn 2", 1), ("x = 1\nbreak", 2), ("return = 3", 1)]
)
async def test_code_that_does_not_parse_is_a_syntax_error_with_its_line(run: Runner, code: str, line: int) -> None:
    failed = await run.failure(code)
    assert failed.error.kind == "syntax"
    assert failed.error.message.startswith(f"line {line}: ")
    assert failed.helper["exception_type"] == "SyntaxError"


@pytest.mark.parametrize("code", ["import sys\nsys.exit(3)", "raise SystemExit(0)", "raise KeyboardInterrupt"])
async def test_leaving_is_an_exception_and_the_child_lives(run: Runner, code: str) -> None:
    before = (await run("import os\nresult = os.getcwd()")).result
    failed = await run.failure(code)
    assert failed.error.kind == "exception"
    assert (await run("import os\nresult = os.getcwd()")).result == before


async def test_a_main_that_asks_for_an_absent_input_is_an_error_that_names_it(run: Runner) -> None:
    failed = await run.failure("def main(a, b):\n    pass", args={"a": 1, "c": 2})
    assert failed.error.kind == "invalid_input"
    assert failed.error.message == "main() needs 'b', but args has a, c"


@pytest.mark.parametrize(
    ("change", "look"),
    [
        ("import math\nmath.seen = True\nleft = 1", "import math\nreturn [hasattr(math, 'seen'), 'left' in globals()]"),
        ("import decimal\ndecimal.getcontext().prec = 3", "import decimal\nreturn str(decimal.Decimal('1234.56') + 1)"),
        ("import os\nos.environ['REGION'] = 'eu'", "import os\nreturn os.environ.get('REGION')"),
        (
            "import os, time\nos.environ['TZ'] = 'Asia/Tokyo'\ntime.tzset()",
            "import time\nreturn time.strftime('%H', time.localtime(0))",
        ),
        ("import os\nos.umask(0)", "import os\nreturn os.umask(0)"),
        ("import socket\nsocket.setdefaulttimeout(5)", "import socket\nreturn socket.getdefaulttimeout()"),
        ("import json\njson.dumps = lambda value: 'patched'", "import json\nreturn json.dumps(1)"),
        (
            "import threading\nthreading.Thread(target=threading.Event().wait).start()",
            "import threading\nreturn threading.active_count()",
        ),
        ("import signal\nsignal.alarm(600)", "import signal\nreturn signal.alarm(0)"),
        ("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)", "import signal\nreturn signal.getsignal(15)"),
        ("import logging\nlogging.disable()", "import logging\nreturn logging.root.manager.disable"),
        ("import sys\nsys.setrecursionlimit(5000)", "import sys\nreturn sys.getrecursionlimit()"),
        ("import os\nos.chdir('/')", "import os\nreturn os.getcwd() == os.environ['HOME']"),
        ("import os\nos.nice(5)", "import os\nreturn os.nice(0)"),
        (
            "import os\nos.makedirs('a/b')\nopen('a/c', 'w').close()\nos.symlink('/etc', 'd')",
            "import os\nreturn os.listdir()",
        ),
        (
            "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))",
            "import resource\nreturn resource.getrlimit(resource.RLIMIT_NOFILE)",
        ),
    ],
)
async def test_each_run_begins_in_the_state_of_a_fresh_child(run: Runner, change: str, look: str) -> None:
    fresh = (await run(look)).result
    await run(change)
    assert (await run(look)).result == fresh


async def test_code_that_ran_before_is_already_compiled(run: Runner) -> None:
    code = "import sys\nreturn sys.modules['noetl_stream.tools.python.code_compiler'].compile_program.cache_info().hits"
    hits = [(await run(code)).result for _ in range(5)]  # a process may be forked before its child hears of the code
    assert hits[-1] > hits[0]


async def test_a_process_does_not_repeat_the_random_numbers_of_another(run: Runner) -> None:
    numbers = [(await run("import random\nreturn random.random()")).result for _ in range(3)]
    assert len(set(numbers)) == 3


async def test_changed_inputs_do_not_reach_the_next_run(run: Runner) -> None:
    args = {"a": [1]}
    assert (await run("a.append(2)\nresult = a", args=args)).result == [1, 2]
    assert (await run("a.append(2)\nresult = a", args=args)).result == [1, 2]


async def test_dataclasses_and_string_annotations_find_their_module(run: Runner) -> None:
    code = """
from __future__ import annotations
import dataclasses, typing
@dataclasses.dataclass
class Row:
    n: typing.ClassVar[int] = 1
    m: int = 2
result = dataclasses.asdict(Row())
"""
    assert (await run(code)).result == {"m": 2}


@pytest.mark.parametrize(
    "inputs",
    [{}, {"code": 5}, {"code": "pass", "args": [1]}, {"code": "pass", "libs": {"m": {"x": 1}}}, {"code": "", "a": 1}],
)
async def test_wrong_inputs_are_refused(run: Runner, make_call: Any, inputs: dict[str, Any]) -> None:
    with pytest.raises(ToolFailure) as failed:
        await run.tool.run(make_call(inputs))
    assert failed.value.error.kind == "invalid_input"


async def test_an_exception_message_may_contain_surrogates(run: Runner) -> None:
    failure = await run.failure("raise ValueError('half \\ud83d of a sign')")
    assert failure.error.kind == "exception"
    assert "half \\ud83d of a sign" in failure.error.message
    assert "half \\ud83d of a sign" in failure.helper["traceback"]


async def test_code_knows_the_trace_of_its_own_task_alone(run: Runner, make_call: Any) -> None:
    code = "import os; return os.environ.get('TRACEPARENT')"
    seen = [
        (await run.tool.run(make_call({"code": code}, traceparent=one))).result
        for one in ("00-1-2-01", "", "00-3-4-01")
    ]
    assert seen == ["00-1-2-01", None, "00-3-4-01"]
