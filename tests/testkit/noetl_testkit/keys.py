"""The keys of simulated installations."""

from __future__ import annotations

from typing import Final

from noetl_stream.model.json import codec
from noetl_stream.model.messages import StepCommand
from noetl_stream.protocol.signed_requests import RequestSigner
from noetl_stream.sealing.keys import KEY_BYTES, Key, KeyRing
from noetl_stream.sealing.objects import DerivedKeys
from noetl_stream.server.answers.capabilities import Capabilities

SERVER_KEYS: Final = KeyRing(Key("server-key-1", b"s" * KEY_BYTES))
ACCESS_KEYS: Final = KeyRing(Key("access-key-1", b"a" * KEY_BYTES))
CAPABILITIES: Final = Capabilities(SERVER_KEYS, ACCESS_KEYS)
SIGNER: Final = RequestSigner(ACCESS_KEYS)
OBJECT_KEYS: Final = DerivedKeys(ACCESS_KEYS)


def capability_of(execution_id: str, step_run_id: str, command_id: str, issue: int, pool: str = "default") -> str:
    """The capability of a command that these servers might have issued."""
    command = StepCommand(
        command_id,
        execution_id,
        partition=0,
        step_run_id=step_run_id,
        step="step",
        digest="digest",
        pool=pool,
        issue=issue,
    )
    return codec.decode_command(CAPABILITIES.encode(command, command.share)).capability
