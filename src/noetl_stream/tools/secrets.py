"""``kind: secrets``: makes a credential readable as ``keychain.<name>`` in the rest of its pipeline (LANGUAGE §11)."""

from __future__ import annotations

from pydantic import AliasChoices, Field

from noetl_stream.playbook.kinds.keychain import SECRETS_INPUTS, SECRETS_KIND, secret_name
from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.tools.contract import ToolCall, ToolResult
from noetl_stream.tools.inputs import Inputs, Knobs, validated


class SecretsInputs(Inputs):
    """Inputs of ``secrets``."""

    credential: str | None = Field(
        default=None,
        validation_alias=AliasChoices(*SECRETS_INPUTS),
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$",
        description="Name of a keychain entry or a stored credential, a constant. Default: the task's name.",
    )


class SecretsKnobs(Knobs):
    """``secrets`` has no knobs."""


class SecretsTool:
    """Resolves the credential, so that a missing one fails here and not in the task that reads it."""

    spec = KindSpec(kind=SECRETS_KIND, inputs=SecretsInputs, knobs=SecretsKnobs, verbatim=frozenset({"credential"}))

    async def run(self, call: ToolCall) -> ToolResult:
        """Returns ``{name, version, expires_at}``, never the value.

        Raises:
            ToolFailure: ``credential``, ``invalid_input``.
        """
        validated(SecretsInputs, call.inputs)
        return ToolResult(await call.describe_credential(secret_name(call.task, call.inputs)))

    async def close(self) -> None:
        """Nothing to release."""
