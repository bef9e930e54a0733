"""The key that an embedded stack encrypts its credentials with: made once for a home, in one file of its owner's."""

from __future__ import annotations

from noetl_stream.errors import LocalStackError, UsageError
from noetl_stream.local.home import Home, write_private
from noetl_stream.sealing.keys import new_key, read_key


def load_or_make_key(home: Home) -> str:
    """The key as text. Call it with the home's start lock held.

    Raises:
        LocalStackError: the file is there and holds no key.
    """
    try:
        text = home.credential_key.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        text = new_key()
        write_private(home.credential_key, text + "\n")
        return text
    try:
        read_key(text, str(home.credential_key))
    except UsageError as error:
        hint = "put the file back, or remove it and set the stored credentials again"
        raise LocalStackError(error.message, hint=hint) from None
    return text
