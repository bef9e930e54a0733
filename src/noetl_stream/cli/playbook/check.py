"""``noetl-stream playbook check|schema``: checks that need neither running playbooks nor the catalog."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.options import output_option
from noetl_stream.cli.base.output import print_json, print_source, say
from noetl_stream.cli.base.session import Session, Target, target_options, with_session
from noetl_stream.cli.playbook.playbook_source import accepted, kinds_option, read_playbook
from noetl_stream.cli.project.project_file import package_folders
from noetl_stream.errors import UsageError, usable_file
from noetl_stream.model.limits import Limits
from noetl_stream.playbook.check.calls import paths_missing
from noetl_stream.playbook.compile.compiler import CheckResult, check, check_document
from noetl_stream.playbook.diagnostics import OLDER_FORMS, Diagnostic
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.playbook.schema import CATALOG_ENTRY, playbook_schema, with_store_address
from noetl_stream.tools.python.signatures import modules_in


@click.command("check")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@kinds_option
@click.option("--strict", is_flag=True, help="Make every warning an error.")
@output_option("text", "json")
@target_options
@click.pass_context
def check_files(
    ctx: click.Context, files: tuple[Path, ...], extra: str, strict: bool, output: str, target: Target
) -> None:
    """Check FILES for errors.

    Reports every problem with its line, column and a hint, and runs nothing. Uses the tool kinds installed here, and
    the schemas among FILES; with --url or --context, the gateway checks with its own, and looks up in its catalog the
    playbooks that they call and the schemas that they name.

    \b
    Exit code: 0 no errors (there may be warnings)    2 at least one error
    """
    if target.url is not None or target.context is not None:
        if extra:
            raise UsageError("--kinds needs a local check", hint="a gateway uses the tool kinds of its workers")
        results = with_session(target, lambda session: _check_remotely(session, files))
    else:
        kinds, limits = accepted(extra)
        results = _check_files(files, kinds, limits)
    if strict:
        results = {name: [replace(one, severity="error") for one in found] for name, found in results.items()}
    if output == "json":
        documents = {name: [one.to_json() for one in found] for name, found in results.items()}
        print_json([{"file": name, "ok": _passed(results[name]), "diagnostics": documents[name]} for name in results])
    else:
        for name, found in results.items():
            for diagnostic in found:
                say(diagnostic.render())
            if _passed(found):
                say(f"{name}: ok")
    if not all(map(_passed, results.values())):
        ctx.exit(ExitCode.INVALID)


@click.command()
@click.option("-o", "--output", "file", type=click.Path(path_type=Path), help="File to write. [default: stdout]")
@click.option(
    "--form",
    type=click.Choice(["playbook", "test", "store", "entry"]),
    default="playbook",
    show_default=True,
    help="test: of test documents; store: of playbooks as JSON Schema Store takes it; entry: that of its catalog.",
)
@kinds_option
def schema(file: Path | None, form: str, extra: str) -> None:
    """Print the JSON Schema of playbooks, or of their tests.

    The schema (draft 2020-12) covers the tool kinds installed here. Editors with the YAML language server use it if a
    playbook begins with

    \b
      # yaml-language-server: $schema=playbook.schema.json
    """
    text = json.dumps(_document(form, extra), ensure_ascii=False, indent=2) + "\n"
    if file is None:
        print_source(text)
        return
    with usable_file(file, "written"):
        file.write_text(text, encoding="utf-8")


def _document(form: str, extra: str) -> dict[str, Any]:
    if form == "entry":
        return CATALOG_ENTRY
    if form == "test":
        from noetl_stream.playbook_tests.schema import playbook_test_schema  # playbooks are checked without it

        return playbook_test_schema()
    found = playbook_schema(*accepted(extra))
    return with_store_address(found) if form == "store" else found


async def _check_remotely(session: Session, files: Sequence[Path]) -> dict[str, Sequence[Diagnostic]]:
    texts = {str(file): read_playbook(file) for file in files}
    checked = {name: await session.operations.playbooks.check(text, name) for name, text in texts.items()}
    given = {one.path for one in checked.values()}
    results: dict[str, Sequence[Diagnostic]] = {}
    for name, found in checked.items():
        # A playbook among the files will be registered with its caller.
        among = {one for one, path in paths_missing(found.diagnostics, texts[name]).items() if path in given}
        results[name] = [one for one in found.diagnostics if one not in among] + _of_packages(Path(name), texts[name])
    return results


def _of_packages(file: Path, text: bytes) -> list[Diagnostic]:
    """The diagnostics of a playbook's functions by the packages of its project, which a gateway does not have."""
    folders = package_folders(file)
    if not folders:
        return []
    kinds, limits = accepted()
    without = check_document(text, kinds, file=str(file), limits=limits).diagnostics
    with modules_in(folders):
        found = check_document(text, kinds, file=str(file), limits=limits).diagnostics
    return [one for one in found if one not in without]


def _check_files(files: Sequence[Path], kinds: Kinds, limits: Limits) -> dict[str, Sequence[Diagnostic]]:
    found: dict[str, Sequence[Diagnostic]] = {}
    results: dict[Path, CheckResult] = {}
    for file in files:
        try:
            with modules_in(package_folders(file)):
                checked = check_document(read_playbook(file), kinds, file=str(file), limits=limits, proves=True)
        except UsageError as error:
            found[str(file)] = [_unreadable(file, error)]
            continue
        found[str(file)] = _with_converter(file, checked.diagnostics, kinds, limits)
        results[file] = checked
    schemas = schemas_in(results.values())
    for file, read in results.items():
        if read.plan is not None and read.plan.named_schemas and read.plan.named_schemas <= schemas.keys():
            with modules_in(package_folders(file)):
                checked = check(read_playbook(file), kinds, file=str(file), limits=limits, schemas=schemas, proves=True)
            found[str(file)] = checked.diagnostics
    return found


def _with_converter(file: Path, found: Sequence[Diagnostic], kinds: Kinds, limits: Limits) -> Sequence[Diagnostic]:
    """The diagnostics of a file; the first one that the converter mends names its command."""
    if not any(one.code in OLDER_FORMS for one in found):
        return found
    from noetl_stream.playbook.upgrade.upgrade import with_converter  # only for older forms

    return with_converter(read_playbook(file), found, kinds, file=str(file), limits=limits)


def schemas_in(checked: Iterable[CheckResult]) -> dict[str, dict[str, Any]]:
    """The contents of the schemas among documents, by each address of theirs."""
    found: dict[str, dict[str, Any]] = {}
    for schema in (one.schema for one in checked if one.schema is not None):
        version = [f"{schema.path}@{schema.version}"] if schema.version else []
        found |= dict.fromkeys([schema.path, *version], schema.content)
    return found


def _unreadable(file: Path, error: UsageError) -> Diagnostic:
    return Diagnostic(
        severity="error",
        code="file_unreadable",
        message=error.message.removeprefix(f"{file}: "),
        hint=error.hint,
        file=str(file),
        line=1,
        column=1,
        pointer="",
    )


def _passed(found: Sequence[Diagnostic]) -> bool:
    return all(one.severity != "error" for one in found)
