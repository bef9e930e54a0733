"""``noetl-stream playbook upgrade``: older dialects to the present language."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.options import output_option
from noetl_stream.cli.base.output import print_json, print_source, say
from noetl_stream.cli.playbook.playbook_source import accepted, kinds_option, print_diagnostics, read_playbook
from noetl_stream.errors import UsageError, usable_file
from noetl_stream.playbook.diagnostics import Diagnostic, InvalidPlaybook

if TYPE_CHECKING:  # only this command needs ruamel's round trip
    from noetl_stream.playbook.upgrade.upgrade import Upgraded


class _Outcome(NamedTuple):
    """The outcome for a file: the upgraded playbook, or the reason why there is none."""

    file: Path
    upgraded: Upgraded | None
    problems: tuple[Diagnostic, ...] = ()
    unreadable: str = ""


@click.command("upgrade")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-w", "--write", is_flag=True, help="Rewrite the files in place.")
@click.option("--diff", "shows_diff", is_flag=True, help="Print a unified diff instead of the playbook.")
@click.option("--check", "only_checks", is_flag=True, help="Print no playbook; exit with 1 if a file would change.")
@kinds_option
@output_option("text", "json")
@click.pass_context
def upgrade_files(
    ctx: click.Context,
    files: tuple[Path, ...],
    write: bool,
    shows_diff: bool,
    only_checks: bool,
    extra: str,
    output: str,
) -> None:
    """Rewrite FILES of older dialects to the present language.

    Prints the playbook, and to stderr what was changed, what was assumed, and what a person must decide. That also
    stands in the playbook, in comments that begin with `# upgrade:`; remove each once it is decided. Comments, order
    and quotes are kept, and a file without older forms stays as it is.

    \b
    Exit code: 0 done    1 something to decide, or the result has errors    2 not a playbook
    """
    if write and (shows_diff or only_checks):
        raise UsageError("--write cannot be combined with --diff or --check", hint="drop one of them")
    if len(files) > 1 and output == "text" and not (write or shows_diff or only_checks):
        raise UsageError("several files need --write, --diff or --check", hint="or upgrade one file at a time")
    outcomes = [_upgraded(file, extra) for file in files]
    for outcome in outcomes:
        if write and outcome.upgraded is not None and outcome.upgraded.is_changed:
            _replace(outcome.file, outcome.upgraded.text)
    if output == "json":
        print_json([_as_json(outcome) for outcome in outcomes])
    else:
        for outcome in outcomes:
            _report(outcome)
            if outcome.upgraded is not None and shows_diff:
                _print_diff(outcome.file, outcome.upgraded)
            elif outcome.upgraded is not None and not (write or only_checks):
                print_source(outcome.upgraded.text)
    ctx.exit(max(_exit_code(outcome, only_checks) for outcome in outcomes))


def _upgraded(file: Path, extra: str) -> _Outcome:
    from noetl_stream.playbook.upgrade.upgrade import upgrade

    kinds, limits = accepted(extra)
    try:
        return _Outcome(file, upgrade(read_playbook(file), kinds, file=str(file), limits=limits))
    except UsageError as error:
        return _Outcome(file, None, unreadable=error.message)
    except InvalidPlaybook as error:
        return _Outcome(file, None, error.diagnostics)


def _replace(file: Path, text: str) -> None:
    """Writes a file as a whole or not at all, with its present permissions."""
    target = file.resolve()
    with usable_file(file, "written"):
        with tempfile.NamedTemporaryFile("wb", dir=target.parent, prefix=f".{target.name}.", delete=False) as new:
            new.write(text.encode())
        shutil.copymode(target, new.name)
        Path(new.name).replace(target)


def _report(outcome: _Outcome) -> None:
    """Reports the changes on stderr."""
    name, upgraded = str(outcome.file), outcome.upgraded
    if outcome.unreadable:
        say(outcome.unreadable, err=True)
    print_diagnostics(outcome.problems, "")
    if upgraded is None:
        return
    for note in upgraded.notes:
        say(f"{name}:{note.line}: {note.kind}[{note.rule}]: {note.message}", err=True)
    if not upgraded.passes:
        print_diagnostics(upgraded.diagnostics, f"{name} (upgraded)")
    say(f"{name}: {_summary(upgraded)}", err=True)


def _summary(upgraded: Upgraded) -> str:
    counts = {kind: sum(1 for note in upgraded.notes if note.kind == kind) for kind in ("assumed", "decide")}
    said = ["upgraded" if upgraded.is_changed else "unchanged"]
    said += [f"{counts['assumed']} assumed"] if counts["assumed"] else []
    said += [f"{counts['decide']} to decide"] if counts["decide"] else []
    said += [] if upgraded.passes else ["does not pass `playbook check`"]
    return ", ".join(said)


def _print_diff(file: Path, upgraded: Upgraded) -> None:
    from noetl_stream.operations.differences import unified_diff

    for line in unified_diff(upgraded.before, upgraded.text, str(file), f"{file} (upgraded)"):
        print_source(line)


def _exit_code(outcome: _Outcome, only_checks: bool) -> ExitCode:
    if outcome.upgraded is None:
        return ExitCode.INVALID
    is_well = outcome.upgraded.is_done and not (only_checks and outcome.upgraded.is_changed)
    return ExitCode.COMPLETED if is_well else ExitCode.FAILED


def _as_json(outcome: _Outcome) -> dict[str, object]:
    if outcome.upgraded is not None:
        return {"file": str(outcome.file), **outcome.upgraded.to_json(), "error": None}
    found = [one.to_json() for one in outcome.problems]
    text = outcome.unreadable or None
    empty = {"changed": False, "ok": False, "notes": [], "diagnostics": found, "text": None}
    return {"file": str(outcome.file), **empty, "error": text}
