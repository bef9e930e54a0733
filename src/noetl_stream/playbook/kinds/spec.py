"""Task kinds: their specifications for the checker, and the kinds of the language itself (LANGUAGE §8, §12).

The tools package provides one :class:`KindSpec` per kind. No tool runs the language's kinds: ``wait`` and ``playbook``
suspend the pipeline; ``workbook`` is replaced by the entry it names at compile time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator, model_validator

from noetl_stream.playbook.diagnostics import Severity


@dataclass(frozen=True, slots=True)
class CodeProblem:
    """A problem in the code of an input, at a line and a column of its text, both from 1.

    Only code that no run can accept is an error. ``name`` is an unbound name in the code: no problem if an input binds
    it. ``only_if_read``: no problem if nothing reads the result of the task; ``name`` is what the code could return.
    """

    message: str
    line: int = 1
    column: int = 1
    severity: Severity = "error"
    hint: str | None = None
    name: str = ""
    only_if_read: bool = False


CodeCheck = Callable[[str], Iterable[CodeProblem]]
"""A check of code, which does not run it."""

InputsCheck = Callable[[Mapping[str, Any]], str | None]
"""A check of inputs: returns the reason why they do not fit together, or ``None``. Called with the given inputs, by
field, with their templates as written.
"""

KnobCheck = Callable[[Any, str], str | None]
"""A check of a knob: returns the reason why its value does not fit the code, or ``None``. Does not run the code."""


@dataclass(frozen=True, slots=True)
class KindSpec:
    """A tool kind for the checker.

    Attributes:
        kind: The name used in playbooks.
        inputs: Model of the inputs next to ``kind``. Synonyms are pydantic alias choices; ``extra`` is ``forbid``
            except for kinds with free inputs.
        knobs: Model of the kind's own keys under ``spec`` (``policy`` and ``timeout`` belong to the language).
        verbatim: Inputs that are never rendered (LANGUAGE §2: python ``code``).
        beside: Keys of ``spec`` that may also be next to ``kind``, by their name there; both is an error (LANGUAGE §12
            *Synonyms*).
        statements: Inputs that contain SQL, under every name. A template in one is a warning: use a parameter.
        commands: Inputs that a shell reads: a template in one is a warning.
        code: The check of an input's code, by its field. Its texts have no templates and a bounded length.
        params_error: Compares the code with the input ``params``, which its error is about.
        args_warning: Compares the function with the input ``args``, which its warning is about.
        knob_errors: The check of a given knob against the code, by the names of the knob and of the code's input.
        helper: Name of the kind's block in ``outcome`` (``http``, ``pg``, ``py``), or ``None``.
        reads_scope: Whether the tool itself sees ``workload``, ``ctx`` and ``iter`` (python).
        combination_error: Called with the names of the given inputs; returns an error message if they do not go
            together, else ``None``.
        off: Whether the operator has switched the kind off: its tasks fail, and the checker warns.
        result_keys: The keys that a result of the kind can have; empty if that depends on the task.
    """

    kind: str
    inputs: type[BaseModel]
    knobs: type[BaseModel]
    verbatim: frozenset[str] = frozenset()
    beside: Mapping[str, str] = field(default_factory=dict, hash=False)
    statements: frozenset[str] = frozenset()
    commands: frozenset[str] = frozenset()
    code: Mapping[str, CodeCheck] = field(default_factory=dict, hash=False)
    params_error: InputsCheck | None = None
    args_warning: InputsCheck | None = None
    knob_errors: Mapping[tuple[str, str], KnobCheck] = field(default_factory=dict, hash=False)
    helper: str | None = None
    reads_scope: bool = False
    combination_error: Callable[[Collection[str]], str | None] | None = None
    off: bool = False
    result_keys: frozenset[str] = frozenset()


Kinds = Mapping[str, KindSpec]

SUSPENDING_KINDS: Final = frozenset({"wait", "playbook"})
"""The language's own kinds that run on a worker: they suspend the pipeline, which then holds no worker (LANGUAGE §8).
"""


class AnyInputs(BaseModel):
    """Inputs of an unknown kind: anything is accepted."""

    model_config = ConfigDict(defer_build=True, extra="allow")


def unchecked_kind(kind: str) -> KindSpec:
    """A kind that is not installed here but accepted anyway (``check --kinds``, LANGUAGE §3)."""
    return KindSpec(kind, AnyInputs, AnyInputs)


class LanguageInputs(BaseModel):
    """Inputs of a language kind. Strict: text never becomes a number (LANGUAGE §1)."""

    model_config = ConfigDict(defer_build=True, extra="forbid", strict=True, frozen=True)


class NoKnobs(LanguageInputs):
    """Language kinds have no keys of their own under ``spec``."""


class WaitInputs(LanguageInputs):
    """Inputs of ``wait``: exactly one of ``for_s``, ``until`` and ``signal``; ``signal`` needs ``timeout_s``."""

    for_s: float | None = Field(None, ge=0, allow_inf_nan=False, description="Duration in seconds.")
    until: str | float | None = Field(
        None,
        description="Time to wait for: ISO 8601 with an offset or `Z`, or seconds since 1970-01-01T00:00Z.",
    )
    signal: str | None = Field(
        None, min_length=1, description="Name of the signal to wait for; its payload is the result."
    )
    timeout_s: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="With `signal`: how long to wait, in seconds."
    )

    @field_validator("until")
    @classmethod
    def _check_time(cls, until: str | float | None) -> str | float | None:
        _unix_ms(until or 0)
        return until

    @model_validator(mode="after")
    def _check_combination(self) -> WaitInputs:
        error = wait_combination_error([name for name in WaitInputs.model_fields if getattr(self, name) is not None])
        if error is not None:
            raise ValueError(error)
        return self

    @property
    def until_ms(self) -> int | None:
        """``until`` in milliseconds since the epoch."""
        return None if self.until is None else _unix_ms(self.until)


class PlaybookInputs(LanguageInputs):
    """Inputs of ``playbook``."""

    path: str = Field(
        min_length=1,
        description="Path of the called playbook in the catalog.",
        json_schema_extra={"pattern": "^[^@]*$"},
    )
    version: str | None = Field(None, min_length=1, description="Its version. Default: the latest when it is called.")
    args: dict[str, Any] | None = Field(
        None,
        validation_alias=AliasChoices("args", "payload"),
        description="Merged over the called playbook's `workload`.",
    )
    return_step: str | None = Field(
        None, min_length=1, description="Step whose result the call returns. Default: the playbook's own result."
    )

    @field_validator("path")
    @classmethod
    def _check_no_version(cls, path: str) -> str:
        if "@" in path:
            raise ValueError("must not contain `@`: give the version separately, as in `version: '1.0'`")
        return path


class WorkbookInputs(LanguageInputs):
    """Inputs of ``workbook``."""

    task: str | None = Field(None, min_length=1, description="Entry to run. Default: the one with the task's name.")
    args: dict[str, Any] | None = Field(None, description="Merged over the entry's `args`, or over its inputs.")


def wait_combination_error(given: Collection[str]) -> str | None:
    """The error for a combination of inputs of ``wait``; ``None`` if it is allowed."""
    if len({"for_s", "until", "signal"} & set(given)) != 1:
        return "`wait` needs exactly one of `for_s`, `until` and `signal`"
    if "signal" in given and "timeout_s" not in given:
        return "`signal` needs `timeout_s`, such as timeout_s: 3600 beside it: a wait must end"
    if "signal" not in given and "timeout_s" in given:
        return "`timeout_s` goes with `signal` only"
    return None


def _unix_ms(time: str | float) -> int:
    """Converts a time, ISO 8601 text or seconds, to milliseconds since the epoch.

    Raises:
        ValueError: not a time, or a time without an offset, which would depend on the machine.
    """
    if not isinstance(time, str):
        if not abs(time) < 10**12:
            raise ValueError("must be seconds since 1970, not milliseconds")
        return round(time * 1000)
    try:
        parsed = datetime.fromisoformat(time)
    except ValueError:
        raise ValueError("must be a time such as 2030-01-31T09:00:00Z, or seconds since 1970") from None
    if parsed.tzinfo is None:
        raise ValueError("needs an offset: end it with `Z` (UTC) or an offset such as +02:00")
    return round(parsed.timestamp() * 1000)


PLAYBOOK: Final = KindSpec("playbook", PlaybookInputs, NoKnobs)

WORKBOOK: Final = KindSpec("workbook", WorkbookInputs, AnyInputs)
"""The kind ``workbook``. It takes the knobs of the entry's kind."""

GENERATED: Final = KindSpec("noop", LanguageInputs, NoKnobs)
"""The kind of the tasks that sugar compiles to: no work, only a policy that jumps."""

LANGUAGE_KINDS: Final[Kinds] = {
    "wait": KindSpec("wait", WaitInputs, NoKnobs, combination_error=wait_combination_error),
    "playbook": PLAYBOOK,
    "workbook": WORKBOOK,
}
"""The kinds of the language, always known, whatever tools are installed."""
