"""Facts about an execution. Past tense, immutable, one struct per dotted event name (LANGUAGE §13).

A fact carries only what cannot be derived; the envelope that people read (``model/envelope.py``) is composed from the
fact and its journal row. Lists of iteration indices are ``path``: ``()`` outside loops, ``(3,)`` in the fourth
iteration.

To add a kind of fact, define it with its ``kind`` in the module of its recorder, and add it to one table of
``engine/evolve``; if something follows from it, also to one of ``engine/decide``. A test finds kinds missing there. If
people are shown its effect on a step run, add it to a table of ``model/events/journal_reader.py``.
"""

from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import Any, Final

from noetl_stream.model.events.client import *
from noetl_stream.model.events.emitted import *
from noetl_stream.model.events.fact_parts import *
from noetl_stream.model.events.fact_parts import Fact
from noetl_stream.model.events.server import *
from noetl_stream.model.events.worker import *


def _kinds(base: type[Fact]) -> Iterator[type[Fact]]:
    for fact in base.__subclasses__():
        if "kind" in vars(fact):
            yield fact
        else:
            yield from _kinds(fact)


KINDS: Final[dict[str, type[Fact]]] = {fact.event_name(): fact for fact in _kinds(Fact)}
"""Every kind of fact that a journal can hold, by event name."""

NAMES: Final[dict[type[Fact], str]] = {fact: name for name, fact in KINDS.items()}
"""Event names by kind of fact."""

AnyFact: Final[Any] = reduce(or_, KINDS.values())
"""The union of all kinds of facts, for decoders."""
