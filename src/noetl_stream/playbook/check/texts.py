"""Warnings of probable mistakes: a path without braces, text added to a number, a plain secret (LANGUAGE §2)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from noetl_stream.playbook.check.bindings import Declarations, Path, Visible
from noetl_stream.playbook.check.results import ResultReads
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.yaml.nodes import InText, Scalar
from noetl_stream.template.compile.parsing import place_of

_WORD: Final = r"[A-Za-z_]\w*"
_BARE: Final = re.compile(rf"({_WORD}(?:\.\w+|\[[^\[\]]*\])+)(?:\s*\|\s*[a-z_]+(?:\([^()]*\))?)*\Z")
"""A text that consists of a path and filters."""
_KEYS: Final = re.compile(r"\w+")
_ENDINGS: Final = frozenset(
    ["csv", "json", "txt", "yaml", "yml", "xml", "html", "md", "py", "sql", "parquet", "log", "com", "org", "net", "io"]
)
"""Suffixes of file names and hosts."""
_NUMBERS_OF_LOOPS: Final = frozenset(["index", "count"])
_ADDED: Final = re.compile(
    rf"(?:'[^'{{}}]*'|\"[^\"{{}}]*\")\s*(\+)\s*({_WORD}(?:\.\w+)*)(?![\w.(\[]|\s*[|*/])"
    rf"|(?<![\w.|])(?<!\| )({_WORD}(?:\.\w+)*)\s*(\+)\s*['\"]"
)
"""A path that is added to a text, or a text to it."""
_MOVED_TIME: Final = re.compile(r"(?<![\w.'\"])(execution\.(?:due|started))\s*([-+])\s*\d")
"""A number that is added to a time of the execution, or subtracted from it."""
_SECRET: Final = re.compile(
    r"(?:(Bearer|Basic|token) +)?((?:sk-|sk_live_|ghp_|gho_|github_pat_|glpat-|xox[abp]-|AKIA|eyJ)[\w.+/=-]{12,}|"
    r"(?<= )[A-Za-z0-9_.+/=-]{16,})\Z"
)
_MOST_SHOWN: Final = 120


class Texts:
    """Checks the texts of the values of a playbook."""

    def __init__(self, source: str, declared: Declarations, results: ResultReads, problems: Problems) -> None:
        self._source = source
        self._declared = declared
        self._results = results
        self._problems = problems

    def check(self, texts: Iterable[tuple[Scalar, str]], visible: Visible) -> None:
        """Warns of the texts of a value that is rendered."""
        for scalar, text in texts:
            if "{{" not in text:
                self._warn_of_bare_path(scalar, text, visible)
                self._warn_of_secret(scalar, text)
            else:
                self._warn_of_sum(scalar, text, visible)
                self._warn_of_time(scalar, text)

    def _warn_of_bare_path(self, scalar: Scalar, text: str, visible: Visible) -> None:
        found = _BARE.match(text) if len(text) <= _MOST_SHOWN else None
        if found is None:
            return
        first, *keys = _KEYS.findall(found[1])
        bound = visible.bindings.get(first) or ((first,) if first in visible.namespaces else None)
        is_meant = bound is not None and self._is_known((*bound, *keys), visible)
        if is_meant and not self._problems.has_error_at(scalar.pointer):
            message = f"`{text}` is text as it stands here, and no value of that name"
            quoted = f'"{{{{ {text} }}}}"' if '"' not in text else f"'{{{{ {text} }}}}'"
            self._problems.warn("template_not_rendered", message, scalar, f"write {quoted}")

    def _is_known(self, path: Path, visible: Visible) -> bool:
        """Whether a path certainly names something of this playbook: a host or a file may look like it."""
        match path:
            case ("workload", key):
                return key in self._declared.workload
            case ("workload", key, inner, *_):
                value = self._declared.defaults.get(key)
                return isinstance(value, dict) and inner in value
            case ("ctx", key, *_):
                return key in self._declared.ctx
            case ("args", key, *_):
                return key in self._declared.args_of(visible.step)
            case ("keychain", entry, *_):
                return entry in visible.keychain
            case ("iter", name, *keys):
                return name in visible.iter.iterators and path[-1] not in _ENDINGS and bool(keys)
            case _:
                return self._results.has(path, visible)

    def _warn_of_sum(self, scalar: Scalar, text: str, visible: Visible) -> None:
        for found in _ADDED.finditer(text) if "+" in text else ():
            path = found[2] or found[3]
            if not self._is_number(tuple(path.split(".")), visible) or "{{" not in text[: found.start()]:
                continue
            offset = found.start(1) if found[2] else found.start(4)
            start, end = text.rfind("{{", 0, offset), text.find("}}", offset)
            mended = f"{text[start + 2 : offset].rstrip()} ~ {text[offset + 1 : end].lstrip()}".strip()
            message = f"`{path}` is a number, and `+` does not join it with text"
            at = InText(self._source, scalar, *place_of(text, offset))
            hint = f"write {{{{ {mended} }}}}" if len(mended) <= _MOST_SHOWN else "write `~` in place of `+`"
            self._problems.warn("invalid_value", message, at, hint)

    def _warn_of_time(self, scalar: Scalar, text: str) -> None:
        for found in _MOVED_TIME.finditer(text):
            if "{{" in text[: found.start()]:
                message = f"`{found[1]}` is text, and `{found[2]}` does not move a time"
                hint = f"write `{found[1]} | date_add({found[2].replace('+', '')}1, 'day')`"
                at = InText(self._source, scalar, *place_of(text, found.start(1)))
                self._problems.warn("invalid_value", message, at, hint)

    def _is_number(self, path: Path, visible: Visible) -> bool:
        bound = (*visible.bindings.get(path[0], path[:1]), *path[1:])
        match bound:
            case ("workload", key):
                value: Any = self._declared.defaults.get(key)
                return isinstance(value, int | float) and not isinstance(value, bool)
            case ("iter", key):
                return key in _NUMBERS_OF_LOOPS and bool(visible.iter.iterators)
            case _:
                return self._results.number(bound, visible) is not None

    def _warn_of_secret(self, scalar: Scalar, text: str) -> None:
        found = _SECRET.match(text) if len(text) <= 4_000 else None
        if found is None or (found[1] and not re.search(r"\d", found[2])):
            return
        whole = f"{found[1]} {{{{ keychain.token }}}}" if found[1] else "{{ keychain.token }}"
        message = "a secret stands here in clear, and in the catalog for all who may read the playbook"
        hint = (
            f'write "{whole}", declare it as keychain: [ {{ name: token, kind: credential }} ], '
            "and store it once: noetl-stream credential set token"
        )
        self._problems.warn("plain_secret", message, scalar, hint)
