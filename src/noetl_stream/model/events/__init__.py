"""Facts: what happened in an execution. Past tense, immutable, one struct per dotted event name (LANGUAGE §13).

A fact carries only what cannot be derived; the envelope people read (``model/envelope.py``) is composed from the fact
and its journal row. Lists of iteration indices are ``path``: ``()`` outside loops, ``(3,)`` in the fourth iteration.

To add a kind of fact, define it in the module of whoever records it, and add it to the union there and to one table
of ``engine/evolve``; if something follows from it, also to one of ``engine/decide``. A test finds kinds missing from
any of them.
"""

from noetl_stream.model.events.client import *
from noetl_stream.model.events.client import ClientFact
from noetl_stream.model.events.parts import *
from noetl_stream.model.events.parts import Fact
from noetl_stream.model.events.rerun import *
from noetl_stream.model.events.rerun import RerunFact
from noetl_stream.model.events.server import *
from noetl_stream.model.events.server import ServerFact
from noetl_stream.model.events.worker import *
from noetl_stream.model.events.worker import WorkerFact

AnyFact = ClientFact | ServerFact | RerunFact | WorkerFact
"""Every fact a journal can hold."""

KINDS: dict[str, type[Fact]] = {fact.event_name(): fact for fact in AnyFact.__args__}
"""Kinds of fact by event name."""

NAMES: dict[type[Fact], str] = {kind: name for name, kind in KINDS.items()}
"""Event names by kind of fact."""
