"""Gateways by name: ``contexts.yaml`` in the person's configuration folder, readable by its owner alone."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from noetl_stream.errors import UsageError
from noetl_stream.settings.environment import GATEWAY_SCHEMES, environment_variable

DIRECT: Final = "direct"
"""The name of no gateway: NATS and Postgres themselves."""

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
KEYS: Final = ("url", "token", "token_file", "token_variable")


class Context(NamedTuple):
    """A gateway. Its token stands here, or in a file, or in an environment variable."""

    url: str
    token: str | None = None
    token_file: str | None = None
    token_variable: str | None = None

    def read_token(self) -> str | None:
        """The token, from wherever it is.

        Raises:
            UsageError: it is not there.
        """
        if self.token_file is not None:
            try:
                return Path(self.token_file).expanduser().read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError, RuntimeError) as error:
                raise UsageError(f"the token cannot be read from {self.token_file}: {error}") from None
        if self.token_variable is not None:
            found = environment_variable(self.token_variable)
            if not found:
                raise UsageError(f"the token is to come from {self.token_variable}, which is not set")
            return found
        return self.token

    @property
    def token_source(self) -> str:
        """Where the token is, for people; never the token."""
        if self.token is not None:
            return "in the file"
        return self.token_file or (f"${self.token_variable}" if self.token_variable else "none")


class Contexts(NamedTuple):
    """What the file says. ``current`` is the one that is meant target nothing else is said."""

    current: str | None
    named: dict[str, Context]

    def find(self, name: str) -> Context:
        """
        Raises:
            UsageError: there is none of that name.
        """
        found = self.named.get(name)
        if found is None:
            known = ", ".join(sorted(self.named)) or "none yet: `noetl-stream context add NAME --url URL`"
            raise UsageError(f"there is no context {name!r}", hint=f"there is {known}")
        return found


def read_contexts(file: Path | None) -> Contexts:
    """Those of the file; none if there is no file.

    Raises:
        UsageError: it cannot be read, or says something that cannot be.
    """
    if file is None or not os.access(file, os.F_OK):
        return Contexts(None, {})
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        found = YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8")) or {}
        named = {str(name): Context(**given) for name, given in (found.get("contexts") or {}).items()}
        current = found.get("current")
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from None
    except (YAMLError, UnicodeDecodeError, AttributeError, TypeError):
        hint = f"`current: NAME`, and under `contexts` by name any of {', '.join(KEYS)}"
        raise UsageError(f"{file}: is no list of contexts", hint=hint) from None
    for name, context in named.items():
        check_url(context.url, f"{file}: the url of {name}")
    return Contexts(current, named)


def write_contexts(file: Path | None, contexts: Contexts) -> None:
    """Replaces the file in one go, readable by its owner alone.

    Raises:
        UsageError: there is nowhere to write it.
    """
    if file is None:
        raise UsageError("neither XDG_CONFIG_HOME nor HOME is set", hint="set one: contexts are kept there")
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    named = {
        name: {key: value for key, value in context._asdict().items() if value is not None}
        for name, context in contexts.named.items()
    }
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as written:
            yaml.dump({"current": contexts.current, "contexts": named}, written)
        Path(written.name).replace(file)  # made with mode 600
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from None


def check_name(name: str) -> None:
    """Raises UsageError for what cannot be the name of a context."""
    if NAME.fullmatch(name) is None or name == DIRECT:
        hint = f"letters, digits, `_`, `.` and `-`; {DIRECT!r} means NATS and Postgres themselves"
        raise UsageError(f"{name!r} cannot be the name of a context", hint=hint)


def check_url(url: object, what: str) -> None:
    """Raises UsageError for what is no address of a gateway."""
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in GATEWAY_SCHEMES or not parts.netloc:
        raise UsageError(f"{what} is no address of a gateway", hint="one begins with http:// or https://")
    if "@" in parts.netloc:
        raise UsageError(f"{what} has a password in it", hint="gateways take tokens: set NOETL_TOKEN")
