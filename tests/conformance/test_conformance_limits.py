"""Limits have names, and the values the language gives them (LANGUAGE §5, §6, §8, §9, §10, §14)."""

from __future__ import annotations

import re

import pytest

from noetl_stream.model.limits import DEFAULT_LIMITS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_inline_bytes", 64 * 1024),
        ("max_resolve_bytes", 4 * 1024 * 1024),
        ("max_ctx_bytes", 1024 * 1024),
        ("max_step_runs", 100_000),
        ("inline_delay_s", 5.0),
    ],
)
def test_the_defaults_are_those_of_the_language(name: str, value: float) -> None:
    assert getattr(DEFAULT_LIMITS, name) == value


def test_every_limit_has_a_name_that_says_its_unit_or_what_it_counts() -> None:
    for name in DEFAULT_LIMITS.__struct_fields__:
        assert re.fullmatch(r"max_[a-z_]+|[a-z_]+_s", name), name
        assert getattr(DEFAULT_LIMITS, name) > 0
