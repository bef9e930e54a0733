"""``noetl-stream playbook test``: the tests beside playbooks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.options import output_option
from noetl_stream.cli.base.output import print_json, print_table, say
from noetl_stream.cli.playbook.playbook_source import kinds_option
from noetl_stream.errors import UsageError, usable_file

if TYPE_CHECKING:
    from noetl_stream.playbook_tests.journal import Coverage


@click.command("test")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("-k", "only", default="", metavar="TEXT", help="Run the tests with this in their name.")
@click.option("--junit", "junit_file", type=click.Path(path_type=Path), help="Write a JUnit report to this file.")
@click.option("--coverage", "shows_coverage", is_flag=True, help="Show which arcs, guards and rules no test reaches.")
@click.option("--coverage-json", "coverage_file", type=click.Path(path_type=Path), help="Write the coverage as JSON.")
@click.option(
    "--fail-under", type=click.FloatRange(0, 100), metavar="PERCENT", help="Fail if the coverage is less than this."
)
@kinds_option
@click.option("--seed", type=int, default=0, show_default=True, help="Of ids and jitter.")
@output_option("text", "json")
@click.pass_context
def test_files(
    ctx: click.Context,
    files: tuple[Path, ...],
    only: str,
    junit_file: Path | None,
    shows_coverage: bool,
    coverage_file: Path | None,
    fail_under: float | None,
    extra: str,
    seed: int,
    output: str,
) -> None:
    """Run the tests of playbooks.

    FILES are test documents (NAME.test.yaml), playbooks that have one beside them, or folders of them; by default, the
    current folder. Tests run on the engine in memory, in simulated time: no NATS, no Postgres, no network.

    \b
    Exit code: 0 all passed    1 a test failed, or too little is covered    2 a test or a playbook is invalid
    """
    from noetl_stream.cli.playbook.project_tests import in_project, test_runner
    from noetl_stream.playbook_tests.journal import Coverage, coverage_json
    from noetl_stream.playbook_tests.run import tool_not_installed
    from noetl_stream.playbook_tests.suite import find_documents, junit, run_document, suite_json, text_lines

    runner = test_runner(seed, {kind: tool_not_installed(kind) for kind in map(str.strip, extra.split(",")) if kind})
    coverage = Coverage()
    ran = []
    for file in find_documents(files or (Path(),)):
        with in_project(file):
            ran.append(run_document(file, runner, coverage, only))
        if output == "text":
            for line in text_lines(ran[-1]):
                say(line)
    outcomes = [outcome for one in ran for outcome in one.outcomes]
    failed, invalid = sum(not one.passed for one in outcomes), sum(bool(one.document.diagnostics) for one in ran)
    percent = coverage.percent()
    is_uncovered = fail_under is not None and percent < fail_under
    if only and not outcomes and not invalid:
        raise UsageError(f"no test has {only!r} in its name")
    if junit_file is not None:
        _write(junit_file, junit(ran))
    if coverage_file is not None:
        _write(coverage_file, _json(coverage_json(coverage)))
    if output == "json":
        print_json({"tests": suite_json(ran), "coverage": coverage_json(coverage)})
    else:
        if shows_coverage:
            _show(coverage)
        say(_summary(len(outcomes), failed, invalid))
        if is_uncovered:
            say(f"{percent:.1f} % covered, less than {fail_under:g} %", err=True)
    if invalid:
        ctx.exit(ExitCode.INVALID)
    if failed or is_uncovered:
        ctx.exit(ExitCode.FAILED)


def _summary(count: int, failed: int, invalid: int) -> str:
    parts = [f"{count - failed} passed"]
    if failed:
        parts.append(f"{failed} failed")
    if invalid:
        parts.append(f"{invalid} invalid document{'' if invalid == 1 else 's'}")
    return ", ".join(parts)


def _show(coverage: Coverage) -> None:
    for one in coverage.playbooks():
        percent = 100.0 * one.covered / one.size if one.size else 100.0
        say(f"{one.file}: {one.covered} of {one.size} covered, {percent:.1f} %")
        rows = [
            (item.line, item.kind, item.where, ", ".join(item.missed), item.when) for item in one.items if item.missed
        ]
        if rows:
            print_table(("line", "what", "where", "missed", "when"), rows)
    say(f"coverage: {coverage.percent():.1f} %")


def _json(value: object) -> bytes:
    import json

    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()


def _write(file: Path, content: bytes) -> None:
    with usable_file(file, "written"):
        file.write_bytes(content)
