"""Choices: the evaluation of templates by the server, within a budget, and by another process beyond it.

A choice is a list of options in order, each with a guard and an optional value to render: the rules of an admission,
the
arcs of a step run, the result of the execution. All choices that follow from one fact share a budget
(``limits.max_inline_operations``). A choice that exceeds it becomes a :class:`Question` with all its inputs as plain
JSON,
which :func:`answer` evaluates in any process with the same result (PROTOCOL §2 *Template work*). The validation of a
workload against its schema works alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from noetl_stream.engine.state import Chosen, Execution
from noetl_stream.errors import PayloadRefused, WorkloadRefused
from noetl_stream.model.events import Evaluated
from noetl_stream.model.json import codec
from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.model.outcome import Reference
from noetl_stream.playbook.workload import WorkloadSchema
from noetl_stream.sealing.data_references import is_head
from noetl_stream.template import (
    ExpressionError,
    Guard,
    OverBudget,
    ReferenceNeeded,
    ResultView,
    Scope,
    Template,
    TemplateText,
    compile_text,
    holds,
    render,
)
from noetl_stream.template.runtime.scope import PackedScope, pack, unpack

Read = TypeVar("Read", Guard, Template)
T = TypeVar("T")

RESULT: Final = "result"
"""The id of the choice that renders the execution's result. Other choices have the id of their token or step run."""

WORKLOAD: Final = "workload"
"""The id of the choice that validates the workload against its schema."""

MAX_ANSWER_BYTES: Final = 2 * 1024 * 1024
"""The most bytes of one answer, which becomes one entry of the journal."""

MAX_CHOICES: Final = 100
"""The most choices in one set of questions."""

_SHARED: Final = ("workload", "ctx", "steps", "execution_id", "execution")
_OWN: Final = ("args", "token", "vars", "event")
_BYTES_DECODED_PER_OPERATION: Final = 128
_VIEWS_PER_OPERATION: Final = 16


NO_SCOPE: Final = Scope({})
"""The scope of a choice without templates."""


class Option(Protocol):
    """An option of a choice. Without a ``guard`` it always holds; ``label`` names ``value`` in errors."""

    @property
    def guard(self) -> Guard | None: ...
    @property
    def value(self) -> Template | None: ...
    @property
    def label(self) -> str: ...


class Rendering(NamedTuple):
    """An option that only renders a value."""

    guard: Guard | None
    value: Template | None
    label: str


class Choice(msgspec.Struct, frozen=True, gc=False):
    """A list of options in order. ``first``: only the first option that holds is chosen. ``has_else``: the last option
    is chosen only if no other is.

    ``waits``: a guard that reads a key of ``ctx`` that is not there does not hold yet (LANGUAGE §4).
    """

    options: Sequence[Option]
    scope: Scope
    first: bool = True
    waits: bool = False
    has_else: bool = False


class EvaluationNeeded(Exception):
    """The choices exceed the budget of their fact: another process must make them."""

    def __init__(self, choices: Sequence[str]) -> None:
        super().__init__(f"choices {', '.join(choices)} cost too much to be made here")
        self.choices: Final = choices


class OptionText(msgspec.Struct, frozen=True, omit_defaults=True):
    """An option of a question; ``guard`` and ``value`` are indexes into :attr:`Questions.texts`."""

    guard: int | None = None
    value: int | None = None
    label: str = ""


class Question(msgspec.Struct, frozen=True, omit_defaults=True):
    """A choice with the part of the scope that no other choice reads."""

    options: list[OptionText]
    first: bool
    own: PackedScope
    waits: bool = False
    has_else: bool = False


class WorkloadQuestion(msgspec.Struct, frozen=True):
    """The validation of a merged workload against a JSON Schema."""

    schema: dict[str, Any]
    workload: dict[str, Any]


class Questions(msgspec.Struct, frozen=True, omit_defaults=True):
    """The choices of one state by id, with everything they read."""

    shared: PackedScope
    limits: Limits
    texts: list[TemplateText]
    choices: dict[str, Question]
    references: dict[str, object]
    workload: WorkloadQuestion | None = None


