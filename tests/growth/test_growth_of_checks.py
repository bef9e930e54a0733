"""Ten times the document is about ten times the work, to check it with all that its net proves."""

from __future__ import annotations

import pytest
from counted import Act, assert_near_linear
from grown_documents import GROWN

from effort import in_gate
from noetl_stream.playbook.compile.compiler import check_document
from noetl_stream.tools.registry import kinds_of, load_tools

KINDS = kinds_of(load_tools())
PARTS = 15


@pytest.mark.parametrize("name", in_gate(GROWN, 3))
def test_a_check_grows_with_the_document(name: str) -> None:
    def checked(count: int) -> Act:
        text = GROWN[name](count)
        return lambda: check_document(text, KINDS, proves=True)

    assert_near_linear(checked, PARTS)
