"""Checks the code in a playbook, Python and SQL, with the parsers of its kinds (LANGUAGE §3 *Diagnostics*)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.kinds.inputs import spellings
from noetl_stream.playbook.kinds.spec import CodeCheck
from noetl_stream.playbook.model.task import TaskDraft
from noetl_stream.playbook.suggestions import did_you_mean
from noetl_stream.playbook.yaml.nodes import InText, Mapping, Scalar, holds_template, texts_of

MAX_PARSED_CHARS: Final = 65_536
"""The longest text of code that is parsed, in characters. A longer one is first checked when it runs."""
BINDING: Final = frozenset(["args", "libs"])
"""Inputs whose keys are variables of the code."""
MAX_PARSED_IN_ALL: Final = 2 * MAX_PARSED_CHARS
"""The most characters of code that are parsed in one playbook. Later texts are first checked when they run."""


def check_code(tasks: Iterable[TaskDraft], source: str, problems: Problems) -> None:
    """Reports code that does not parse. Text with templates is known only once rendered, and skipped."""
    parsed: set[tuple[CodeCheck, Scalar]] = set()
    chars = 0
    found = ((task, *code) for task in tasks for code in _code_of(task))
    for task, name, parse, text in found:
        place = replace(text, pointer="")
        if (parse, place) in parsed:
            continue
        parsed.add((parse, place))
        chars += len(text.plain())
        if chars > MAX_PARSED_IN_ALL:
            return
        bound = _names_bound_in(task)
        for problem in parse(text.plain()):
            if problem.name and (bound is None or problem.name in bound):
                continue
            if problem.severity == "warning" and problems.has_said("template_not_rendered", text.mark.line):
                continue  # it may come of the braces
            at = InText(source, text, problem.line, problem.column)
            report = problems.error if problem.severity == "error" else problems.warn
            near = did_you_mean(problem.name, bound or ()) if problem.name else None
            report("code_syntax", f"`{name}`: {problem.message}", at, near or problem.hint)


def _names_bound_in(task: TaskDraft) -> set[str] | None:
    """The names that the inputs of a task bind in its code; ``None`` if that is known only when they are rendered."""
    given = [node for name, node in task.inputs.values.items() if name in BINDING]
    if not all(isinstance(node, Mapping) for node in given):
        return None
    return {name for node in given if isinstance(node, Mapping) for name in node.keys}


def check_params(tasks: Iterable[TaskDraft], problems: Problems) -> None:
    """Reports params that their code does not name, and vice versa, which every run would refuse; and args that do not
    fit their function, as far as it is found here: workers may have another.
    """
    for task in tasks:
        kind = task.kind
        if kind is None or (kind.params_error is None and kind.args_warning is None):
            continue
        known = spellings(kind.inputs)
        nodes = {**task.inputs.values, **task.verbatim}
        given = {known[name]: node for name, node in nodes.items() if name in known}
        plain = {field: node.plain() for field, node in given.items()}
        if kind.params_error and (reason := kind.params_error(plain)) is not None:
            problems.error("invalid_value", reason, given.get("params") or task.at)
        if kind.args_warning and (reason := kind.args_warning(plain)) is not None:
            problems.warn("invalid_value", reason, given.get("args") or given["function"])


def check_knobs(tasks: Iterable[TaskDraft], problems: Problems) -> None:
    """Reports knobs that do not fit the code of their task: every run would refuse them."""
    for task in tasks:
        for (knob, name), error_of in task.kind.knob_errors.items() if task.kind else ():
            at, code = task.knobs_at.get(knob), task.verbatim.get(name)
            if at is None or code is None or not isinstance(text := code.plain(), str) or len(text) > MAX_PARSED_CHARS:
                continue
            if (reason := error_of(at.plain(), text)) is not None:
                problems.error("invalid_value", reason, at)


def _code_of(task: TaskDraft) -> Iterator[tuple[str, CodeCheck, Scalar]]:
    """The code of a task: the input's name, its parser, and the text."""
    if task.kind is None or not task.kind.code:
        return
    known = spellings(task.kind.inputs)
    for name, node in (*task.inputs.values.items(), *task.verbatim.items()):
        parse = task.kind.code.get(known.get(name, ""))
        for scalar, text in texts_of(node) if parse else ():
            is_code = name in task.verbatim or not holds_template(scalar)
            if parse and is_code and len(text) <= MAX_PARSED_CHARS:
                yield name, parse, scalar
