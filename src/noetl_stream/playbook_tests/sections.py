"""The keys of a test document. The reader (``reading.py``) and the JSON Schema (``schema.py``) are made from them."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from noetl_stream.playbook.model.sections import Part, Required, Section

KIND: Final = "PlaybookTest"


class TestDocumentSection(Section):
    title = "a test document"

    apiVersion: Annotated[str | None, Required("apiVersion: noetl.io/v2")] = None  # noqa: N815 - the key's name
    kind: Annotated[str | None, Required(f"kind: {KIND}")] = None
    playbook: str | None = Field(
        None,
        description="The file of the playbook, from the folder of this one. Default: `NAME.yaml` for `NAME.test.yaml`.",
    )
    given: Part = Field(None, description="What every test of the document is given.")
    tests: Annotated[Part, Required("tests: [ { name: …, then: { result: … } } ]")] = Field(
        None, description="The tests. Each runs alone."
    )


class GivenSection(Section):
    title = "`given`"

    workload: Part = Field(None, description="Merged over the playbook's own `workload`.")
    ctx: Part = Field(None, description="`ctx` when it starts.")
    now: str | None = Field(None, description="When it starts, with an offset or `Z`. Default: 2025-06-15T15:06:40Z.")
    keychain: Part = Field(
        None, description="Values of secrets, by name. One that is not given reads as the text `<keychain.NAME>`."
    )
    real: Part = Field(None, description="Kinds whose tasks run when no stub stands for them: `python`, `duckdb`.")
    stubs: Part = Field(
        None, description="What stands for tasks: one stub or a list of them, by `STEP.TASK`, or `STEP` if it has one."
    )
    catalog: Part = Field(
        None, description="Files of the playbooks that it calls and of the schemas that it names, with their `stubs`."
    )


class CatalogFileSection(Section):
    title = "a file of the catalog"

    stubs: Part = Field(None, description="As `given.stubs`, for the tasks of this playbook.")


class StubSection(Section):
    title = "a stub"
    example = "{ result: { … } } or { error: timeout }"

    result: Part = Field(
        None,
        description="The task's result. Of `http`: `status` (200), `headers` and `data`; a status from 400 on is an "
        "error. Of `postgres` and `duckdb`: `rows`.",
    )
    error: Part = Field(None, description="The task fails: a kind of error, or a mapping with `kind`.")
    helper: Part = Field(None, description="What `outcome.http`, `.pg` or `.py` holds.")
    attempt: int | None = Field(None, ge=1, description="Only for this attempt, from 1.")
    iteration: Part = Field(
        None, description="Only in this iteration, from 0; in inner loops a list, the outermost first."
    )
    call: int | None = Field(None, ge=1, description="Only for this call of the task in the whole test, from 1.")
    inputs: Part = Field(None, description="Only if these inputs have these values.")
    takes: Part = Field(None, description="How long the call takes in simulated time: `30s`, `5m`, or seconds.")
    real: bool | None = Field(None, description="The task runs: kinds `python` and `duckdb`.")


class StubErrorSection(Section):
    title = "`error`"
    example = "error: { kind: http_status, message: gone }"

    kind: Annotated[str | None, Required("kind: timeout")] = Field(None, description="Kind of the error.")
    message: str | None = Field(None, description="Its message.")
    retryable: bool | None = Field(None, description="Default: true for `timeout` and `connection`.")
    retry_after_s: float | None = Field(None, ge=0, description="No retry is sooner than this.")
    code: str | None = Field(None, description="`outcome.error.code`.")


class PlaybookTestSection(Section):
    title = "a test"
    example = "{ name: pays at once, given: { … }, then: { result: … } }"

    name: Annotated[str | None, Required("name: a large refund waits")] = Field(None, description="What it shows.")
    given: Part = Field(None, description="What this test is given, over what all are.")
    when: Part = Field(None, description="What happens meanwhile, in order.")
    then: Part = Field(None, description="What must be true at the end. Default: it completed.")


class ActionSection(Section):
    title = "an entry of `when`"
    example = "{ after: 1h, patch: { approved: true } }"

    after: Part = Field(
        None,
        description="How much time passes first, from the entry before or the start. Without it the entry waits until "
        "the execution waits for somebody.",
    )
    patch: Part = Field(None, description="Keys of `ctx` that somebody sets.")
    merge: Part = Field(None, description="A merge patch of `ctx`: null deletes.")
    signal: str | None = Field(None, description="The name of a signal that somebody sends.")
    payload: Part = Field(None, description="The payload of the signal.")
    inject: str | None = Field(None, description="The step that somebody enqueues a token at.")
    args: Part = Field(None, description="The `args` of that token.")
    cancel: str | None = Field(None, description="Somebody cancels it, for this reason.")
    pause: str | None = Field(None, description="Somebody pauses it, for this reason.")
    resume: str | None = Field(None, description="Somebody resumes it, for this reason.")
    then: Part = Field(None, description="What must be true after it, before more time passes.")


class ThenSection(Section):
    title = "`then`"

    status: str | None = Field(
        None,
        description="`completed` (the default), `failed` (the default with `error`), `cancelled`, `waiting`, `paused`.",
    )
    result: Part = Field(None, description="The whole result.")
    error: Part = Field(None, description="A kind of error, or a mapping with `kind` and a part of its `message`.")
    ctx: Part = Field(None, description="These keys of `ctx`, each whole; null also if it is not there.")
    path: Part = Field(None, description="The steps that ran, in the order in which they began.")
    never: Part = Field(None, description="Steps that did not run.")
    calls: Part = Field(
        None, description="By task: how often it was called, or for each call the inputs to compare, each whole."
    )
    waits_for: Part = Field(None, description="The steps at which it waits.")


class ExpectedErrorSection(Section):
    title = "`error`"

    kind: str | None = Field(None, description="Its kind.")
    message: str | None = Field(None, description="A part of its message.")
    step: str | None = Field(None, description="The step that failed.")
