"""The embedded stack: a real NATS and a real Postgres under one home folder, shared by any number of commands.

``stack`` joins, revives and leaves it; ``home`` is the folder with its permissions and locks; ``secrets`` keeps
passwords and keys; ``nats_server`` and ``postgres_server`` are the two servers. ``binaries``, ``processes`` and
``startup_errors`` deal with the machine. DESIGN §6, *Embedded default*.
"""

from noetl_stream.local.stack import EmbeddedStack, StackAddress

__all__ = ["EmbeddedStack", "StackAddress"]
