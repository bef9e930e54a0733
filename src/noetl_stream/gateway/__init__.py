"""The HTTP API: one file for each resource, problems in one place. Public address space: ``/api/v1``."""
