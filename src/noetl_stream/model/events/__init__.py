"""Facts: what happened in an execution. Past tense, immutable, one struct a dotted event name (LANGUAGE §13).

A fact carries only what cannot be derived; the envelope people read (``model/envelope.py``) is composed from the fact
and its journal row. Lists of iteration indices are ``path``: ``()`` outside loops, ``(3,)`` in the fourth iteration.

A new kind of fact stands in the file of whoever records it first, in the union below its classes, and in one table of
``engine/evolve``; in one of ``engine/decide``, too, if something follows from it. A test finds kinds that are missing
in any of them.
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
"""Every fact that a journal can hold."""

KINDS: dict[str, type[Fact]] = {fact.event_name(): fact for fact in AnyFact.__args__}
"""By name, every kind of fact."""

NAMES: dict[type[Fact], str] = {kind: name for name, kind in KINDS.items()}
"""The event name of each kind."""
