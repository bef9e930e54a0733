"""The methods that a template may call on a value (LANGUAGE §2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from jinja2.runtime import LoopContext

from noetl_stream.template.failures import EvaluationFailure
from noetl_stream.template.runtime.attribute_access import kind_of
from noetl_stream.template.runtime.meter import CHARS_PER_OPERATION, CHARS_PER_SEARCH, Meter

MAPPING_METHODS: Final = frozenset({"items", "keys", "values", "get"})

TEXT_METHODS: Final = frozenset(
    {
        *("upper", "lower", "title", "capitalize", "casefold", "swapcase"),
        *("strip", "lstrip", "rstrip", "removeprefix", "removesuffix"),
        *("split", "rsplit", "splitlines", "partition", "rpartition", "join", "replace"),
        *("startswith", "endswith", "find", "rfind", "index", "count"),
        *("isdigit", "isalpha", "isalnum", "isnumeric", "isdecimal", "isspace", "isupper", "islower", "isidentifier"),
        *("ljust", "rjust", "center", "zfill"),
    }
)

LOOP_METHODS: Final = frozenset({"cycle", "changed"})

METHODS: Final = MAPPING_METHODS | TEXT_METHODS | LOOP_METHODS

_PADDING: Final = frozenset({"ljust", "rjust", "center", "zfill"})
_STRIPPING: Final = frozenset({"strip", "lstrip", "rstrip"})
_SPLITTING: Final = frozenset({"split", "rsplit", "splitlines"})
_SEARCHING: Final = frozenset({"startswith", "endswith", "find", "rfind", "index", "count"})
_CUTTING: Final = _SPLITTING | {"partition", "rpartition"}
_FROM_THE_END: Final = frozenset({"rfind", "rsplit", "rpartition"})
_COMPARISONS_PER_OPERATION: Final = 1_024
PIECES_FACTOR: Final = 4
"""How much more it costs to split a text than to copy it."""


def call_method(meter: Meter, value: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Calls a method: the result of ``value.name(…)``.

    Raises:
        EvaluationFailure: The value has no such method, or is a mapping with this key.
    """
    meter.work(1)
    if isinstance(value, Mapping):
        if name in value:
            raise EvaluationFailure(f"`{name}` is a key here, and {kind_of(value[name])} cannot be called")
        if name in MAPPING_METHODS:
            return _call_mapping_method(meter, value, name, *args, **kwargs)
    elif isinstance(value, str) and name in TEXT_METHODS:
        return _call_text_method(meter, value, name, *args, **kwargs)
    elif isinstance(value, LoopContext) and name in LOOP_METHODS:
        meter.weigh(list(args))  # `changed` compares them with those of the previous iteration
        return getattr(value, name)(*args)
    raise EvaluationFailure(f"{kind_of(value)} has no method `{name}`")


def _call_mapping_method(meter: Meter, value: Mapping[str, Any], name: str, *args: Any, **kwargs: Any) -> Any:
    if name == "get":
        return _get(value, *args, **kwargs)
    if args or kwargs:
        raise EvaluationFailure(f"`{name}()` takes no arguments")
    meter.work(len(value))
    if name == "items":
        return [list(pair) for pair in value.items()]
    return list(value.keys() if name == "keys" else value.values())


def _get(value: Mapping[str, Any], key: Any, default: Any = None) -> Any:
    return value.get(key, default) if isinstance(key, str) else default


def _call_text_method(meter: Meter, text: str, name: str, *args: Any, **kwargs: Any) -> Any:
    if name == "replace":
        return replace(meter, text, *args, **kwargs)
    if name == "join":
        return _join(meter, text, *args)
    if name in _STRIPPING:
        return strip(meter, text, *args, method=name)
    _count(meter, text, name, (*args, *kwargs.values()))
    if name in ("startswith", "endswith"):
        args = tuple(_alternatives(meter, text, arg) for arg in args)
    result = getattr(text, name)(*args, **kwargs)
    if isinstance(result, list | tuple):
        meter.repeat(len(result))
        return list(result)
    return result


def _count(meter: Meter, text: str, name: str, args: Sequence[Any]) -> None:
    if name in _SEARCHING:
        meter.search_text(text)
    else:
        meter.write(len(text) * (PIECES_FACTOR if name in _SPLITTING else 1))
        if name in _CUTTING:
            meter.spend(len(text) // CHARS_PER_SEARCH)
    for arg in args:
        if name in _FROM_THE_END and isinstance(arg, str):
            compare_all(meter, text, arg)
        elif name in _PADDING and isinstance(arg, int):
            meter.write(max(arg, 0))


def _join(meter: Meter, separator: str, elements: Any) -> str:
    meter.work(len(elements))
    texts = list(elements)
    for position, element in enumerate(texts):
        if not isinstance(element, str):
            raise EvaluationFailure(
                f"`join` takes texts, but element {position} is {kind_of(element)}", hint="use the filter `join`"
            )
    meter.write(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


def replace(meter: Meter, text: str, old: str, new: str, count: int | None = None) -> str:
    """Replaces ``old`` by ``new`` in ``text``, everywhere or ``count`` times."""
    times = -1 if count is None else count
    meter.spend(len(text) // CHARS_PER_SEARCH)
    found = text.count(old) if times < 0 else min(text.count(old), times)
    meter.write(len(text) + found * len(new))
    return text.replace(old, new, times)


def strip(meter: Meter, text: str, chars: str | None = None, *, method: str = "strip") -> str:
    """Strips white space, or ``chars``, from both ends of ``text``."""
    meter.write(len(text))
    if isinstance(chars, str):
        chars = "".join(dict.fromkeys(chars))
        compare_all(meter, text, chars)
    stripped: str = getattr(text, method)(chars)
    return stripped


def compare_all(meter: Meter, text: str, other: str) -> None:
    """Counts an operation that compares, at worst, every pair of characters of the two texts."""
    meter.work(len(text) * len(other) // _COMPARISONS_PER_OPERATION)


def _alternatives(meter: Meter, text: str, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    meter.work(len(value))
    compared = sum(min(len(alternative), len(text)) for alternative in value if isinstance(alternative, str))
    meter.work(compared // CHARS_PER_OPERATION)
    return tuple(value)
