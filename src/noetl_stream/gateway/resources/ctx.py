"""``ctx`` of an execution: read with its history, changed from outside; and ``/api/vars``, as older clients say it."""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple

from pydantic import BeforeValidator, Field, WithJsonSchema

from noetl_stream.errors import NotFound
from noetl_stream.gateway.http.bodies import Body, RequestModel, json_body, object_in
from noetl_stream.gateway.http.parameters import ExecutionAt, InHeader, InPath, Intervention
from noetl_stream.gateway.http.routes import JSON, Answer, AnyRoute, Call, Reply, Route
from noetl_stream.gateway.resources.executions import ONE
from noetl_stream.gateway.resources.interventions import who_and_why
from noetl_stream.model.events import CtxPatched
from noetl_stream.ports.operations.documents import Document
from noetl_stream.ports.operations.executions import AcceptedDocument, CtxDocument

MERGE_PATCH: Final = "application/merge-patch+json"


class CtxPatch(NamedTuple):
    """Keys to set, or a merge patch (RFC 7396)."""

    keys: dict[str, Any]
    merge: bool


PATCH_SHOWN: Final = {"type": "object", "additionalProperties": True}
PATCH_BODY: Final = Body(
    {
        JSON: {**PATCH_SHOWN, "description": "Keys of `ctx` with their new values, each replaced whole."},
        MERGE_PATCH: {**PATCH_SHOWN, "description": "Merged deeply; null deletes a key (RFC 7396)."},
    },
    lambda data, media: CtxPatch(object_in(data), media == MERGE_PATCH),
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
    InHeader("If-Match"),
    Field(description="The ETag of the `ctx` that this is meant for; any version without it."),
    WithJsonSchema({"type": "string", "pattern": r'^("[0-9]{1,10}"|\*)$'}),
]


class Patching(Intervention):
    if_match: ExpectedVersion = None


class VariableAt(ExecutionAt):
    var_name: Annotated[str, InPath(), Field(min_length=1)]


class Variable(Document, frozen=True):
    value: Any


class Variables(Document, frozen=True):
    """``ctx``, as older clients read it."""

    execution_id: str
    variables: dict[str, Variable]
    count: int


class OneVariable(Document, frozen=True):
    execution_id: str
    var_name: str
    value: Any


class VariablesRequest(RequestModel):
    """Keys of `ctx` to set, as older clients say it; `var_type` and `source_step` mean nothing any more."""

    variables: dict[str, Any]
    var_type: str = "user_defined"
    source_step: str | None = None


class VariablesSet(Document, frozen=True):
    execution_id: str
    variables_set: int
    var_names: list[str]


async def read(call: Call[ExecutionAt, None]) -> Reply:
    ctx = await call.operations.executions.ctx(call.parameters.execution_id)
    return Reply(ctx, headers={"ETag": f'"{ctx.version}"'})


async def patch(call: Call[Patching, CtxPatch]) -> Reply:
    keys, merge = call.body
    expected = call.parameters.if_match
    fact = CtxPatched(**who_and_why(call), patch=keys, merge=merge, expected_version=expected)
    answer = await call.operations.executions.ask(call.parameters.execution_id, fact)
    return Reply(answer, headers={} if answer.position is None else {"ETag": f'"{answer.position}"'})


async def variables(call: Call[ExecutionAt, None]) -> Reply:
    execution_id = call.parameters.execution_id
    ctx = (await call.operations.executions.ctx(execution_id)).ctx
    shown = {name: Variable(value) for name, value in ctx.items()}
    return Reply(Variables(execution_id, shown, len(shown)))


async def variable(call: Call[VariableAt, None]) -> Reply:
    execution_id, name = call.parameters.execution_id, call.parameters.var_name
    ctx = (await call.operations.executions.ctx(execution_id)).ctx
    if name not in ctx:
        raise NotFound(
            f"ctx of execution {execution_id} has no key {name!r}", hint=f"it has {', '.join(ctx) or 'none'}"
        )
    return Reply(OneVariable(execution_id, name, ctx[name]))


async def set_variables(call: Call[Intervention, VariablesRequest]) -> Reply:
    execution_id, keys = call.parameters.execution_id, call.body.variables
    await call.operations.executions.ask(execution_id, CtxPatched(**who_and_why(call), patch=keys))
    return Reply(VariablesSet(execution_id, len(keys), list(keys)))


VARIABLES: Final = "/api/vars/{execution_id}"

CTX_ROUTES: Final[tuple[AnyRoute, ...]] = (
    Route(
        "GET",
        f"{ONE}/ctx",
        "getCtx",
        "Its `ctx`, and who changed what when",
        role="viewer",
        handler=read,
        answers={200: Answer("As it is", CtxDocument, ("ETag",))},
        parameters=ExecutionAt,
    ),
    Route(
        "PATCH",
        f"{ONE}/ctx",
        "patchCtx",
        "Change its `ctx`",
        role="operator",
        handler=patch,
        answers={200: Answer("It is committed; steps that begin from now on see it", AcceptedDocument, ("ETag",))},
        parameters=Patching,
        body=PATCH_BODY,
        refuses=("conflict", "version-mismatch"),
    ),
    Route(
        "GET",
        VARIABLES,
        "listVariables",
        "`ctx`, as older clients read it",
        role="viewer",
        handler=variables,
        answers={200: Answer("All keys", Variables)},
        parameters=ExecutionAt,
    ),
    Route(
        "GET",
        VARIABLES + "/{var_name}",
        "getVariable",
        "A key of `ctx`, as older clients read it",
        role="viewer",
        handler=variable,
        answers={200: Answer("The key", OneVariable)},
        parameters=VariableAt,
    ),
    Route(
        "POST",
        VARIABLES,
        "setVariables",
        "Set keys of `ctx`, as older clients do",
        role="operator",
        handler=set_variables,
        answers={200: Answer("They are committed", VariablesSet)},
        parameters=Intervention,
        body=json_body(VariablesRequest),
        refuses=("conflict",),
    ),
)
