"""``ctx`` of an execution: read with its history, changed from outside; and ``/api/vars`` for older clients."""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple

from pydantic import BeforeValidator, Field, WithJsonSchema

from noetl_stream.errors import NotFound
from noetl_stream.gateway.http import inputs
from noetl_stream.gateway.http.routes import JSON, Answer, Call, Reply, Routes
from noetl_stream.gateway.resources.interventions import CONFLICT, ONE, who_and_why
from noetl_stream.model.events import CtxPatched
from noetl_stream.model.json.texts import digits_lost
from noetl_stream.ports.operations.executions import AcceptedDocument, CtxDocument, Executions
from noetl_stream.ports.operations.verbs import Document, address_of

MERGE_PATCH: Final = "application/merge-patch+json"
VARIABLES: Final = "/api/vars/{execution_id}"

routes = Routes()


class CtxPatch(NamedTuple):
    """Keys to set, or a merge patch (RFC 7396), and the JSON pointers of its numbers that are no doubles."""

    keys: dict[str, Any]
    merge: bool
    digits_lost: list[str]


PATCH_SHOWN: Final = {"type": "object", "additionalProperties": True}
PATCH_BODY: Final = inputs.Body(
    {
        JSON: {**PATCH_SHOWN, "description": "Keys of `ctx` with their new values, each replaced whole."},
        MERGE_PATCH: {**PATCH_SHOWN, "description": "Merged deeply; null deletes a key (RFC 7396)."},
    },
    lambda data, media: CtxPatch(inputs.object_in(data), media == MERGE_PATCH, digits_lost(data)),
)


def _version(text: object) -> object:
    if isinstance(text, str) and text != "*":
        inner = text.removeprefix('"').removesuffix('"')
        if len(text) - len(inner) != 2 or not inner.isascii() or not inner.isdigit() or len(inner) > 10:
            raise ValueError('write the version in quotes, as in "12", or *')
        return int(inner)
    return None


ExpectedVersion = Annotated[
    int | None,
    BeforeValidator(_version),
    inputs.InHeader("If-Match"),
    Field(description="The ETag of the `ctx` that this is meant for; any version without it."),
    WithJsonSchema({"type": "string", "pattern": r'^("[0-9]{1,10}"|\*)$'}),
]


class Patching(inputs.Intervention):
    if_match: ExpectedVersion = None


class VariableAt(inputs.ExecutionAt):
    var_name: Annotated[str, inputs.InPath(), Field(min_length=1)]


class Variable(Document, frozen=True):
    value: Any


class Variables(Document, frozen=True):
    """``ctx``, in the form of older clients."""

    execution_id: str
    variables: dict[str, Variable]
    count: int


class OneVariable(Document, frozen=True):
    execution_id: str
    var_name: str
    value: Any


class VariablesRequest(inputs.RequestModel):
    """Keys of `ctx` to set, in the form of older clients; `var_type` and `source_step` are ignored."""

    variables: dict[str, Any]
    var_type: str = "user_defined"
    source_step: str | None = None


class VariablesSet(Document, frozen=True):
    execution_id: str
    variables_set: int
    var_names: list[str]


@routes(*address_of(Executions.ctx), "getCtx", "viewer", {200: Answer("OK", CtxDocument, ("ETag",))}, heavy=True)
async def read(call: Call[inputs.ExecutionAt, None]) -> Reply:
    """Get its `ctx`, and who changed what when."""
    ctx = await call.operations.executions.ctx(call.parameters.execution_id)
    return Reply(ctx, headers={"ETag": f'"{ctx.version}"'})


PATCHED: Final = {200: Answer("Committed: steps that start from now on see it", AcceptedDocument, ("ETag",))}
PATCH_REFUSED: Final = ("conflict", "version-mismatch")


@routes("PATCH", f"{ONE}/ctx", "patchCtx", "operator", PATCHED, PATCH_BODY, refuses=PATCH_REFUSED)
async def patch(call: Call[Patching, CtxPatch]) -> Reply:
    """Change its `ctx`."""
    keys, merge, lost = call.body
    expected = call.parameters.if_match
    fact = CtxPatched(**who_and_why(call), patch=keys, merge=merge, expected_version=expected, digits_lost=lost)
    answer = await call.operations.executions.ask(call.parameters.execution_id, fact)
    return Reply(answer, headers={} if answer.position is None else {"ETag": f'"{answer.position}"'})


@routes("GET", VARIABLES, "listVariables", "viewer")
async def variables(call: Call[inputs.ExecutionAt, None]) -> Variables:
    """Get `ctx`, in the form of older clients."""
    execution_id = call.parameters.execution_id
    ctx = (await call.operations.executions.ctx(execution_id)).ctx
    shown = {name: Variable(value) for name, value in ctx.items()}
    return Variables(execution_id, shown, len(shown))


@routes("GET", VARIABLES + "/{var_name}", "getVariable", "viewer")
async def variable(call: Call[VariableAt, None]) -> OneVariable:
    """Get a key of `ctx`, in the form of older clients."""
    execution_id, name = call.parameters.execution_id, call.parameters.var_name
    ctx = (await call.operations.executions.ctx(execution_id)).ctx
    if name not in ctx:
        hint = f"it has {', '.join(ctx) or 'none'}"
        raise NotFound(f"ctx of execution {execution_id} has no key {name!r}", hint=hint)
    return OneVariable(execution_id, name, ctx[name])


SETTING: Final = inputs.numbered_body(VariablesRequest)


@routes("POST", VARIABLES, "setVariables", "operator", body=SETTING, refuses=CONFLICT)
async def set_variables(call: Call[inputs.Intervention, inputs.Numbered[VariablesRequest]]) -> VariablesSet:
    """Set keys of `ctx`, in the form of older clients."""
    execution_id, keys = call.parameters.execution_id, call.body.request.variables
    fact = CtxPatched(**who_and_why(call), patch=keys, digits_lost=call.body.digits_lost)
    await call.operations.executions.ask(execution_id, fact)
    return VariablesSet(execution_id, len(keys), list(keys))
