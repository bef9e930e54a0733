"""Named limits (LANGUAGE §14): the operator sets them, a playbook may lower them, ``execution.started`` pins them.

``docs/reference/limits.md`` shows the same table; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from noetl_stream.errors import UsageError

VARIABLE_PREFIX: Final = "NOETL_LIMIT_"
"""The prefix of limit variables: ``NOETL_LIMIT_MAX_CTX_BYTES`` sets ``limits.max_ctx_bytes`` for a server."""


class LimitProblem(msgspec.Struct, frozen=True, gc=False):
    """The reason why a playbook cannot set a limit to a value.

    Attributes:
        name: The key under ``executor.spec.policy.limits``.
        code: The diagnostic code.
    """

    name: str
    code: Literal["unknown_key", "wrong_type", "invalid_value"]
    message: str
    hint: str | None


class Lowered(msgspec.Struct, frozen=True, gc=False):
    """The limits of a playbook, and the rejected ones, which keep the operator's value."""

    limits: Limits
    problems: tuple[LimitProblem, ...]


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Bounds of one execution. Bytes are bytes of JSON, ``_s`` seconds; those of templates are counted, never timed.

    Attributes:
        max_inline_bytes: A larger result is kept in the object store. A larger error, outcome block, signal or
            execution result is an error.
        max_resolve_bytes: A result in the object store that the server reads for a guard or `args`, or for the `in` of
            an inner loop.
        max_ctx_bytes: `ctx` as a whole.
        max_workload_bytes: The merged `workload`.
        max_loop_items_bytes: Items of a loop that one event holds, at most `max_inline_bytes`. A longer list is paged
            by a worker.
        max_loop_pages: Pages of one loop, of 256 KiB of items each.
        max_shared_bytes: Contributions of one step run's `set_shared` until they are folded.
        max_reused_bytes: What a rerun reuses of its original.
        max_stored_bytes: Results and pages of items of one execution that workers keep in the object store.
        max_task_runs: Task runs of one pipeline, so that jumps end.
        max_step_runs: Step runs of one execution, so that cycles of steps end.
        max_decisions_per_fact: Decisions that follow from one fact, so that no fact keeps the server busy for ever.
        max_in_flight: Iterations of one loop at the same time.
        max_deliveries: Deliveries of a command that were not given back, or issues without an end, before its step run
            fails.
        max_issues: Issues of a command that its queue lost before a worker took it, before its step run fails.
        max_call_depth: Depth of playbooks calling each other.
        max_descendants: Executions that follow from one through triggers on ends, over all of them, so that triggers
            that lead to one another end. Half of what is left of them may follow from each event that a step emits.
        max_queued_signals: Queued signals, of all names together.
        inline_delay_s: A longer retry delay suspends the pipeline instead of holding a worker.
        cancel_grace_s: How long running work may take to stop after a cancel.
        max_inline_operations: Work in templates that one fact may cost the server's loop. More is done by a process of
            its own.
        max_template_chars: Length of one text that holds a template.
        max_template_depth: Nesting of a template's expressions, its blocks, and the values that contain it.
        max_template_operations: Work of one rendering: loop turns, calls, what filters and comparisons meet, and texts
            and results by their size.
        max_template_output_chars: Text that one rendering produces, intermediate texts included.
        max_template_result_items: Elements of the lists and mappings that one rendering returns.
        max_template_result_chars: Characters of the texts that one rendering returns.
        max_template_range_items: Length of one `range()`.
        max_template_repeat_items: Length of one list made by `*`, `+`, a slice or a filter.
        max_template_number_bits: Size of a whole number that a template computes.
        max_template_call_depth: Nesting of a template's macros and recursive loops.
    """

    max_inline_bytes: int = 64 * 1024
    max_resolve_bytes: int = 4 * 1024 * 1024
    max_ctx_bytes: int = 1024 * 1024
    max_workload_bytes: int = 1024 * 1024
    max_loop_items_bytes: int = 64 * 1024
    max_loop_pages: int = 4_096
    max_shared_bytes: int = 16 * 1024 * 1024
    max_reused_bytes: int = 32 * 1024 * 1024
    max_stored_bytes: int = 1024 * 1024 * 1024
    max_task_runs: int = 10_000
    max_step_runs: int = 100_000
    max_decisions_per_fact: int = 1_000
    max_in_flight: int = 1_000
    max_deliveries: int = 5
    max_issues: int = 20
    max_call_depth: int = 16
    max_descendants: int = 1_000
    max_queued_signals: int = 1_000
    inline_delay_s: float = 5.0
    cancel_grace_s: float = 30.0
    max_inline_operations: int = 10_000
    max_template_chars: int = 65_536
    max_template_depth: int = 80
    max_template_operations: int = 1_000_000
    max_template_output_chars: int = 8_388_608
    max_template_result_items: int = 2_000_000
    max_template_result_chars: int = 67_108_864
    max_template_range_items: int = 100_000
    max_template_repeat_items: int = 1_000_000
    max_template_number_bits: int = 4_096
    max_template_call_depth: int = 40

    def lower_to(self, wanted: Mapping[str, Any]) -> Lowered:
        """The limits lowered by a playbook (``executor.spec.policy.limits``).

        Args:
            wanted: Plain JSON values by the names of limits.
        """
        problems = [problem for name, value in wanted.items() if (problem := self._problem_of(name, value)) is not None]
        refused = {problem.name for problem in problems}
        kept = {name: _number(name, value) for name, value in wanted.items() if name not in refused}
        return Lowered(msgspec.structs.replace(self, **kept), tuple(problems))

    def _problem_of(self, name: str, value: Any) -> LimitProblem | None:
        if name not in NAMES:
            return LimitProblem(name, "unknown_key", f"unknown limit `{name}`", _suggestion(name))
        wrong = _mistake_in(name, value)
        if wrong is not None:
            return LimitProblem(name, *wrong, None)
        most = getattr(self, name)
        if value <= most:
            return None
        message = f"a playbook may only lower a limit: `{name}` is {most}"
        return LimitProblem(name, "invalid_value", message, "only the operator can raise it")


NAMES: Final = tuple(field.name for field in msgspec.structs.fields(Limits))
"""The names of all limits, in the order of the documentation."""

_OLDER_NAMES: Final = {"max_payload_bytes": "max_inline_bytes"}
"""Older names of limits in the sources (v10 §5.1), with the present ones."""

DEFAULT_LIMITS: Final = Limits()

_MOST: Final[Any] = dict.fromkeys(NAMES, 2**62)

UNBOUNDED: Final = Limits(**_MOST)
"""The limits for compiling a playbook that a server has checked: only the server knows its operator's limits."""


