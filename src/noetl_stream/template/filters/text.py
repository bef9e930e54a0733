"""Filters that produce text, counted before they produce it (LANGUAGE §14)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import StringIO
from typing import Any, Final

import markupsafe
from jinja2 import pass_context
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.runtime import Context
from jinja2.utils import _PassArg

from noetl_stream.template.failures import EvaluationFailure
from noetl_stream.template.filters.base import Filter, leading_args, meter_of, reject_non_value, scope_of
from noetl_stream.template.runtime.attribute_access import plain, plain_for_text, text_of
from noetl_stream.template.runtime.operators import PIECES_FACTOR, percent_format, replace, strip

MAX_INDENT: Final = 16

_QUOTED_PER_OPERATION: Final = 8
"""The characters of a URL that count as one operation where no budget pays for them."""

_CHARS_PER_ESCAPE: Final = 3
"""The most characters of a byte in a URL: ``%FF``."""


def _text_filter(name: str, function: Filter, factor: int = 1) -> Filter:
    """Makes a filter that applies ``function`` to the text of any value.

    Args:
        factor: The cost of ``function`` relative to copying the text.
    """
    pass_arg = _PassArg.from_obj(function)

    @pass_context
    def filtered(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        reject_non_value(name, value)
        meter = meter_of(context)
        meter.work(1)
        text = text_of(value, scope_of(context).references, meter)
        if factor > 1:
            meter.write(len(text) * (factor - 1))
            meter.spend(len(text) // factor)
        result = function(*leading_args(pass_arg, context), text, *args, **kwargs)
        if isinstance(result, str):
            meter.write(max(len(result) - len(text), 0))
        return result

    return filtered


@pass_context
def _replace(context: Context, text: str, old: Any, new: Any, count: int | None = None) -> str:
    meter, references = meter_of(context), scope_of(context).references
    return replace(meter, text, text_of(old, references, meter), text_of(new, references, meter), count)


@pass_context
def _format(context: Context, text: str, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise EvaluationFailure("`format` takes positional or named values, not both")
    return percent_format(meter_of(context), text, kwargs or list(args))


@pass_context
def _center(context: Context, text: str, width: int = 80) -> str:
    meter_of(context).write(max(width - len(text), 0))
    return text.center(width)


@pass_context
def _indent(context: Context, text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    meter, lines = meter_of(context), len(text.splitlines()) + 1
    meter.write(lines * (len(width) if isinstance(width, str) else max(width, 0)))
    indented: str = JINJA_FILTERS["indent"](text, width, first, blank)
    return indented


@pass_context
def _trim(context: Context, text: str, chars: str | None = None) -> str:
    return strip(meter_of(context), text, chars)


def _escape(text: str) -> str:
    return str(markupsafe.escape(text))


@pass_context
def string(context: Context, value: Any) -> str:
    """Writes a value as text."""
    return text_of(value, scope_of(context).references, meter_of(context))


@pass_context
def _urlencode(context: Context, value: Any) -> str:
    reject_non_value("urlencode", value)
    meter = meter_of(context)
    before = meter.kept_chars
    plain_value = plain_for_text(value, scope_of(context).references, meter)
    meter.write((meter.kept_chars - before) * (_CHARS_PER_ESCAPE - 1))
    chars = meter.kept_chars - before
    meter.spend_either(chars, 2 + chars // _QUOTED_PER_OPERATION)  # quoted byte by byte
    encoded: str = JINJA_FILTERS["urlencode"](plain_value)
    return encoded


@pass_context
def _tojson(context: Context, value: Any, indent: int | None = None) -> str:
    meter, references = meter_of(context), scope_of(context).references
    meter.spend_either(0, 1)
    if indent is not None:
        return _indented_json(context, value, indent)
    before = meter.kept_chars
    text = json.dumps(plain_for_text(value, references, meter), ensure_ascii=False)
    meter.write(max(len(text) - (meter.kept_chars - before), 0))
    return text


def _indented_json(context: Context, value: Any, indent: int) -> str:
    if not 0 <= indent <= MAX_INDENT:
        raise EvaluationFailure(f"`indent` of `tojson` must be 0 to {MAX_INDENT}")
    # Count piece by piece: deeply nested values have more white space than text.
    meter, text = meter_of(context), StringIO()
    meter.spend_either(0, 4)  # a new encoder for each call
    plain_value = plain(value, scope_of(context).references, meter)
    for piece in json.JSONEncoder(ensure_ascii=False, indent=indent).iterencode(plain_value):
        meter.write(len(piece))
        meter.spend(1)
        text.write(piece)
    return text.getvalue()


TEXT_FILTERS: Final[Mapping[str, Filter]] = {
    **{name: _text_filter(name, JINJA_FILTERS[name]) for name in ("capitalize", "lower", "truncate", "upper")},
    **{name: _text_filter(name, JINJA_FILTERS[name], PIECES_FACTOR) for name in ("title", "wordcount")},
    "center": _text_filter("center", _center),
    "e": _text_filter("e", _escape),
    "escape": _text_filter("escape", _escape),
    "format": _text_filter("format", _format),
    "indent": _text_filter("indent", _indent, PIECES_FACTOR),
    "replace": _text_filter("replace", _replace),
    "string": string,
    "tojson": _tojson,
    "trim": _text_filter("trim", _trim),
    "urlencode": _urlencode,
}
