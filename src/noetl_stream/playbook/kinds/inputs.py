"""Checks inputs, knobs and settings against a kind's models (LANGUAGE §3, §12).

Only constants are type-checked: a value with a template is not known until it is rendered. The keys of a mapping are
constants in any case.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from collections.abc import Mapping as MappingOf
from types import MappingProxyType
from typing import Any, Final

from pydantic import AliasChoices, AliasPath, BaseModel, ValidationError

from noetl_stream.playbook.diagnostics import Location, Problems
from noetl_stream.playbook.model.sections import explain, form_hint, sentence
from noetl_stream.playbook.suggestions import correct_word, did_you_mean, list_names, nearest
from noetl_stream.playbook.vocabulary.hints import filled, in_seconds, with_braces
from noetl_stream.playbook.yaml.nodes import Mapping, holds_template

_NO_HINTS: Final[MappingOf[str, Any]] = MappingProxyType({})


def spellings(model: type[BaseModel]) -> dict[str, str]:
    """The field of each key that the model reads, synonyms included."""
    by_name = bool(model.model_config.get("populate_by_name") or model.model_config.get("validate_by_name"))
    found: dict[str, str] = {}
    for name, field in model.model_fields.items():
        alias = field.validation_alias or field.alias or name
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
        for choice in (*choices, *([name] if by_name else [])):
            found[str(choice.path[0]) if isinstance(choice, AliasPath) else choice] = name
    return found


def check_against(
    node: Mapping,
    model: type[BaseModel],
    title: str,
    problems: Problems,
    *,
    at: Location,
    rendered: bool = False,
    verbatim: Collection[str] = (),
    also_known: Collection[str] = (),
    hints: MappingOf[str, str] = _NO_HINTS,
    missing: MappingOf[str, str] = _NO_HINTS,
    require_all: bool = True,
) -> None:
    """Checks a mapping's keys and constant values against a model.

    Args:
        node: The mapping, without the language's own keys.
        model: The kind's model.
        title: The mapping's name in messages, as in ``the inputs of kind `http` ``.
        at: The place to report a missing key at.
        rendered: Whether the values are rendered; otherwise a template is an error.
        verbatim: Keys whose text is never rendered and may contain braces.
        also_known: Keys of the language that are valid here too, for suggestions.
        hints: The advice about a key without a similar known key.
        missing: The advice about a missing required key.
        require_all: Whether a missing required key is an error.
    """
    known = spellings(model)
    is_free = model.model_config.get("extra") == "allow"
    constants: list[str] = []
    taken: dict[str, str] = {}
    said: list[str] = []
    for name, key in node.keys.items():
        field = known.get(name)
        value = node.values[name]
        if field is None and not is_free:
            words = [*known, *also_known]
            keys = f"known keys: {list_names(words)}" if words else "remove it: no keys are allowed here"
            near = correct_word(name, hints)
            meant = hints[near] if near else keys
            timed = in_seconds(name, value.plain(), words)
            hint = filled(hints.get(name) or timed or did_you_mean(name, words) or meant, name, node)
            problems.error("unknown_key", f"unknown key `{name}` in {title}", key, hint)
            said.append(hint)
            continue
        if field in taken:
            message = f"`{name}` and `{taken[field]}` are the same key"
            problems.error("conflicting_keys", message, key, "remove one")
            continue
        if field is not None:
            taken[field] = name
        if name in verbatim or not holds_template(value):
            constants.append(name)
        elif not rendered:
            message = f"`{name}` is not rendered: {title} must be constants"
            problems.error("template_not_rendered", message, value, "move the template to an input")
    for name, info in model.model_fields.items():
        if info.is_required() and name not in taken and require_all:
            words = [spelling for spelling, field in known.items() if field == name]
            if any(f"write {word}:" in hint for word in words for hint in said):
                continue
            message = f"{title} need {' or '.join(f'`{word}`' for word in words)}"
            problems.error("missing_key", message, at, missing.get(name))
    _check_constants(node, model, constants, problems, at)


def _form_of(model: type[BaseModel], field: str, value: Any) -> str | None:
    """The hint for text that does not have the form of its field: with a colon for its last dot, or the kind it is."""
    info = model.model_fields[field]
    pattern = next((found for part in info.metadata if (found := getattr(part, "pattern", None))), None)
    with_colon = ":".join(str(value).removesuffix(".py").replace("/", ".").rsplit(".", 1))
    if pattern and re.fullmatch(pattern, with_colon):
        return f"write {with_colon}"
    return info.description


def _check_constants(
    node: Mapping, model: type[BaseModel], constants: Collection[str], problems: Problems, at: Location
) -> None:
    known = spellings(model)
    values = {name: node.values[name] for name in constants}
    others = {name: one for name, one in node.values.items() if name not in values and holds_template(one)}
    rendered = {name: one for name, one in others.items() if isinstance(one, Mapping)}
    keys = {name: dict.fromkeys(one.keys) for name, one in rendered.items()}
    try:
        model.model_validate(keys | {name: value.plain() for name, value in values.items()})
    except ValidationError as failure:
        for invalid in explain(failure, values):
            message, hint = invalid.message, None
            if invalid.is_type:
                hint = form_hint(invalid.key, invalid.at, message)
            elif invalid.choices:
                near = nearest(str(invalid.at.plain()), invalid.choices)
                hint = f"write {near}" if near else None
            elif isinstance(text := invalid.at.plain(), str) and (whole := with_braces(text)):
                hint = f'write {invalid.key}: "{whole}"'
            elif invalid.pattern:
                message = f"`{invalid.key}` does not have its form: `{invalid.at.plain()}`"
                hint = _form_of(model, known.get(invalid.key, invalid.key), invalid.at.plain())
            problems.error("invalid_value", message, invalid.at, hint)
        for error in failure.errors(include_url=False):
            name, key, what = (*map(str, error["loc"]), "", "", "")[:3]
            if name in rendered and what == "[key]":
                problems.error("invalid_value", f"`{name}`: {sentence(error)}", rendered[name].keys[key])
            # A rule across several keys applies only when all of them are known.
            if not error["loc"] and len(values) == len(node.keys):
                problems.error("invalid_value", sentence(error), at)
