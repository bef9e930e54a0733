"""What the language needs to know of a tool kind to check a playbook; the tools package provides these."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict


@dataclass(frozen=True, slots=True)
class KindSpec:
    """A tool kind as the checker sees it.

    Attributes:
        kind: The name playbooks write.
        inputs: Model of the inputs that stand beside ``kind``; synonyms are pydantic alias choices. ``extra`` is
            ``forbid`` except for kinds with free inputs.
        knobs: Model of the kind's own keys under ``spec`` (``policy`` and ``timeout`` are the language's).
        verbatim: Inputs that are never rendered (LANGUAGE §2: python ``code``).
        statements: Inputs that hold SQL, under every name: a template there is warned of, a parameter would do.
        helper: Name of the outcome's block of this kind (``http``, ``pg``, ``py``) or ``None``.
        reads_scope: Whether the tool itself can see ``workload``, ``ctx`` and ``iter`` (python).
        together: What is wrong with giving just these inputs, whatever their values; ``None`` if nothing is.
    """

    kind: str
    inputs: type[BaseModel]
    knobs: type[BaseModel]
    verbatim: frozenset[str] = frozenset()
    statements: frozenset[str] = frozenset()
    helper: str | None = None
    reads_scope: bool = False
    together: Callable[[Collection[str]], str | None] | None = None


Kinds = Mapping[str, KindSpec]


class Open(BaseModel):
    """Inputs nobody here knows: anything goes."""

    model_config = ConfigDict(extra="allow")


def foreign_kind(kind: str) -> KindSpec:
    """A kind that is not installed here and is to be accepted all the same (``check --kinds``, LANGUAGE §3)."""
    return KindSpec(kind, Open, Open)
