"""``kind: files``: lists, copies, moves, deletes and synchronizes files in buckets and folders."""

from __future__ import annotations

from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.tools.contract import ToolCall, ToolResult
from noetl_stream.tools.inputs import invalid_input, own_settings, validated
from noetl_stream_files.inputs import FilesInputs, FilesKnobs, combination_error
from noetl_stream_files.settings import FilesSettings


class FilesTool:
    """Runs one operation per task, on storages that are opened for it."""

    spec = KindSpec(kind="files", inputs=FilesInputs, knobs=FilesKnobs, combination_error=combination_error)
    settings = FilesSettings

    def __init__(self, settings: ToolSettings | None = None) -> None:
        self._settings = settings or ToolSettings()
        self._own = own_settings(FilesSettings, self.spec.kind, self._settings)

    @classmethod
    def configured(cls, settings: ToolSettings) -> FilesTool:
        """The tool with the operator's settings.

        Raises:
            UsageError: ``NOETL_TOOL_FILES`` is invalid.
        """
        return cls(settings)

    async def run(self, call: ToolCall) -> ToolResult:
        """
        Raises:
            ToolFailure: ``not_found``, ``conflict``, ``refused``, ``connection``, ``credential``, ``not_allowed``,
                ``forbidden_address``, ``limit_exceeded``, ``result_lost``, ``invalid_input``.
        """
        from noetl_stream_files.operations import Operation  # obstore loads slowly
        from noetl_stream_files.stores import storages_of

        inputs = validated(FilesInputs, call.inputs)
        validated(FilesKnobs, call.knobs)
        given = [name for name in inputs.model_fields_set if getattr(inputs, name) is not None]
        if (problem := combination_error(given)) is not None:
            raise invalid_input(problem)
        async with storages_of(call, self._settings, self._own.folders) as storages:
            return ToolResult(await Operation(call, inputs, storages, self._own.max_files).result())

    async def close(self) -> None:
        """Does nothing: each task closes its own storages."""
