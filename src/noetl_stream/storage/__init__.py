"""The use of the stores by several roles: journals, sealed objects, deletion of executions, waits for a store."""
