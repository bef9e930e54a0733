"""The target of a command: NATS and Postgres directly, or a gateway. Options take precedence over the environment, and
the environment over ``contexts.yaml``, which names gateways.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import click
import msgspec
from msgspec.structs import asdict

from noetl_stream.cli.base.files import INSTALL, file_text, is_whole
from noetl_stream.cli.base.options import bundled, home_option
from noetl_stream.errors import UsageError
from noetl_stream.model.secrets.urls import split_url
from noetl_stream.settings.sources.environment import GATEWAY_SCHEMES, Settings
from noetl_stream.settings.sources.process_environment import environment_variable

DIRECT: Final = "direct"
"""The context without a gateway."""

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
KEYS: Final = ("url", "token", "token_file", "token_variable")


class Target(msgspec.Struct, frozen=True, gc=False):
    """The options ``--home``, ``--url`` and ``--context``. With a ``url``, ``home`` is the home with its token."""

    home: Path | None = None
    url: str | None = None
    context: str | None = None


target_options = bundled(
    "target",
    Target,
    [
        home_option,
        click.option("--url", metavar="URL", help="Gateway to use. [default: NOETL_URL]"),
        click.option("--context", metavar="NAME", help="Context to use. [default: NOETL_CONTEXT]"),
    ],
)


class GatewayAddress(msgspec.Struct, frozen=True, gc=False):
    """A gateway to call. ``name`` is its name in errors."""

    url: str
    token: str | None
    name: str


def gateway_of(target: Target, settings: Settings) -> GatewayAddress | None:
    """The gateway to call; ``None``: work on NATS and Postgres.

    Args:
        settings: The settings of ``target.home``, if it is given.

    Raises:
        UsageError: the options contradict each other, the context does not exist, or this program needs a gateway.
    """
    found = _chosen_gateway(target, settings)
    if found is None and not is_whole():
        hint = f"name one with --url or a context, or {INSTALL}"
        raise UsageError("noetl-stream-cli works through a gateway, and none is named", hint=hint)
    return found


def _chosen_gateway(target: Target, settings: Settings) -> GatewayAddress | None:
    if target.context is not None and (target.home is not None or target.url is not None):
        other = "--home" if target.home is not None else "--url"
        raise UsageError(f"{other} and --context cannot be combined", hint="use one of them")
    if target.home is not None and target.url is None:
        return None
    url = target.url if target.context is None else None
    if url is None and target.context is None:
        url = settings.url
    if url is not None:
        named = "--url" if target.url is not None else "NOETL_URL"
        check_url(url, named)
        return _with_token(url, settings.token, settings, f"{named} {url}")
    name = target.context or settings.context
    if name == DIRECT or (name is None and settings.selects_stack):
        return None
    contexts = read_contexts(settings.contexts_file)
    name = name or contexts.current or DIRECT
    if name == DIRECT:
        return None
    context = contexts.find(name)
    return _with_token(context.url, settings.token or context.read_token(), settings, f"context {name}")


def _with_token(url: str, token: str | None, settings: Settings, name: str) -> GatewayAddress:
    """The gateway, with the token of the embedded stack if it is one of its own and no other token is given."""
    if token is None and settings.home_folder is not None:
        from noetl_stream.local.gateway_address import gateway_at  # most commands start faster without it

        local = gateway_at(settings.home_folder, url)
        if local is not None:
            return GatewayAddress(local.url, local.token, name)
    return GatewayAddress(url, token, name)


class Context(msgspec.Struct, frozen=True, gc=False):
    """A gateway. Its token is stored here, in a file or in an environment variable."""

    url: str
    token: str | None = None
    token_file: str | None = None
    token_variable: str | None = None

    def read_token(self) -> str | None:
        """The token, wherever it is stored.

        Raises:
            UsageError: it cannot be read.
        """
        if self.token_file is not None:
            try:
                return file_text(Path(self.token_file).expanduser()).strip()
            except (OSError, RuntimeError) as error:
                raise UsageError(f"cannot read the token from {self.token_file}: {error}") from None
        if self.token_variable is not None:
            found = environment_variable(self.token_variable)
            if not found:
                raise UsageError(f"the context takes its token from {self.token_variable}, which is not set")
            return found
        return self.token

    @property
    def token_source(self) -> str:
        """Where the token is stored, for people; never the token."""
        if self.token is not None:
            return "in the file"
        return self.token_file or (f"${self.token_variable}" if self.token_variable else "none")


class Contexts(msgspec.Struct, frozen=True, gc=False):
    """The content of ``contexts.yaml``. ``current`` is used if neither options nor environment select one."""

    current: str | None
    named: dict[str, Context]

    def find(self, name: str) -> Context:
        """
        Raises:
            UsageError: it does not exist.
        """
        found = self.named.get(name)
        if found is None:
            known = ", ".join(sorted(self.named))
            hint = f"contexts: {known}" if known else "add one: `noetl-stream context add NAME --url URL`"
            raise UsageError(f"context {name!r} not found", hint=hint)
        return found


def read_contexts(file: Path | None) -> Contexts:
    """The contexts of the file; empty without a file.

    Raises:
        UsageError: it cannot be read, or is invalid.
    """
    if file is None or not os.access(file, os.F_OK):
        return Contexts(None, {})
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        found = YAML(typ="safe", pure=True).load(file_text(file)) or {}
        named = {str(name): Context(**given) for name, given in (found.get("contexts") or {}).items()}
        current = found.get("current")
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from None
    except (YAMLError, AttributeError, TypeError):
        hint = f"expected `current: NAME`, and under `contexts` for each name any of {', '.join(KEYS)}"
        raise UsageError(f"{file}: not a valid list of contexts", hint=hint) from None
    for name, context in named.items():
        check_url(context.url, f"{file}: url of {name}")
    return Contexts(current, named)


def write_contexts(file: Path | None, contexts: Contexts) -> None:
    """Replaces the file atomically, readable by its owner only.

    Raises:
        UsageError: it cannot be written.
    """
    if file is None:
        raise UsageError("neither XDG_CONFIG_HOME nor HOME is set", hint="contexts are stored there: set one")
    import tempfile

    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    named = {
        name: {key: value for key, value in asdict(context).items() if value is not None}
        for name, context in contexts.named.items()
    }
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as written:
            yaml.dump({"current": contexts.current, "contexts": named}, written)
        Path(written.name).replace(file)  # created with mode 600
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from None


def check_name(name: str) -> None:
    """Raises UsageError for an invalid name of a context."""
    if NAME.fullmatch(name) is None or name == DIRECT:
        hint = f"use letters, digits, `_`, `.` and `-`; {DIRECT!r} is reserved for work without a gateway"
        raise UsageError(f"{name!r} is not a valid context name", hint=hint)


def check_url(url: object, what: str) -> None:
    """Raises UsageError for an invalid URL of a gateway."""
    parts = split_url(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in GATEWAY_SCHEMES or not parts.netloc:
        raise UsageError(f"{what} is not the URL of a gateway", hint="it must begin with http:// or https://")
    if "@" in parts.geturl():
        raise UsageError(f"{what} contains a password", hint="gateways take tokens: set NOETL_TOKEN")
