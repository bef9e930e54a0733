"""Kinds of other tools, and keys that a kind of task does not have, with their replacements (LANGUAGE §3)."""

from __future__ import annotations

from typing import Final

from noetl_stream.playbook.vocabulary.hints import VALUE

_CREDENTIAL: Final = "name a credential: auth: <name>; `auth: local_postgres` is the database of the embedded stack"
_PARAMS: Final = "write params: { id: 1 }, and `$id` in the statement"
_OF_SQL: Final = {
    f"write command: {VALUE}": ("sql", "statement", "statements", "script"),
    _PARAMS: ("args", "parameters", "values", "bind", "arguments"),
}
_BY_KIND: Final = {
    "python": {
        "put the code itself under `code`": ("file", "path", "module", "script", "source", "function", "entrypoint"),
        "write args: { name: value }; the code reads each by its name": (
            *("inputs", "input", "params", "kwargs", "parameters", "vars", "env", "environment"),
        ),
        "install packages where the workers run, and import them in the code": ("requirements", "packages", "pip"),
    },
    "shell": {
        "write command: <command>": ("args", "arguments", "argv"),
        f"write command: {VALUE}, with `set -e` where a line may fail": (
            *("script", "cmd", "cmds", "run", "bash_command"),
        ),
        f"write cwd: {VALUE}": ("workdir", "working_dir", "working_directory", "dir"),
    },
    "wait": {
        f"write for_s: {VALUE}": ("seconds", "duration", "delay", "sleep", "for", "time"),
        "write for_s: <minutes>": ("minutes",),
        f"write signal: {VALUE}, which `execution signal` sends": ("event", "approval", "on"),
    },
    "playbook": {
        f"write args: {VALUE}, which are laid over its workload": (
            *("inputs", "input", "params", "parameters", "with", "variables", "workload", "data", "vars"),
        ),
        f"write path: {VALUE}, the path of a registered playbook": (
            *("playbook", "workflow", "file", "ref", "uses", "id"),
        ),
        f"write return_step: {VALUE}": ("return", "output", "outputs"),
    },
    "http": {
        f"write params: {VALUE}": ("query", "query_params", "qs", "querystring"),
        f"write url: {VALUE}": ("uri", "address", "host", "endpoint", "href", "link"),
        "write auth: <credential>, or headers: { Authorization: … }": ("token", "bearer", "bearer_token", "api_key"),
        "write spec: { verify_tls: false }": ("verify", "ssl_verify", "insecure"),
    },
    "duckdb": _OF_SQL,
    "postgres": {
        **_OF_SQL,
        _CREDENTIAL: ("dsn", "connection", "connection_string", "host", "database", "password", "url", "conn_id"),
    },
}
KIND_HINTS: Final = {
    kind: {word: hint for hint, words in hints.items() for word in words} for kind, hints in _BY_KIND.items()
}
"""The hints for keys that a kind of task does not have."""
MISSING_HINTS: Final = {
    "postgres": {"auth": _CREDENTIAL},
    "http": {"url": "write url: https://…"},
    "playbook": {"path": "write path: team/flow, the `metadata.path` of a registered playbook"},
    "shell": {"command": "write command: echo hello"},
}
"""The hints for missing inputs of a task, by kind and input."""

MISSING_KINDS: Final = {
    **dict.fromkeys(("snowflake", "bigquery"), "`http`, with the SQL API of the service"),
    **dict.fromkeys(("gcs", "s3", "azure_blob", "storage", "sftp"), "`files`, of the plugin noetl-stream-files"),
    **dict.fromkeys(
        ("mysql", "mssql", "oracle", "mongodb", "redis", "clickhouse"), "`python`, with the client of the database"
    ),
    **dict.fromkeys(("sql", "postgresql", "pg"), "`postgres`"),
    **dict.fromkeys(("sqlite", "ducklake", "parquet", "csv"), "`duckdb`"),
    **dict.fromkeys(("bash", "sh", "command", "exec", "ssh", "container", "docker"), "`shell`"),
    **dict.fromkeys(("kubernetes", "k8s", "job"), "`http`, with the API of the cluster, or `shell` with kubectl"),
    **dict.fromkeys(("script", "rhai", "py", "function", "lambda"), "`python`, with the code under `code`"),
    **dict.fromkeys(
        ("webhook", "rest", "api", "request", "graphql", "slack", "email", "gateway", "agent", "mcp", "llm"), "`http`"
    ),
    **dict.fromkeys(("sleep", "delay", "timer", "approval", "human", "pause"), "`wait`"),
    **dict.fromkeys(("subflow", "workflow", "flow", "playbooks", "child"), "`playbook`, with `path`"),
    **dict.fromkeys(("transfer", "copy", "sync"), "a pipeline of `postgres`, `duckdb` or `http` tasks"),
    **dict.fromkeys(("iterator", "foreach", "for_each", "map"), "`loop` on the step, around the task's own kind"),
    **dict.fromkeys(("router", "route", "start", "end", "none", "empty", "dummy", "pass"), "`noop`"),
    **dict.fromkeys(
        ("switch", "condition", "choice", "if"), "guards on the arcs in `next`, or `choose` in the pipeline"
    ),
    **dict.fromkeys(("signal", "event"), "`wait`: { kind: wait, signal: approved, timeout_s: 86400 }"),
    "parallel": "`next` with spec: { mode: inclusive } and several arcs",
    "task_sequence": "a list of tasks under `tool`",
    "artifact": "nothing: a result is read as `steps.<name>`, large or small",
    "kafka": "`nats`, or `python` with a client",
    "secret": "`secrets`",
    "log": "`noop`, with the values as args",
}
"""Missing kinds of older dialects and other tools, with their replacements."""
