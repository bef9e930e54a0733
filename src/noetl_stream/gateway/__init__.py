"""The HTTP API: one file a resource, problems in one place. Public address space: ``/api/v1``."""
