"""Checks the code in a playbook, Python and SQL, with the parsers of its kinds (LANGUAGE §3 *Diagnostics*)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from noetl_stream.playbook.check.bindings import Declarations
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.kinds.inputs import spellings
from noetl_stream.playbook.kinds.spec import CodeCheck, CodeProblem
from noetl_stream.playbook.model.step import StepDraft
from noetl_stream.playbook.model.task import LANGUAGE_KEYS, TaskDraft
from noetl_stream.playbook.suggestions import did_you_mean
from noetl_stream.playbook.yaml.nodes import InText, Mapping, Scalar, holds_template, texts_of

MAX_PARSED_CHARS: Final = 65_536
"""The longest code that is parsed, in characters. A longer text is first checked when it runs."""
BINDING: Final = frozenset(["args", "libs"])
"""Inputs whose keys are variables of the code."""
MAX_PARSED_IN_ALL: Final = 2 * MAX_PARSED_CHARS
"""The most characters of code that are parsed in one playbook. Later texts are first checked when they run."""


_READ: Final = re.compile(r"\b(?:steps\.)?([A-Za-z_]\w*)\b(?!\s*(?:\.\s*outcome\b|\())")
_INPUTS: Final = frozenset(
    ["inputs", "input", "params", "parameters", "kwargs", "data", "payload", "variables", "vars"]
)
"""Names that other tools have for the inputs of code."""


class NamesOfCode:
    """The names of a playbook as its code can read them, and the results that are read."""

    def __init__(self, declared: Declarations, steps: Sequence[StepDraft]) -> None:
        self._declared = declared
        self._steps = steps

    def is_read(self, task: TaskDraft) -> bool:
        """Whether a template reads the result of a task."""
        return id(task) in self._steps_read

    @cached_property
    def _texts(self) -> str:
        values = [task.inputs for step in self._steps for task in step.tasks]
        values += [arc.args for step in self._steps for arc in step.arcs if arc.args is not None]
        return "\n".join(text for value in values for _, text in texts_of(value) if "{{" in text)

    @cached_property
    def _steps_read(self) -> dict[int, str]:
        names = set(_READ.findall(self._texts))
        return {id(step.tasks[-1]): step.name for step in self._steps if step.tasks and step.name in names}

    def hint(self, problem: CodeProblem, bound: Collection[str], task: TaskDraft) -> str | None:
        """The hint of a problem, with the playbook's name for the missing name in the code."""
        name, hint = problem.name, problem.hint
        if problem.only_if_read and name and f"{self._steps_read[id(task)]}.{name}" in self._texts:
            return f'at the end of the code, write `return {{"{name}": {name}}}`'
        if not name or hint is None or f"workload.{name}" not in hint or name in self._declared.workload:
            return hint
        arg = min(bound, default="")
        if arg and name in _INPUTS:
            return f"each arg is a variable of the code: write {arg}, or args[{arg!r}]"
        if len(bound) == 1 and " needs " in problem.message:
            return f"the arg is called `{arg}`: write {arg} in place of {name}"
        path = name if name in self._declared.steps else f"ctx.{name}" if name in self._declared.ctx else ""
        value = f"{{{{ {path} }}}}" if path else "…"
        return f'pass it in: args: {{ {name}: "{value}" }}'


def _swallowed(task: TaskDraft, text: Scalar) -> tuple[str, int] | None:
    """The key of a task in the text of a block, and its line: it was meant to follow the block."""
    inputs = spellings(task.kind.inputs) if task.kind else {}
    for number, line in enumerate(str(text.value).split("\n") if text.style in ("|", ">") else (), 1):
        found = _KEY.match(line)
        if found is not None and (found[1] in inputs or found[1] in LANGUAGE_KEYS):
            return found[1], number
    return None


_KEY: Final = re.compile(r"(\w+):(?: *$| +[{\[\"'\d])")


def check_code(tasks: Iterable[TaskDraft], source: str, names: NamesOfCode, problems: Problems) -> None:
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
        if (key := _swallowed(task, text)) is not None:
            message = f"`{key[0]}:` stands within the text of `{name}`, and is a part of it"
            hint = f"move it to the column of `{name}`, behind the text"
            problems.warn("code_syntax", message, InText(source, text, key[1], 1), hint)
            continue
        for problem in parse(text.plain()):
            if problem.only_if_read and not names.is_read(task):
                continue
            if problem.name and not problem.only_if_read and (bound is None or problem.name in bound):
                continue
            if problem.severity == "warning" and problems.has_said("template_not_rendered", text.mark.line):
                continue  # the braces may be the cause
            if problem.severity == "warning" and problems.has_error_within(text.pointer.rpartition("/")[0]):
                continue  # an unreadable input may be the cause
            at = InText(source, text, problem.line, problem.column)
            report = problems.error if problem.severity == "error" else problems.warn
            near = did_you_mean(problem.name, bound or ()) if problem.name and not problem.only_if_read else None
            report("code_syntax", f"`{name}`: {problem.message}", at, near or names.hint(problem, bound or (), task))


def _names_bound_in(task: TaskDraft) -> set[str] | None:
    """The names that the inputs of a task bind in its code; ``None`` if they are known only when rendered."""
    given = [node for name, node in task.inputs.values.items() if name in BINDING]
    if not all(isinstance(node, Mapping) for node in given):
        return None
    return {name for node in given if isinstance(node, Mapping) for name in node.keys}


def check_params(tasks: Iterable[TaskDraft], problems: Problems) -> None:
    """Reports params that their code does not name, and vice versa, since every run would refuse them; and args that do
    not fit their function, if it is found here: workers may have another.
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
