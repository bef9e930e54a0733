select max(execution_id) from noetl.execution
