"""The gateway of a client, chosen as by the command line: by arguments, the environment and ``contexts.yaml``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from noetl_stream_client.errors import ConfigurationError

if TYPE_CHECKING:
    import ssl

DIRECT: Final = "direct"
"""The context without a gateway."""

KEYS: Final = ("url", "token", "token_file", "token_variable")
NO_GATEWAY: Final = "name one: Client(url), NOETL_URL, or `noetl-stream context use`; Client.local() runs a stack here"
MAX_FILE_BYTES: Final = 1024 * 1024

INDICATORS: Final = tuple("'\"[]{}&*!|>%@`,")
"""The characters that cannot begin a plain text of YAML."""

_LINE: Final = re.compile(r"(?P<indent> *)(?P<key>[^\s:#][^:#]*|'[^']*'|\"[^\"]*\"):(?: +(?P<value>.*))?")
_ESCAPED: Final = re.compile(r'"(?:[^"\\]|\\["\\/])*"')


class Gateway(NamedTuple):
    """A gateway to call. ``name`` is its name in errors."""

    url: str
    token: str | None
    name: str
    verify: ssl.SSLContext | bool = True
    proxy: str | None = None


def gateway_of(
    url: str | None = None,
    token: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Gateway:
    """The gateway that these arguments, the environment or the contexts file name.

    Raises:
        ConfigurationError: none is named, or what names it cannot be read.
    """
    given = {name: value for name, value in (os.environ if environ is None else environ).items() if value}
    if url is not None and context is not None:
        raise ConfigurationError("url and context cannot be combined", hint="use one of them")
    token = token or _token(given)
    named = url or (given.get("NOETL_URL") if context is None else None)
    if named is not None:
        what = "url" if url is not None else "NOETL_URL"
        return _with_token(check_url(named, what), token, given, f"{what} {named}")
    name = context or given.get("NOETL_CONTEXT")
    contexts = {} if name == DIRECT else read_contexts(_contexts_file(given))
    if name is None and not _selects_stack(given):
        name = contexts.get("", {}).get("current")
    if name in (None, DIRECT):
        return _running(given, token)
    found = contexts.get(name or "")
    if found is None:
        known = ", ".join(sorted(filter(None, contexts)))
        hint = f"contexts: {known}" if known else "add one: `noetl-stream context add NAME --url URL`"
        raise ConfigurationError(f"context {name!r} not found", hint=hint)
    return _with_token(found["url"], token or _token_of(found, given), given, f"context {name}")


def check_url(url: str, what: str) -> str:
    """The address of a gateway.

    Raises:
        ConfigurationError: it is none, or contains a password.
    """
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or any(char.isspace() or ord(char) < 32 for char in url):
        raise ConfigurationError(f"{what} is not the URL of a gateway", hint="it must begin with http:// or https://")
    if "@" in url:
        raise ConfigurationError(f"{what} contains a password", hint="gateways take tokens: set NOETL_TOKEN")
    return url.rstrip("/")


def home_of(given: Mapping[str, str]) -> Path | None:
    """The home of the embedded stack; ``None`` if there is no ``HOME`` for the default."""
    try:
        return Path(given.get("NOETL_HOME") or "~/.noetl").expanduser().absolute()
    except RuntimeError:
        return None


def local_gateways(home: Path) -> list[Gateway]:
    """The running gateways of a home, each with a lock in the home."""
    folder = home / "gateways"
    places = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return [Gateway(f"http://{one}", _home_token(home), f"home {home}") for one in places if _is_locked(folder / one)]


def _token(given: Mapping[str, str]) -> str | None:
    file = given.get("NOETL_TOKEN_FILE")
    if file is not None and "NOETL_TOKEN" in given:
        raise ConfigurationError("NOETL_TOKEN and NOETL_TOKEN_FILE are both set", hint="remove one of them")
    return given.get("NOETL_TOKEN") if file is None else _read(Path(file), "NOETL_TOKEN_FILE names").strip()


def _contexts_file(given: Mapping[str, str]) -> Path | None:
    try:
        folder = Path(given.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    except RuntimeError:
        return None
    return folder / "noetl-stream" / "contexts.yaml"


def _selects_stack(given: Mapping[str, str]) -> bool:
    """Whether the environment names the NATS and Postgres that commands use."""
    return "NOETL_NATS_URL" in given or home_of(given) != home_of({})


def _running(given: Mapping[str, str], token: str | None) -> Gateway:
    home = home_of(given)
    found = local_gateways(home) if home is not None and "NOETL_NATS_URL" not in given else []
    if not found:
        raise ConfigurationError("no gateway is named", hint=NO_GATEWAY)
    return found[0] if token is None else found[0]._replace(token=token)


def _with_token(url: str, token: str | None, given: Mapping[str, str], name: str) -> Gateway:
    """The gateway, with the home's token if it is one of the home's and no other token is given."""
    home = home_of(given)
    if token is None and home is not None:
        for local in local_gateways(home):
            if local.url in (url, url.replace("//localhost:", "//127.0.0.1:"), url.replace("//localhost:", "//[::1]:")):
                return local._replace(name=name)
    return Gateway(url, token, name)


def _home_token(home: Path) -> str | None:
    file = home / "gateway.token"
    if not file.exists():
        return None
    if os.name == "posix" and file.stat().st_mode & 0o077:
        raise ConfigurationError(f"{file} can be read by other users", hint=f"chmod 600 {file}")
    return _read(file, "the token is in").strip()


def _is_locked(path: Path) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows has no embedded stack
        return False
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _token_of(context: Mapping[str, str], given: Mapping[str, str]) -> str | None:
    file, variable = context.get("token_file"), context.get("token_variable")
    if file is not None:
        return _read(Path(file).expanduser(), "the token is in").strip()
    if variable is not None:
        if variable not in given:
            raise ConfigurationError(f"the context takes its token from {variable}, which is not set")
        return given[variable]
    return context.get("token")


def _read(file: Path, what: str) -> str:
    try:
        if not file.is_file():
            raise ConfigurationError(f"{what} {file}, which is not a file")
        with file.open("rb") as opened:
            return opened.read(MAX_FILE_BYTES).decode()
    except OSError as error:
        raise ConfigurationError(
            f"{what} {file}: {error.strerror}", hint="this process has to be able to read it"
        ) from None
    except ValueError:
        raise ConfigurationError(f"{what} {file}, which is not UTF-8 text") from None


# The file of contexts. `noetl-stream context add` writes it: names, and below each its keys, one a line. That much of
# YAML is read here, so that a client needs no library for it.


def read_contexts(file: Path | None) -> dict[str, dict[str, str]]:
    """The contexts of the file by name, with the current one under the empty name; empty without a file.

    Raises:
        ConfigurationError: it cannot be read, or has more than `noetl-stream context add` writes.
    """
    if file is None or not file.exists():
        return {}
    contexts: dict[str, dict[str, str]] = {}
    found: dict[str, str] | None = None
    for number, indent, key, value in _lines(file):
        if indent == 0:
            found = None
            if key == "current" and value is not None:
                contexts[""] = {"current": value}
            elif key not in ("current", "contexts") or (key == "contexts" and value is not None):
                raise _refused(file, number)
        elif value is None:
            found = contexts.setdefault(key, {})
        elif found is None or key not in KEYS:
            raise _refused(file, number)
        else:
            found[key] = value
    for name, one in contexts.items():
        if name:
            one["url"] = check_url(one.get("url", ""), f"{file}: url of {name}")
    return contexts


def _lines(file: Path) -> Iterator[tuple[int, int, str, str | None]]:
    """The lines as number, indent, key and value."""
    for number, line in enumerate(_read(file, "contexts are in").splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line.rstrip())
        if found is None:
            raise _refused(file, number)
        key, value = _scalar(found["key"].strip()), _scalar((found["value"] or "").strip())
        if key is None or (value is None and found["value"] not in (None, "", "null", "~", "{}")):
            raise _refused(file, number)
        yield number, len(found["indent"]), key, value


def _scalar(text: str) -> str | None:
    """The text of a plain or quoted value; ``None`` for null and other values."""
    if len(text) > 1 and text[0] == text[-1] == "'" and "'" not in text[1:-1].replace("''", ""):
        return text[1:-1].replace("''", "'")
    if _ESCAPED.fullmatch(text):
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    text = text.partition(" #")[0].strip()
    is_plain = text[:1] not in INDICATORS and text[:2] not in ("?", "? ", "- ", "-") and text not in ("null", "~")
    return text if text and is_plain else None


def _refused(file: Path, number: int) -> ConfigurationError:
    keys = ", ".join(KEYS)
    hint = f"`noetl-stream context add` writes `current: NAME`, and under `contexts` for each name any of {keys}"
    return ConfigurationError(f"{file}, line {number}: not a line of a list of contexts", hint=hint)
