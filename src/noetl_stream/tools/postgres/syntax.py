"""The check of ``kind: postgres`` SQL without a database, as far as all versions agree.

No parser here is the server's, whose grammar depends on its version, and an error about valid SQL is worse than none.
Only unreadable SQL and statements that the tool refuses are therefore errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from noetl_stream.playbook.kinds.spec import CodeProblem
from noetl_stream.playbook.suggestions import did_you_mean
from noetl_stream.tools import sql
from noetl_stream.tools.postgres.statements import leading_word, refusal, split_statements, unbalanced_part

COMMANDS: Final = frozenset([
    "abort", "alter", "analyse", "analyze", "begin", "call", "checkpoint", "close", "cluster", "comment", "commit",
    "copy", "create", "deallocate", "declare", "delete", "discard", "do", "drop", "end", "execute", "explain",
    "fetch", "grant", "import", "insert", "listen", "load", "lock", "merge", "move", "notify", "prepare", "reassign",
    "refresh", "reindex", "release", "repack", "reset", "revoke", "rollback", "savepoint", "security", "select",
    "set", "show", "start", "table", "truncate", "unlisten", "update", "vacuum", "values", "wait", "with",
])  # fmt: skip
"""The words that a statement can begin with. A server that only speaks Postgres' protocol may have more."""


def syntax_problems(text: str) -> Iterator[CodeProblem]:
    """Returns errors of the SQL on any server, and statements that do not begin with a word of Postgres."""
    found = unbalanced_part(text)
    if found is not None:
        message, offset = found
        yield CodeProblem(message, *_place_of(text, offset))
        return
    for statement in split_statements(text):
        word, line = leading_word(statement)
        if (reason := refusal(statement)) is not None:
            yield CodeProblem(reason, statement.line)
        elif word is not None and word.lower() not in COMMANDS:
            message = f"no statement of Postgres begins with `{word}`"
            yield CodeProblem(message, line, severity="warning", hint=did_you_mean(word, sorted(COMMANDS)))


def params_error(inputs: Mapping[str, Any]) -> str | None:
    """Returns the reason why the params do not match the SQL, as far as known before the run."""
    return sql.params_error(inputs, _statement_parameters)


def _statement_parameters(text: str) -> list[tuple[str, list[str]]]:
    if unbalanced_part(text) is not None:
        raise ValueError("does not parse")
    return [(one.text, [parameter.name for parameter in one.parameters]) for one in split_statements(text)]


def _place_of(text: str, offset: int) -> tuple[int, int]:
    """Returns the line and column of an offset, from 1."""
    return text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1
