"""Advice on what to write into a test that lacks something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import indent
from typing import Final

from noetl_stream.playbook_tests.loading import LoadedTest
from noetl_stream.playbook_tests.reading import REAL_KINDS
from noetl_stream.playbook_tests.stubs import MAX_CALLS, MissingStub, RecordedCall
from noetl_stream.ports.operations.executions import ReasonDocument, WhyDocument

_RESULTS: Final = {
    "http": "{ status: 200, data: {} }",
    "postgres": "{ rows: [] }",
    "duckdb": "{ rows: [] }",
}
"""An example of a result, by kind of task."""


def missing_stub(missing: MissingStub, test: LoadedTest) -> str:
    """Says that a call has no stub, and what to write."""
    call, key = missing.call, missing.call.key
    playbook = next(one for one in (test.playbook, *test.catalog) if one.digest == key.digest)
    plan = playbook.checked.plan
    line = 0 if plan is None else plan.steps[key.step].tasks[plan.steps[key.step].task_index(key.task)].line
    which = f"attempt {call.attempt}, call {call.number}"
    if call.iteration:
        which += f", iteration {list(call.iteration)}"
    several = f"none of its {missing.others} stubs fits the call ({which})" if missing.others else f"no stub ({which})"
    stub = f"{key.step}.{key.task}: {{ result: {_RESULTS.get(call.kind, '{}')} }}"
    if playbook is test.playbook:
        snippet = f"given:\n  stubs:\n    {stub}"
    else:
        name = next(str(one.at.plain()) for one in test.test.given.catalog if str(one.file) == playbook.file)
        snippet = f"given:\n  catalog:\n    {name}:\n      stubs:\n        {stub}"
    where = f"{playbook.file}:{line}: task `{key.task}` of step `{key.step}` (kind {call.kind})"
    text = f"{where}: {several}; write\n{indent(snippet, '  ')}"
    if call.kind in REAL_KINDS and not call.inputs.get("attach"):
        text += f"\nor let it run: `given: {{ real: [{call.kind}] }}`"
    return text


def endless_calls(calls: Sequence[RecordedCall]) -> str:
    """Says that a test calls tasks without end."""
    (key, count), *_ = Counter(call.key for call in calls).most_common(1)
    return (
        f"more than {MAX_CALLS:,} calls, {count:,} of them of task `{key.task}` of step `{key.step}`: "
        "its stubs never end the loop; let one stand for a `call` of its own"
    )


def reason_lines(why: WhyDocument) -> Iterator[str]:
    """Why an execution waits; for a wait also what a test can write to end it."""
    for reason in why.reasons:
        hint = _end_advice(reason)
        yield f"{reason.sentence}{f' {hint}' if hint else ''}"


def _end_advice(reason: ReasonDocument) -> str:
    on = reason.waiting_on
    if on is None:
        return ""
    found = []
    if on.signal is not None:
        found.append(f"`- {{ signal: {on.signal} }}`")
    found += (f"`- {{ patch: {{ {key}: … }} }}`" for key in on.ctx)
    if on.request == "resume":
        found.append("`- { resume: done }`")
    if on.timer is not None:
        found.append("`- { after: 1d }`")
    return f"Write under `when`: {' or '.join(found)}." if found else ""
