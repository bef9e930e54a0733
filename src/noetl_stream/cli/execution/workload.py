"""The workload on the command line (LANGUAGE §1: ``--set``), and a file of them: ``execution start --each``."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from noetl_stream.cli.base.files import file_text
from noetl_stream.cli.base.options import bundled
from noetl_stream.cli.base.output import say
from noetl_stream.errors import UsageError
from noetl_stream.model.ids import is_uuid7
from noetl_stream.model.json.texts import as_double, digits_lost, digits_lost_text, pointers_lost
from noetl_stream.model.json.values import TOO_DEEP, deep_merge
from noetl_stream.model.priorities import HIGHEST_PRIORITY, LOWEST_PRIORITY

if TYPE_CHECKING:
    from ruamel.yaml import YAML

Command = TypeVar("Command", bound=Callable[..., Any])


def workload_of(
    file: Path | None,
    sets: tuple[str, ...],
    strings: tuple[str, ...],
    file_option: str = "--workload",
    set_option: str = "--set",
) -> dict[str, Any]:
    """The workload of the options: the file's mapping, with each ``KEY=VALUE`` merged over it.

    Raises:
        UsageError: an option is invalid.
    """
    workload: dict[str, Any] = _read(file, f"{file_option} {file}") if file is not None else {}
    for text in sets:
        key, value = _split(text, set_option)
        workload = deep_merge(workload, _nest(key, json_or_text(value)))
    for text in strings:
        key, value = _split(text, "--set-string")
        workload = deep_merge(workload, _nest(key, value))
    return workload


workload_options = bundled(
    "workload",
    lambda sets, strings, workload_file: workload_of(workload_file, sets, strings),
    [
        click.option(
            "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a workload key; parsed as JSON if possible."
        ),
        click.option("--set-string", "strings", multiple=True, metavar="KEY=VALUE", help="Set a workload key to text."),
        click.option(
            "--workload",
            "workload_file",
            type=click.Path(path_type=Path),
            help="YAML or JSON mapping, merged over the defaults.",
        ),
    ],
)


def labels_of(pairs: Iterable[str], option: str = "--label") -> dict[str, str]:
    """The values of an option ``KEY=VALUE``, by key.

    Raises:
        UsageError: one is not ``KEY=VALUE``.
    """
    found = {}
    for text in pairs:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"{option} {text!r}: expected KEY=VALUE")
        found[key] = value
    return found


def json_or_text(text: str) -> Any:
    """The value of JSON; anything else, including ``NaN`` and ``1e999``, is text.

    Raises:
        UsageError: it is nested too deeply.
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise UsageError(f"{text[:20]}…: {TOO_DEEP}") from None
    except ValueError:
        return text
    warn_of_digits(text.encode(errors="replace"), f"{text:.20}")
    return value


def warn_of_digits(data: bytes, named: str) -> bool:
    """Prints on stderr which numbers of JSON text lose digits, if any."""
    return _warn(digits_lost(data), named)


def priority_option(default: str) -> Callable[[Command], Command]:
    """``--priority``; ``default`` describes the priority without the option."""
    given = click.IntRange(LOWEST_PRIORITY, HIGHEST_PRIORITY)
    about = f"What waits in a pool comes from the highest priority. Default: {default}."
    return click.option("--priority", type=given, help=about)


def _read(file: Path, named: str) -> dict[str, Any]:
    from ruamel.yaml.error import YAMLError  # most workloads are given without a file

    try:
        text = file_text(file, named).removeprefix("\ufeff")
        found = _reader().load(text)
        plain = json.loads(json.dumps(found, allow_nan=False))
    except OSError as error:
        raise UsageError(f"{named}: {error.strerror}") from None
    except RecursionError:
        raise UsageError(f"{named}: {TOO_DEEP}") from None
    except (YAMLError, TypeError, ValueError) as error:
        raise UsageError(f"{named}: not YAML or JSON: {str(error).splitlines()[0]}") from None
    if not isinstance(plain, dict):
        raise UsageError(f"{named}: expected a mapping")
    _warn(pointers_lost(found), named)
    return plain


def _reader() -> YAML:
    """A reader of YAML that marks numbers beyond the precision of a double."""
    from ruamel.yaml import YAML
    from ruamel.yaml.constructor import SafeConstructor

    class Marking(SafeConstructor):
        def decimal(self, node: Any) -> float:
            text = self.construct_scalar(node).replace("_", "")
            return as_double(text) if text[-1:].isdigit() else self.construct_yaml_float(node)

    Marking.add_constructor("tag:yaml.org,2002:float", Marking.decimal)
    reader = YAML(typ="safe", pure=True)
    reader.Constructor = Marking
    return reader


def _warn(lost: list[str], named: str) -> bool:
    if lost:
        say(f"warning: {named}: {digits_lost_text(lost)}", err=True)
    return bool(lost)


def _split(text: str, option: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not all(key.split(".")):
        raise UsageError(f"{option} {text!r}: expected KEY=VALUE")
    return key, value


def _nest(key: str, value: Any) -> dict[str, Any]:
    for name in reversed(key.split(".")):
        value = {name: value}
    return value  # type: ignore[no-any-return]


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


IN_FLIGHT: Final = 10
MOST_IN_FLIGHT: Final = 1_000


class Batch(msgspec.Struct, frozen=True, gc=False):
    """The options of a batch.

    Attributes:
        rows: JSONL, a workload each; ``-`` is stdin.
        id: The id of a batch to continue; ``None`` for a new one.
        results: Gets the results; ``None`` is stdout.
    """

    rows: Path
    in_flight: int
    id: str | None
    results: Path | None


def _batch(rows: Path | None, in_flight: int | None, batch: str | None, results: Path | None) -> Batch | None:
    if rows is None:
        given = {"--in-flight": in_flight, "--batch": batch, "--results": results}
        for option, value in given.items():
            if value is not None:
                raise UsageError(f"{option} needs --each")
        return None
    if batch is not None and not is_uuid7(batch):
        raise UsageError(f"--batch {batch!r} is not a batch id", hint="the interrupted command has printed it")
    return Batch(rows, in_flight or IN_FLIGHT, batch, results)


batch_options = bundled(
    "batch",
    _batch,
    [
        click.option(
            "--each",
            "rows",
            metavar="ROWS",
            type=click.Path(path_type=Path),
            help="Start an execution for each line of this JSONL file, a workload merged over the others; - is stdin.",
        ),
        click.option(
            "--in-flight",
            type=click.IntRange(1, MOST_IN_FLIGHT),
            help=f"How many executions of --each run at once. Default: {IN_FLIGHT}.",
        ),
        click.option("--batch", metavar="ID", help="Go on with this batch: nothing of it is started twice."),
        click.option(
            "--results",
            metavar="FILE",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Write the results there, not to stdout. With --batch, only those that are not in it.",
        ),
    ],
)
