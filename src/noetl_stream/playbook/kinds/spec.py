"""What the checker needs to know about a tool kind. The tools package provides one :class:`KindSpec` per kind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict


@dataclass(frozen=True, slots=True)
class KindSpec:
    """A tool kind as the checker sees it.

    Attributes:
        kind: The name used in playbooks.
        inputs: Model of the inputs next to ``kind``. Synonyms are pydantic alias choices; ``extra`` is ``forbid``
            except for kinds with free inputs.
        knobs: Model of the kind's own keys under ``spec`` (``policy`` and ``timeout`` belong to the language).
        verbatim: Inputs that are never rendered (LANGUAGE §2: python ``code``).
        statements: Inputs that hold SQL, under every name. A template in one is a warning: use a parameter.
        helper: Name of the kind's block in ``outcome`` (``http``, ``pg``, ``py``), or ``None``.
        reads_scope: Whether the tool itself sees ``workload``, ``ctx`` and ``iter`` (python).
        combination_error: Called with the names of the given inputs; returns an error message if they do not go
            together, else ``None``.
    """

    kind: str
    inputs: type[BaseModel]
    knobs: type[BaseModel]
    verbatim: frozenset[str] = frozenset()
    statements: frozenset[str] = frozenset()
    helper: str | None = None
    reads_scope: bool = False
    combination_error: Callable[[Collection[str]], str | None] | None = None


Kinds = Mapping[str, KindSpec]


class AnyInputs(BaseModel):
    """Inputs of an unknown kind: anything is accepted."""

    model_config = ConfigDict(extra="allow")


def unchecked_kind(kind: str) -> KindSpec:
    """A kind that is not installed here but accepted anyway (``check --kinds``, LANGUAGE §3)."""
    return KindSpec(kind, AnyInputs, AnyInputs)
