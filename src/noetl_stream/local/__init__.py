"""The embedded stack: a real NATS and a real Postgres under one home folder, shared by any number of commands.

One idea a file: ``stack`` (join, revive, leave), ``home`` (the folder and its rights), ``locks`` (who uses it),
``record`` and ``passwords`` (what is kept between runs), ``binaries``, ``ports``, ``processes``, ``system_user`` and
``diagnosis`` (the machine), ``nats_server`` and ``postgres_server`` (the two servers). DESIGN §6, *Embedded default*.
"""

from noetl_stream.local.stack import EmbeddedStack, StackAddress

__all__ = ["EmbeddedStack", "StackAddress"]
