"""Task kinds that are the language's own: no tool runs them (LANGUAGE §8, §12).

``wait`` and ``playbook`` suspend the pipeline until what they wait for is there; ``workbook`` gives way to the entry it
names when the playbook is compiled.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator, model_validator

from noetl_stream.playbook.kinds.spec import Kinds, KindSpec, Open

_MS: Final = 1000


class LanguageInputs(BaseModel):
    """Inputs of a kind of the language. Strict: a string never becomes a number (LANGUAGE §1)."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class NoKnobs(LanguageInputs):
    """The kinds of the language have no keys of their own under ``spec``."""


class WaitInputs(LanguageInputs):
    """Inputs of ``wait``: exactly one of ``for_s``, ``until`` and ``signal``, the last one with ``timeout_s``."""

    for_s: float | None = Field(None, ge=0, allow_inf_nan=False, description="How long, in seconds.")
    until: str | float | None = Field(
        None,
        description="Until when: ISO 8601 with an offset or `Z`, or seconds since 1970-01-01T00:00Z.",
    )
    signal: str | None = Field(None, min_length=1, description="Name of the signal; its payload is the result.")
    timeout_s: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="With `signal`: for how many seconds it is waited for."
    )

    @field_validator("until")
    @classmethod
    def _is_a_time(cls, until: str | float | None) -> str | float | None:
        _unix_ms(until or 0)
        return until

    @model_validator(mode="after")
    def _given_together(self) -> WaitInputs:
        wrong = wrong_in_wait([name for name in WaitInputs.model_fields if getattr(self, name) is not None])
        if wrong is not None:
            raise ValueError(wrong)
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
    version: str | None = Field(None, min_length=1, description="Its version; the latest at the call by default.")
    args: dict[str, Any] | None = Field(
        None,
        validation_alias=AliasChoices("args", "payload"),
        description="Merged over the called playbook's `workload`.",
    )
    return_step: str | None = Field(
        None, min_length=1, description="The step whose result is the call's; by default the playbook's own result."
    )

    @field_validator("path")
    @classmethod
    def _is_no_address(cls, path: str) -> str:
        if "@" in path:
            raise ValueError("is a path alone: its version stands beside it, as in `version: '1.0'`")
        return path


class WorkbookInputs(LanguageInputs):
    """Inputs of ``workbook``."""

    task: str | None = Field(None, min_length=1, description="The entry it runs; that of its own name by default.")
    args: dict[str, Any] | None = Field(None, description="Laid over the entry's `args`, or over its inputs.")


def wrong_in_wait(given: Collection[str]) -> str | None:
    """What is wrong with giving just these inputs to ``wait``, whatever their values."""
    if len({"for_s", "until", "signal"} & set(given)) != 1:
        return "`wait` needs exactly one of `for_s`, `until` and `signal`"
    if "signal" in given and "timeout_s" not in given:
        return "`signal` needs `timeout_s`: every wait has an end"
    if "signal" not in given and "timeout_s" in given:
        return "`timeout_s` belongs to `signal`: `for_s` and `until` are an end themselves"
    return None


def _unix_ms(time: str | float) -> int:
    """The milliseconds since the epoch of an ISO 8601 text or of seconds.

    Raises:
        ValueError: it is no time, or one without an offset, which every machine reads differently.
    """
    if not isinstance(time, str):
        if not abs(time) < 10**12:
            raise ValueError("must be seconds since 1970, not milliseconds")
        return round(time * _MS)
    try:
        parsed = datetime.fromisoformat(time)
    except ValueError:
        raise ValueError("must be a time as in 2030-01-31T09:00:00Z, or seconds since 1970") from None
    if parsed.tzinfo is None:
        raise ValueError("needs an offset: end it with `Z` (UTC) or one as in +02:00")
    return round(parsed.timestamp() * _MS)


WORKBOOK: Final = KindSpec("workbook", WorkbookInputs, Open)
"""Its knobs are those of the entry's kind."""

GENERATED: Final = KindSpec("noop", LanguageInputs, NoKnobs)
"""The kind of tasks that sugar compiles to: they are there for their policy."""

LANGUAGE_KINDS: Final[Kinds] = {
    "wait": KindSpec("wait", WaitInputs, NoKnobs, together=wrong_in_wait),
    "playbook": KindSpec("playbook", PlaybookInputs, NoKnobs),
    "workbook": WORKBOOK,
}
"""Known wherever a playbook is checked, whatever tools are installed."""
