"""The TLS identity and trust of ``kind: http``."""

from __future__ import annotations

import ssl
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from noetl_stream.lru import LruCache
from noetl_stream.tools.contract import ToolFailure

TLS_KEYS: Final = frozenset({"certificate", "key", "ca"})
"""The entries of a credential for TLS."""

CONTEXTS_KEPT: Final = 32


class Tls(NamedTuple):
    """The TLS entries of a credential, as PEM. ``ca`` replaces the authorities that the worker trusts."""

    certificate: str | None = None
    key: str | None = None
    ca: str | None = None


class TlsContexts:
    """Caches TLS contexts: making one takes milliseconds, and connections of one context are shared.

    Args:
        ca_file: PEM of authorities that the operator trusts in addition to those of the system.
    """

    def __init__(self, ca_file: Path | None = None) -> None:
        self._ca_file = ca_file
        self._contexts: LruCache[tuple[Tls, bool], ssl.SSLContext] = LruCache(CONTEXTS_KEPT)

    def get(self, tls: Tls | None, *, verify: bool) -> ssl.SSLContext | bool:
        """Returns the ``ssl`` argument of aiohttp: a context, or whether to verify, if that is all.

        Raises:
            ToolFailure: ``credential``: its TLS entries cannot be used. Shows none of them.
        """
        if tls is None and (self._ca_file is None or not verify):
            return verify
        key = (tls or Tls(), verify)
        context = self._contexts.get(key)
        if context is None:
            context = self._new_context(*key)
            self._contexts.put(key, context)
        return context

    def _new_context(self, tls: Tls, verify: bool) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cadata=tls.ca)
        except (ssl.SSLError, ValueError):
            raise ToolFailure.of("credential", "auth: ca is not a certificate in PEM") from None
        if tls.ca is None and self._ca_file is not None:
            context.load_verify_locations(self._ca_file)
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls.certificate is not None and tls.key is not None:
            try:
                _present(context, tls.certificate, tls.key)
            except (ssl.SSLError, ValueError):
                message = "auth: certificate and key are not a certificate and its key without a password, in PEM"
                raise ToolFailure.of("credential", message) from None
        return context


def _present(context: ssl.SSLContext, *texts: str) -> None:
    """Makes the context present a certificate, through files without a name, since the library only reads files."""
    with ExitStack() as files:
        paths = []
        for text in texts:
            file = files.enter_context(tempfile.TemporaryFile())
            file.write(text.encode())
            file.flush()
            file.seek(0)
            paths.append(f"/dev/fd/{file.fileno()}")
        context.load_cert_chain(paths[0], paths[1], "")  # an empty password: never ask for one at the terminal
