"""What tasks require: read from knobs and code, and refused where it says more than names and versions."""

from __future__ import annotations

import pytest

from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.playbook.compile.compiler import check_document
from noetl_stream.tools.python.environments.requirements import (
    RequirementRefused,
    Requirements,
    required_by,
    requirements_in,
    requirements_of,
)
from noetl_stream.tools.registry import kinds_of, load_tools

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: one, path: team/one }\n"
FLOW = """\
executor:
  spec:
    python: { requires: ["Tiny >= 1", 'other[x]; python_version > "3.11"'] }
workflow:
  - step: start
    tool:
      - { name: a, kind: python, code: "return 1" }
      - { name: b, kind: python, code: "return 1", spec: { python: { python: "3.12" } } }
      - { name: c, kind: python, function: "tiny:one", spec: { python: { requires: [tiny] } } }
      - name: d
        kind: python
        code: |
          # /// script
          # requires-python = ">=3.12"
          # dependencies = [
          #   "tiny",
          # ]
          #
          # [tool.ruff]
          # line-length = 120
          # ///
          return 1
"""

ONE = """\
workflow:
  - step: start
    tool:
      kind: python
      code: return 1
      spec:
        python: {{ requires: ["{requirement}"] }}
"""


def checked(text: str) -> tuple[list[tuple[int, str]], dict[Requirements, int]]:
    """The problems of a playbook by line, and what it requires."""
    found = check_document(HEAD + text, kinds_of(load_tools()), limits=DEFAULT_LIMITS)
    required = required_by(found.draft) if found.draft is not None else {}
    return [(one.line, one.message) for one in found.diagnostics], required


def test_the_nearest_knob_gives_what_it_has_and_code_replaces_all() -> None:
    problems, required = checked(FLOW)
    all_of_it = ("Tiny>=1", 'other[x]; python_version > "3.11"')
    assert problems == []
    assert required == {
        Requirements(all_of_it): 10,
        Requirements(all_of_it, "==3.12.*"): 11,
        Requirements(("msgspec>=0.19", "tiny")): 12,
        Requirements(("tiny",), ">=3.12"): 13,
    }


@pytest.mark.parametrize(
    ("python", "least"), [("", "3.11"), ("3.12", "3.12"), (">=3.12,<3.14", "3.12"), ("3", "3.11"), ("==3.13.2", "3.13")]
)
def test_the_oldest_python_that_fits_is_what_a_lock_begins_with(python: str, least: str) -> None:
    found = requirements_of({"requires": ["tiny"], "python": python}, "", converts=False)
    assert found is not None and found.least_python == least


@pytest.mark.parametrize(
    "text",
    [
        *("tiny @ https://example.com/tiny.whl", "git+https://example.com/tiny", "./tiny", "/srv/tiny.whl", "-e ."),
        *("--index-url https://example.com", "tiny --hash=sha256:0", "-r more.txt", "", "tiny=>1", "tiny\n--pre"),
    ],
)
def test_a_requirement_is_a_name_with_versions_and_nothing_more(text: str) -> None:
    _, required = checked(ONE.format(requirement="tiny"))
    assert [*required] == [Requirements(("tiny",))]
    ((line, message),), _ = checked(ONE.format(requirement=text.replace("\n", "\\n")))
    assert line == 10 and ("not a requirement" in message or "names a place" in message), message


@pytest.mark.parametrize(
    ("python", "why"),
    [
        ("2.7", "no Python from 3.11 on fits"),
        ("3.10", "no Python from 3.11 on fits"),
        ("new", "not a version of Python"),
    ],
)
def test_a_python_that_no_worker_can_have_is_refused(python: str, why: str) -> None:
    with pytest.raises(RequirementRefused, match=why):
        requirements_of({"requires": [], "python": python}, "", converts=False)


@pytest.mark.parametrize(
    ("block", "line", "why"),
    [
        ("# dependencies = [", 1, "not TOML"),
        ("# dependencies = ['tiny', './tiny']", 2, "'./tiny' is not a requirement"),
        ("# requires-python = '3.x'", 2, "not a version of Python"),
        ("# dependencies = 'tiny'", 1, "`dependencies` is a list"),
        ("# index-url = 'https://example.com'", 2, "no `index-url`"),
        ("# [tool.uv]\n# index-url = 'https://example.com'", 2, "`tool.uv` says where packages come from"),
        ("dependencies = []", 1, "has no end"),
    ],
)
def test_a_block_in_code_says_what_is_wrong_and_in_which_line(block: str, line: int, why: str) -> None:
    with pytest.raises(RequirementRefused, match=why) as refused:
        requirements_in(f"# /// script\n{block}\n# ///\nreturn 1")
    assert refused.value.line >= line and (line == 1 or refused.value.line == line)


def test_a_problem_of_a_block_has_its_line_in_the_playbook() -> None:
    flow = FLOW.replace('#   "tiny",', '#   "./tiny",')
    problems, _ = checked(flow)
    assert [line for line, _ in problems] == [19] and "is not a requirement" in problems[0][1]


def test_code_without_a_block_requires_nothing() -> None:
    assert requirements_in("return 1") is None
    assert requirements_of(None, "# /// script\n# ///\nreturn 1", converts=True) is None
