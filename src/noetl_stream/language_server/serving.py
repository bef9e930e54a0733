"""Serves one editor over streams."""

from __future__ import annotations

from typing import BinaryIO

from noetl_stream.language_server.features import answer_questions
from noetl_stream.language_server.language_server import PlaybookServer, follow_documents
from noetl_stream.model.limits import Limits
from noetl_stream.playbook.kinds.spec import Kinds


def serve(kinds: Kinds, limits: Limits, given: BinaryIO, taken: BinaryIO) -> None:
    """Serves an editor until it says that it is done, or has gone.

    Args:
        given: The stream of the editor's messages.
        taken: The stream of the answers.
    """
    server = PlaybookServer(kinds, limits)
    follow_documents(server)
    answer_questions(server)
    try:
        server.start_io(given, taken)
    finally:
        server.checks.close()
