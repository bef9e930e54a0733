"""Log lines: one a record, for people and for machines."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Literal

import pytest

from noetl_stream.telemetry.structured_logs import configure


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root, own = logging.getLogger(), logging.getLogger("noetl_stream")
    handlers, levels = root.handlers[:], (root.level, own.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    own.setLevel(levels[1])


def written(format: Literal["text", "json"], level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    configure(level, format, stream)
    return stream


def test_text_has_time_level_logger_message_and_extras() -> None:
    stream = written("text")
    logging.getLogger("noetl_stream.server").info(
        "lease %s", "taken", extra={"partition": 7, "owner": "a b", "empty": "", "ids": [1], "path": "/x/y-1.0"}
    )
    line = stream.getvalue()
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO noetl_stream.server lease taken ", line)
    assert line.endswith(' partition=7 owner="a b" empty="" ids=[1] path=/x/y-1.0\n')


def test_json_has_the_same_fields_as_an_object() -> None:
    stream = written("json")
    logging.getLogger("noetl_stream.server").warning("lease lost", extra={"partition": 7, "what": {"a": object}})
    record = json.loads(stream.getvalue())
    assert record.pop("time").endswith("Z")
    assert record == {
        "level": "warning",
        "logger": "noetl_stream.server",
        "message": "lease lost",
        "partition": 7,
        "what": {"a": "<class 'object'>"},
    }


@pytest.mark.parametrize("format", ["text", "json"])
def test_messages_and_exceptions_of_many_lines_stay_one_line(format: Literal["text", "json"]) -> None:
    stream = written(format)
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        logging.getLogger("noetl_stream").exception("it\nfailed")
    assert stream.getvalue().count("\n") == 1
    assert "ValueError: first" in stream.getvalue() and "Traceback" in stream.getvalue()


def test_the_level_is_ours_and_libraries_only_warn() -> None:
    stream = written("text", level="debug")
    logging.getLogger("noetl_stream.worker").debug("ours")
    logging.getLogger("nats.aio").info("theirs")
    logging.getLogger("nats.aio").warning("their warning")
    assert [line.split(" ", 3)[3] for line in stream.getvalue().splitlines()] == ["ours", "their warning"]


def test_an_extra_cannot_hide_a_field_of_the_record() -> None:
    stream = written("json")
    logging.getLogger("noetl_stream").warning("said", extra={"level": "none", "time": 0})
    record = json.loads(stream.getvalue())
    assert (record["level"], record["level_"], record["time_"]) == ("warning", "none", 0)


def test_configuring_again_replaces_the_first() -> None:
    first, second = written("text"), written("text")
    logging.getLogger("noetl_stream").info("once")
    assert first.getvalue() == "" and second.getvalue().count("once") == 1
