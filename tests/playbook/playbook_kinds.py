"""Small tool kinds for checking playbooks: the models of the real ones, without the tools."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from noetl_stream.playbook.kinds.spec import KindSpec


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NoInputs(Strict):
    args: dict[str, Any] = {}


class HttpInputs(Strict):
    method: Literal["GET", "POST", "PUT", "DELETE"] = "GET"
    url: str = Field(validation_alias=AliasChoices("url", "endpoint"))
    params: dict[str, Any] = {}
    headers: dict[str, str] = {}
    body: Any = Field(None, validation_alias=AliasChoices("json", "payload", "body"))
    auth: str | None = Field(None, validation_alias=AliasChoices("auth", "credential"))


class HttpKnobs(Strict):
    follow_redirects: bool = True


class SqlInputs(Strict):
    command: str | list[str] = Field(validation_alias=AliasChoices("command", "query", "commands"))
    params: dict[str, Any] | list[Any] = {}
    auth: str | None = Field(None, validation_alias=AliasChoices("auth", "credential"))


class PythonInputs(Strict):
    code: str
    args: dict[str, Any] = {}
    libs: dict[str, Any] = {}


class RangeInputs(Strict):
    low: int
    high: int

    @model_validator(mode="after")
    def _ordered(self) -> RangeInputs:
        if self.low > self.high:
            raise ValueError("`low` must not be above `high`")
        return self


class SecretsInputs(Strict):
    credential: str | None = None


class FreeInputs(BaseModel):
    model_config = ConfigDict(extra="allow")


class NoKnobs(Strict):
    pass


KINDS = {
    spec.kind: spec
    for spec in (
        KindSpec("noop", NoInputs, NoKnobs),
        KindSpec("http", HttpInputs, HttpKnobs, helper="http"),
        KindSpec("postgres", SqlInputs, NoKnobs, helper="pg"),
        KindSpec("duckdb", SqlInputs, NoKnobs),
        KindSpec("python", PythonInputs, NoKnobs, verbatim=frozenset(["code"]), helper="py", reads_scope=True),
        KindSpec("range", RangeInputs, NoKnobs),
        KindSpec("free", FreeInputs, NoKnobs),
        KindSpec("secrets", SecretsInputs, NoKnobs, verbatim=frozenset(["credential"])),
    )
}
