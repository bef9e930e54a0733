"""Opens folders and object storage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from noetl_stream.errors import UsageError
from noetl_stream.settings.places import Place

if TYPE_CHECKING:
    from noetl_stream.adapters.files.folder import FolderFiles
    from noetl_stream.adapters.files.objects import ObjectFiles


def open_files(place: Place) -> FolderFiles | ObjectFiles:
    """Opens a folder or object storage by its address.

    Raises:
        UsageError: the address is of object storage, and the extra ``objects`` is not installed or a variable of it is
            invalid.
    """
    if isinstance(place, Path):
        from noetl_stream.adapters.files.folder import FolderFiles

        return FolderFiles(place)
    try:
        from noetl_stream.adapters.files.objects import ObjectFiles
    except ModuleNotFoundError as error:
        raise UsageError(f"{place} needs {error.name}", hint="install noetl-stream[objects]") from None
    return ObjectFiles(place)