def operator_limits(texts: Mapping[str, str]) -> Limits:
    """The limits of an installation: the defaults, with the operator's values, which may be higher or lower.

    Args:
        texts: Numbers as written in the environment, by the names of limits.

    Raises:
        UsageError: a name is unknown or a number is invalid; it names the variable.
    """
    given: dict[str, Any] = {}
    for name, text in texts.items():
        variable = VARIABLE_PREFIX + name.upper()
        if name not in NAMES:
            raise UsageError(f"{variable} sets an unknown limit: `limits.{name}`", hint=_suggestion(name))
        number = _read_number(text)
        wrong = _mistake_in(name, number)
        if wrong is not None:
            raise UsageError(f"{variable} is {text!r}: {wrong[1]}")
        given[name] = _number(name, number)
    return Limits(**given)


def _number(name: str, value: Any) -> float:
    return value if _is_whole(name) else float(value)


def _is_whole(name: str) -> bool:
    return type(getattr(DEFAULT_LIMITS, name)) is int


def _mistake_in(name: str, value: Any) -> tuple[Literal["wrong_type", "invalid_value"], str] | None:
    whole = _is_whole(name)
    if type(value) is not int and (whole or type(value) is not float):
        return "wrong_type", f"`{name}` must be {'a whole number' if whole else 'a number'}"
    least = 1 if whole else 0
    if not least <= value < 2**62:
        return "invalid_value", f"`{name}` must be {least} or more"
    return None


def _read_number(text: str) -> int | float | str:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _suggestion(name: str) -> str:
    if name in _OLDER_NAMES:
        return f"write `{_OLDER_NAMES[name]}`, the limit that it became"
    from difflib import get_close_matches  # only for a mistake

    close = get_close_matches(name, NAMES, n=1)
    return f"did you mean `{close[0]}`?" if close else f"known limits: {', '.join(NAMES)}"
