"""Bodies of requests: how large they may be, which media they come as, and what they are read into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from noetl_stream.errors import PayloadRefused
from noetl_stream.gateway.http.problems import HttpProblem
from noetl_stream.model import codec
from noetl_stream.ports.operations.problems import FaultDocument

Sent = TypeVar("Sent")
Model = TypeVar("Model", bound=BaseModel)
Size = Literal["json", "playbook"]

YAML: Final = "application/yaml"
YAML_MEDIA: Final = (YAML, "application/x-yaml", "text/yaml", "text/x-yaml")


class RequestModel(BaseModel):
    """Base of JSON bodies: unknown keys are refused, nothing is converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Keys = Annotated[dict[str, Any], Field(default_factory=dict)]
"""An object of a JSON body, empty if it is not given."""


@dataclass(frozen=True, slots=True)
class Body(Generic[Sent]):
    """What a route takes. ``size`` names the limit; ``media`` is empty for a route that reads none.

    ``shown`` are those of ``media`` that the OpenAPI document has.
    """

    media: Mapping[str, type[BaseModel] | Mapping[str, Any]]
    read: Callable[[bytes, str], Sent]
    size: Size = "json"
    synonyms: tuple[str, ...] = ()
    required: bool = True

    def takes(self, media: str) -> bool:
        return media in self.media or media in self.synonyms


NOTHING: Final[Body[None]] = Body({}, lambda data, media: None)


def json_body(model: type[Model], *, required: bool = True) -> Body[Model]:
    """A JSON object; if it is not ``required``, an empty body counts as ``{}``."""

    def read(data: bytes, media: str) -> Model:
        return validated(model, data if data or required else b"{}")

    return Body({"application/json": model}, read, required=required)


def yaml_body() -> Body[bytes]:
    """The text of a playbook, not read any further here."""
    schema = {"type": "string", "minLength": 1, "description": "A playbook."}
    return Body({YAML: schema}, lambda data, media: data, "playbook", YAML_MEDIA)


def json_in(data: bytes) -> Any:
    """Plain JSON values.

    Raises:
        Refusal: the bytes are no JSON.
    """
    try:
        return codec.decode_json(data)
    except PayloadRefused as error:
        fault = FaultDocument(error.message, pointer="")
        raise HttpProblem("invalid-request", "The body is no JSON", [fault]) from None


def object_in(data: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        Refusal: the bytes are none.
    """
    found = json_in(data)
    if not isinstance(found, dict):
        raise HttpProblem(
            "invalid-request", "The body is no JSON object", [FaultDocument("must be an object", pointer="")]
        )
    return found


def pointer_to(keys: tuple[int | str, ...]) -> str:
    """RFC 6901."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def validated(model: type[Model], data: bytes) -> Model:
    """The model that this JSON is.

    Raises:
        Refusal: each place where it is none.
    """
    json_in(data)  # the codec lets in less than Pydantic: no NaN
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        faults = [
            FaultDocument(found["msg"], pointer=pointer_to(found["loc"]))
            for found in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise HttpProblem("invalid-request", "The body is not what this takes", faults) from None
