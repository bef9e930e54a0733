"""The kinds that act only on their pipeline: ``noop`` (LANGUAGE §9) and ``secrets`` (LANGUAGE §11)."""

from __future__ import annotations

from typing import Any

from pydantic import AliasChoices, Field

from noetl_stream.playbook.kinds.keychain import SECRETS_INPUTS, SECRETS_KIND, CredentialName, secret_name
from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.tools.contract import ToolCall, ToolResult
from noetl_stream.tools.inputs import Inputs, Knobs, validated


class NoopInputs(Inputs):
    """Inputs of ``noop``."""

    args: dict[str, Any] | None = Field(
        default=None, description="A mapping of any values, returned as the task's result."
    )


class NoopTool:
    """Does nothing, for tasks that only need a policy: routing, ``set_*``, a jump target."""

    spec = KindSpec(kind="noop", inputs=NoopInputs, knobs=Knobs)

    async def run(self, call: ToolCall) -> ToolResult:
        """Returns ``args``, or ``{}`` without it.

        Raises:
            ToolFailure: kind ``invalid_input``.
        """
        return ToolResult((validated(NoopInputs, call.inputs).args or {}) if call.inputs else {})

    async def close(self) -> None:
        """Releases nothing: the tool holds no resources."""


class SecretsInputs(Inputs):
    """Inputs of ``secrets``."""

    credential: CredentialName | None = Field(
        default=None,
        validation_alias=AliasChoices(*SECRETS_INPUTS),
        description="Name of a keychain entry or a stored credential, a constant. Default: the task's name.",
    )


class SecretsTool:
    """Makes a credential readable as ``keychain.<name>`` in the rest of the pipeline.

    It resolves the credential, so that a missing one fails here and not in the task that reads it.
    """

    spec = KindSpec(kind=SECRETS_KIND, inputs=SecretsInputs, knobs=Knobs, verbatim=frozenset({"credential"}))

    async def run(self, call: ToolCall) -> ToolResult:
        """Returns ``{name, version, expires_at}``, never the value.

        Raises:
            ToolFailure: ``credential``, ``invalid_input``.
        """
        validated(SecretsInputs, call.inputs)
        return ToolResult(await call.describe_credential(secret_name(call.task, call.inputs)))

    async def close(self) -> None:
        """Releases nothing: the tool holds no resources."""
