select coalesce(max(execution_id), '') from noetl.execution
