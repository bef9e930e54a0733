"""``/mcp``: tools for agents, by the Model Context Protocol over HTTP. Each request stands alone."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from noetl_stream.errors import Forbidden, NotFound
from noetl_stream.gateway.access.authentication import is_own_origin
from noetl_stream.gateway.http.inputs import Body, InHeader, Parameters, object_in
from noetl_stream.gateway.http.routes import JSON, Answer, Call, Reply, Routes
from noetl_stream.ports.operations.verbs import OpenDocument

if TYPE_CHECKING:
    from types import ModuleType

routes = Routes()

PROTOCOL: Final = "noetl_stream.mcp.protocol"


class AgentMessageDocument(OpenDocument, frozen=True):
    """A message of JSON-RPC 2.0, as the Model Context Protocol has it."""


MESSAGE_SHOWN: Final = {"type": "object", "description": "A request or notification of JSON-RPC 2.0."}


def _message(data: bytes, _media: str) -> bytes:
    object_in(data)
    return data


MESSAGE: Final = Body({JSON: MESSAGE_SHOWN}, _message)

ANSWERS: Final = {
    200: Answer("The answer, or the error of a tool", AgentMessageDocument),
    202: Answer("A notification was taken"),
    400: Answer("Not a message of the protocol", AgentMessageDocument),
    404: Answer("No such method", AgentMessageDocument),
    406: Answer("The caller does not accept JSON", AgentMessageDocument),
}


class OfProtocol(Parameters):
    """The headers of the protocol."""

    accept: Annotated[str, InHeader("Accept"), Field(max_length=1024)] = "*/*"
    version: Annotated[str | None, InHeader("MCP-Protocol-Version"), Field(max_length=64)] = None
    method: Annotated[str | None, InHeader("Mcp-Method"), Field(max_length=256)] = None
    name: Annotated[str | None, InHeader("Mcp-Name"), Field(max_length=1024)] = None
    origin: Annotated[str | None, InHeader("Origin"), Field(max_length=1024)] = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers that the transport reads."""
        given = {
            "accept": self.accept,
            "mcp-protocol-version": self.version,
            "mcp-method": self.method,
            "mcp-name": self.name,
        }
        return {"content-type": JSON, **{name: value for name, value in given.items() if value is not None}}


@routes("POST", "/mcp", "callTools", "viewer", ANSWERS, MESSAGE, reads=True, refuses=("not-found",))
async def call_tools(call: Call[OfProtocol, bytes]) -> Reply:
    """Call tools, as agents do.

    Model Context Protocol, streamable HTTP: without sessions and streams, each answer is JSON. What a tool does is
    admitted, recorded and done once like the operation it stands for. `NOETL_GATEWAY_MCP` says whether tools may change
    something.
    """
    if call.agents == "off":
        raise NotFound("agents are not served here (NOETL_GATEWAY_MCP=off)", hint="set it to read, or to changes")
    if call.caller.session:
        raise Forbidden("a browser session cannot call tools", hint="send an API token")
    origin = call.parameters.origin
    if origin is not None and not is_own_origin(origin, call.host):
        raise Forbidden("pages of other origins may not call tools", hint="agents send no Origin")
    if PROTOCOL not in sys.modules:
        await asyncio.to_thread(_load)  # it takes a second
    protocol = _load()
    server = protocol.server_of(call.caller.role, call.door, changes=call.agents == "changes")
    answer = await protocol.answer_http(server, call.parameters.headers, call.body)
    return Reply(answer.body or None, answer.status, media=answer.media)


def _load() -> ModuleType:
    try:
        from noetl_stream.mcp import protocol
    except ModuleNotFoundError as error:
        hint = "install noetl-stream[mcp]"
        raise NotFound(f"agents are not served here: {error.name} is missing", hint=hint) from None
    return protocol