class Answers(msgspec.Struct, frozen=True, omit_defaults=True):
    """The results of choices, and the reference that must be loaded before the remaining ones can be made."""

    chosen: dict[str, Evaluated] = {}
    reference: Reference | None = None


_questions: Final = msgspec.json.Decoder(Questions)
_answers: Final = msgspec.json.Decoder(Answers)


def evaluate_choice(choice: Choice) -> Evaluated:
    """Evaluates a choice.

    Raises:
        ReferenceNeeded: it reads a result that must be loaded first.
        OverBudget: it costs more than is left of the budget of its scope.
    """
    guards: list[bool] = []
    waits_for: dict[int, str] = {}
    chosen: list[Option] = []
    scope, options = choice.scope, choice.options
    last_else = options[-1] if choice.has_else else None
    try:
        if scope.budget is not None and (views := scope.namespaces.get("steps")):
            scope.budget.spend(len(views) // _VIEWS_PER_OPERATION)
        for option in options:
            if option is last_else and chosen:
                break
            guard = option.guard
            try:
                held = guard is None or evaluate(holds, guard, scope, guard.source)
            except ExpressionError as error:
                if not (choice.waits and error.missing.startswith("ctx.")):
                    raise
                held, waits_for[len(guards)] = False, error.missing
            guards.append(held)
            if held:
                chosen.append(option)
                if choice.first:
                    break
        values = [evaluate(render, one.value, scope, one.label) for one in chosen if one.value is not None]
    except ExpressionError as error:
        return Evaluated(guards, error=str(error))
    return Evaluated(guards, values, waits_for=waits_for)


def choice_outcome(
    state: Execution, choice_id: str, choice: Callable[[], Choice], is_valid: Callable[[Chosen], bool]
) -> Evaluated:
    """The evaluation of a choice: that of another process if it is still valid, else made here.

    Raises:
        ReferenceNeeded: it reads a result that must be loaded first.
        EvaluationNeeded: another process must make it.
    """
    if state.chosen:
        known = state.chosen.get(choice_id)
        if known is not None and is_valid(known):
            return known.evaluated
    return evaluate_here(choice_id, choice())


def evaluate_here(choice_id: str, choice: Choice) -> Evaluated:
    """The evaluation of a choice that no other process has made. Raises like :func:`choice_outcome`."""
    try:
        return evaluate_choice(choice)
    except OverBudget:
        raise EvaluationNeeded([choice_id]) from None


def is_current(state: Execution, chosen: Chosen) -> bool:
    """Whether ``ctx`` and ``steps``, which guards read, are unchanged since the choice was made."""
    return chosen.ctx is state.ctx and chosen.steps is state.steps


def evaluate(read: Callable[[Read, Scope], T], template: Read, scope: Scope, expression: str) -> T:
    """Evaluates a template on the server; ``read`` is ``render`` or ``holds``.

    Raises:
        ReferenceNeeded: it reads a result that must be loaded first.
        ExpressionError: it cannot be evaluated, or that result is too large to load here (LANGUAGE §10).
        OverBudget: it costs more than is left of the budget of its scope.
    """
    if template.steps and scope.budget is not None:
        scope.budget.spend(_cost_of_results(template, scope))
    try:
        return read(template, scope)
    except ReferenceNeeded as needed:
        size, at_most = needed.reference.size, scope.limits.max_resolve_bytes
        if size <= at_most:
            raise
        text = (
            f"reads a result of {size} bytes, kept by reference; the server loads at most {at_most} "
            "(limits.max_resolve_bytes): return the small value from a task (set_ctx or set_vars) and read that instead"
        )
        raise ExpressionError(text, expression=expression) from None


def _cost_of_results(template: Guard | Template, scope: Scope) -> int:
    """The cost of decoding the results of steps that the template reads."""
    views = scope.namespaces.get("steps", {})
    read = views.values() if None in template.steps else [views.get(name) for name in template.steps]
    return sum(view.inline_bytes for view in read if isinstance(view, ResultView)) // _BYTES_DECODED_PER_OPERATION


def ask(choices: dict[str, Choice], limits: Limits) -> Questions | None:
    """The choices of one state as questions; ``None`` without any."""
    if not choices:
        return None
    texts: dict[int, int] = {}
    listed: list[TemplateText] = []

    def index_of(template: Guard | Template | None) -> int | None:
        if template is None:
            return None
        if id(template) not in texts:
            texts[id(template)] = len(listed)
            listed.append(replace(template.text, bindings=dict(template.text.bindings)))
        return texts[id(template)]

    questions: dict[str, Question] = {}
    all_reads: set[tuple[str, str | None]] = set()
    for choice_id, choice in choices.items():
        templates = [template for one in choice.options for template in (one.guard, one.value) if template is not None]
        reads = {read for template in templates for read in template.reads}
        all_reads |= reads
        options = [OptionText(index_of(one.guard), index_of(one.value), one.label) for one in choice.options]
        own = pack(choice.scope.namespaces, _OWN, reads)
        questions[choice_id] = Question(options, choice.first, own, choice.waits, choice.has_else)
    scope = next(iter(choices.values())).scope
    seen = {name: value for choice in choices.values() for name, value in choice.scope.namespaces.items()}
    shared = pack(seen, _SHARED, all_reads)
    packed = [shared, *(question.own for question in questions.values())]
    keys = {reference.key for part in packed for reference in part.references()}
    references = {key: value for key, value in scope.references.items() if key in keys or is_head(key)}
    return Questions(shared, limits, listed, questions, references)


def ask_of_workload(schema: WorkloadSchema, workload: dict[str, Any]) -> Questions:
    """The question whether the merged workload matches its schema."""
    return Questions(PackedScope(), DEFAULT_LIMITS, [], {}, {}, WorkloadQuestion(schema.content, workload))


def _compared(question: WorkloadQuestion) -> Evaluated:
    """The result of the validation. For a mismatch, the values are the JSON pointer of the part and the reason."""
    refused = WorkloadSchema(question.schema).refusal(question.workload)
    if refused is None:
        return Evaluated([True])
    return Evaluated([False], [refused.pointer, refused.reason], refused.message)


def refusal_in(evaluated: Evaluated) -> WorkloadRefused | None:
    """The reason for refusing the workload, if the validation failed."""
    return WorkloadRefused(evaluated.error, *evaluated.values) if evaluated.error else None


def answer(questions: Questions) -> Answers:
    """The results of the choices, as far as they can be made with these references."""
    if questions.workload is not None:
        return Answers({WORKLOAD: _compared(questions.workload)})
    templates = [compile_text(text) for text in questions.texts]
    shared = unpack(questions.shared)
    chosen: dict[str, Evaluated] = {}
    room = MAX_ANSWER_BYTES
    for choice_id, question in questions.choices.items():
        scope = Scope(shared | unpack(question.own), questions.references, questions.limits)
        options = [_option(option, templates) for option in question.options]
        try:
            evaluated = evaluate_choice(Choice(options, scope, question.first, question.waits, question.has_else))
        except ReferenceNeeded as needed:
            return Answers(chosen, needed.reference)
        size = len(codec.encode(evaluated))
        if size > MAX_ANSWER_BYTES:
            text = f"the values are {size} bytes together; templates of this cost may render {MAX_ANSWER_BYTES}"
            evaluated, size = Evaluated(evaluated.guards, error=text), 0
        room -= size
        if room < 0:
            break
        chosen[choice_id] = evaluated
    return Answers(chosen)


def answer_json(questions: bytes) -> bytes:
    """Evaluates questions as :func:`answer` does, from JSON to JSON."""
    return codec.encode(answer(_questions.decode(questions)))


def decode_answers(data: bytes) -> Answers:
    """Decodes answers from JSON.

    Raises:
        PayloadRefused: they cannot be read.
    """
    try:
        return _answers.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadRefused(f"cannot read these answers: {error}") from None


def _option(option: OptionText, templates: Sequence[Guard | Template]) -> Rendering:
    guard = None if option.guard is None else templates[option.guard]
    value = None if option.value is None else templates[option.value]
    assert not isinstance(guard, Template) and not isinstance(value, Guard)
    return Rendering(guard, value, option.label)
